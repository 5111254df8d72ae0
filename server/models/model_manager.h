// ModelManager: loads what the repository wants and publishes it.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "server/config/server_options.h"
#include "server/models/model_registry.h"
#include "server/models/model_repository.h"

namespace onnxd {

class ModelManager {
 public:
  ModelManager(const SessionOptions& session, const ServerOptions::Batching& batching,
               ModelRegistry& registry, Scheduler& scheduler, ServerMetrics& metrics)
      : session_(session),
        batching_(batching),
        registry_(registry),
        scheduler_(scheduler),
        metrics_(metrics) {}

  // Before requests are accepted: until LoadAll has come to them, they are told that these load.
  void Expect(const std::vector<WantedVersion>& wanted);

  // Loads all, one after the other; a model that fails is logged and skipped. Returns the failures.
  std::vector<Status> LoadAll(const std::vector<WantedVersion>& wanted);

  // Tries for each loaded model whether requests may share runs, and lets them where they may.
  // Until then each runs alone. Returns early when `stopping` turns true.
  void TryBatches(const std::atomic<bool>& stopping);

  // True once LoadAll has gone through its list. Any thread.
  bool first_load_done() const { return done_.load(std::memory_order_acquire); }

 private:
  Status Load(const WantedVersion& wanted);
  void TryBatches(const ModelVersion& version, const std::atomic<bool>& stopping);

  SessionOptions session_;
  const ServerOptions::Batching batching_;
  ModelRegistry& registry_;
  Scheduler& scheduler_;
  ServerMetrics& metrics_;
  std::atomic<bool> done_{false};
};

}  // namespace onnxd
