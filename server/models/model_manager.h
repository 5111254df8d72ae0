// ModelManager: makes what serves follow what the repository holds.
//
//   wanted --load--> loaded --warm--> published (serving) --not wanted--> retired --last request-->
//      \--fails--> given up until its files change                                        gone
#pragma once

#include <atomic>
#include <functional>
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

// Expect, LoadAll, Follow and Stop are for one thread at a time; the rest for any.
class ModelManager {
 public:
  ModelManager(const SessionOptions& session, const ServerOptions& options, ModelRegistry& registry,
               Scheduler& scheduler, ServerMetrics& metrics);
  ~ModelManager();

  // Before requests are accepted: until LoadAll has come to them, they are told that these load.
  void Expect(const std::vector<WantedVersion>& wanted);

  // Loads all, one after the other, until StopLoading; a model that fails is logged and skipped.
  // Returns the failures.
  std::vector<Status> LoadAll(const std::vector<WantedVersion>& wanted);

  // LoadAll ends after the model it is at. Any thread.
  void StopLoading() { stopping_ = true; }

  // From now on a thread of the manager's own finds out whether requests may share runs, and with
  // models.control_mode `poll` follows the repository: new and changed versions are loaded and
  // tried beside what serves, then published in one step; what they replace goes when its last
  // request has been answered. A version is loaded once its files have stayed the same for a
  // moment.
  void Follow();
  // Ends the thread; a load in progress is finished first.
  void Stop();

  // With models.control_mode `explicit`: loads what models.versions wants of a model in the
  // repository, or unloads all of it. `done` is called once, by the manager's thread or at once:
  // kFailedPrecondition in other modes, kUnavailable when too many wait, kNotFound, or why a load
  // failed. Any thread.
  using Done = std::function<void(const Status&)>;
  void Control(bool load, const std::string& model, Done done);

  // True once LoadAll has gone through its list.
  bool first_load_done() const { return done_.load(std::memory_order_acquire); }
  bool loads_by_request() const { return options_.models.control_mode == "explicit"; }
  // And that models.readiness is content with what came of it.
  bool ready() const {
    return first_load_done() && (options_.models.readiness == "any" || first_failures_ == 0);
  }

 private:
  void Work();
  void FollowOnce();
  void ObeyControls();
  Status Obey(bool load, const std::string& model);
  // Loads and unloads until what serves of this model, or of all if it is empty, is what is wanted.
  // The last failure.
  Status Approach(const std::vector<WantedVersion>& wanted, const std::string& model);
  std::map<VersionKey, KnownVersion> KnownOf(const std::string& model) const;
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
  struct Command {
    bool load;
    std::string model;
    Done done;
  };
  std::mutex commands_mutex_;
  std::vector<Command> commands_;  // guarded by commands_mutex_
  bool settled_ = true;            // the last two scans agreed
  bool scan_failed_ = false;
};

}  // namespace onnxd
