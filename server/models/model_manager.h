// ModelManager: makes what serves follow what the repository holds.
//
//   wanted --load--> loaded --warm--> published (serving) --not wanted--> retired --last request-->
//      \--fails--> given up until its files change                                        gone
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "server/config/server_options.h"
#include "server/models/folder_watch.h"
#include "server/models/model_registry.h"
#include "server/models/model_repository.h"
#include "server/models/reconciliation.h"

namespace onnxd {

// Start, Follow and Stop are for one thread; the rest for any.
class ModelManager {
 public:
  ModelManager(const SessionOptions& session, const ServerOptions& options, ModelRegistry& registry,
               Scheduler& scheduler, ServerMetrics& metrics);
  ~ModelManager();

  // Before requests are accepted: until LoadAll has come to them, they are told that these load.
  void Expect(const std::vector<WantedVersion>& wanted);

  // Loads all, one after the other; a model that fails is logged and skipped. Returns the failures.
  std::vector<Status> LoadAll(const std::vector<WantedVersion>& wanted);

  // From now on a thread of the manager's own finds out whether requests may share runs, and with
  // models.control_mode `poll` follows the repository: new and changed versions are loaded and
  // tried beside what serves, then published in one step; what they replace goes when its last
  // request has been answered. A version is loaded once its files have stayed the same for a
  // moment.
  void Follow();
  // Ends the thread; a load in progress is finished first.
  void Stop();

  // True once LoadAll has gone through its list.
  bool first_load_done() const { return done_.load(std::memory_order_acquire); }
  // And that models.readiness is content with what came of it.
  bool ready() const {
    return first_load_done() && (options_.models.readiness == "any" || first_failures_ == 0);
  }

 private:
  void Work();
  void FollowOnce();
  bool AreStable(const std::vector<WantedVersion>& wanted);
  Status LoadOrGiveUp(const WantedVersion& wanted, bool try_batches);
  Result<std::shared_ptr<ModelVersion>> Load(const WantedVersion& wanted);
  void TryBatches(const ModelVersion& version);
  void Unload(const VersionKey& key);
  void DropRetired();

  const SessionOptions session_;
  const ServerOptions options_;
  ModelRegistry& registry_;
  Scheduler& scheduler_;
  ServerMetrics& metrics_;
  std::atomic<size_t> first_failures_{0};
  std::atomic<bool> done_{false}, stopping_{false};
  FolderWatch watch_;
  std::thread thread_;
  // Of the loading thread.
  std::map<VersionKey, KnownVersion> known_;
  std::map<VersionKey, uint64_t> last_scan_;
  std::vector<std::shared_ptr<const ModelVersion>> retired_;
  bool settled_ = true;  // the last two scans agreed
  bool scan_failed_ = false;
};

}  // namespace onnxd
