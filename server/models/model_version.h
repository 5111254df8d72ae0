// ModelVersion: a loaded model under a name and a version. A request that found one holds it, so it
// stays until its last request has finished.
#pragma once

#include <atomic>
#include <future>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/session/inference_session.h"
#include "server/batching/scheduler.h"
#include "server/metrics/server_metrics.h"

namespace onnxd {

// Any thread.
struct ModelVersion {
  std::string model;
  std::string version;
  std::unique_ptr<InferenceSession> session;
  ModelMetrics* metrics;  // outlives the version
  std::shared_ptr<ScheduledModel> scheduled;
  // Whether rows of different requests may share a run: since the trial agreed.
  mutable std::atomic<bool> joins_rows{false};

  // After a run that succeeded: puts the prepared model into the cache, on a thread of its own.
  // Only the first call does.
  void SaveToCacheOnce() const {
    std::call_once(saved_, [this] {
      if (!session->wants_saving()) return;
      saving_ = std::async(std::launch::async, [this] {
        const Status status = session->SaveToCache();
        if (!status.ok()) LogWarning(StrCat("model '", model, "': ", status.ToString()));
      });
    });
  }

 private:
  mutable std::once_flag saved_;
  mutable std::future<void> saving_;  // its destructor waits
};

}  // namespace onnxd
