// ModelManager: makes what serves follow what the repository holds.
//
//   wanted --load--> loaded --warm--> published (serving) --not wanted--> kept or retired --> gone
//      \--fails--> given up until its files change    |  ^
//                                       memory needed v  | a request
//                                                    evicted
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "server/config/server_options.h"
#include "server/models/folder_watch.h"
#include "server/models/model_loader.h"
#include "server/models/model_registry.h"
#include "server/models/model_repository.h"
#include "server/models/quarantine.h"
#include "server/models/reconciliation.h"
#include "server/models/resident_models.h"

namespace onnxd {

// Expect, LoadAll, Follow and Stop are for one thread at a time; the rest for any.
class ModelManager {
 public:
  // `memory`: the account of the whole process, with its limit.
  ModelManager(const SessionOptions& session, const ServerOptions& options, ModelRegistry& registry,
               Scheduler& scheduler, ServerMetrics& metrics, std::shared_ptr<MemoryAccount> memory,
               ModelLoader::LoadSession load = InferenceSession::Load,
               ModelLoader::FindProviders find_providers = nullptr);
  ~ModelManager();

  // Before requests are accepted: until LoadAll has come to them, they are told that these load.
  void Expect(const std::vector<WantedVersion>& wanted);

  // Loads all, one after the other, until StopLoading; a model that fails is logged and skipped.
  // Returns the failures.
  std::vector<Status> LoadAll(const std::vector<WantedVersion>& wanted);

  // LoadAll ends after the model it is at. Any thread.
  void StopLoading() { stopping_ = true; }

  // From now on a thread of the manager's own finds out whether requests may share runs, and with
  // models.control_mode `poll` follows the repository: new and changed versions are loaded, warmed
  // and tried beside what serves, at low priority, then published in one step; what they replace
  // goes when its last request has been answered. A version is loaded once its files have stayed
  // the same for a moment.
  void Follow();
  // Ends the thread; a load in progress is finished first, within its time limit.
  void Stop();

  // With models.control_mode `explicit`: loads what the model's settings want of it in the
  // repository, for an ensemble also its models, or unloads all of it. `done` is called once, by
  // the manager's thread or at once: kFailedPrecondition in other modes, or where an ensemble that
  // serves needs the model, kUnavailable when too many wait, kNotFound, or why a load failed. Any
  // thread.
  struct Command {
    bool load;
    std::string model;
    // Of a load: Triton's configuration as JSON, in place of the model's file until the next load.
    std::optional<std::string> config = std::nullopt;
    bool unload_dependents = false;  // of an ensemble: its models as well, but what others need
  };
  using Done = std::function<void(const Status&)>;
  void Control(Command command, Done done);

  // Changes labels and shares of a model that is loaded, over what its model.yaml says, and loads
  // what they name. In models.state_dir they outlast a restart. `done` is called once, by the
  // manager's thread or at once: kInvalidArgument, kNotFound (the model or version), kUnavailable
  // (too many wait, or the folder cannot be written), or why a load failed. Any thread.
  using RolloutChanged = std::function<void(const Status&)>;
  void ChangeRollout(const std::string& model, RolloutChange change, RolloutChanged done);
  // What was changed so.
  RolloutOverlay OverlayOf(const std::string& model) const;
  bool keeps_rollouts() const { return keeps_rollouts_; }

  // Takes a version back at once: requests that name none go to others, older ones are loaded where
  // none serves, and then it is unloaded. It stays away, and so do versions with the same contents,
  // until it is released; in models.state_dir that outlasts a restart. An empty `version`: what the
  // model's split has beside its baseline, else the newest. `done` is called once, by the manager's
  // thread or at once: kNotFound (the model or version), kFailedPrecondition (no other version, or
  // which is meant is unsure), kUnavailable (too many wait, or the folder cannot be written: then
  // it holds until a restart), or why another did not load: then the version serves on. Any thread.
  //
  // Versions that answer worse than their model's `rollback` allows are rolled back so, too.
  void RollBack(const std::string& model, const std::string& version, Done done);
  // It may serve again. `done` as above.
  void Release(const std::string& model, const std::string& version, Done done);
  std::vector<QuarantineEntry> RolledBack(const std::string& model) const;

  // For a version that was unloaded to make room: loads it, once for all that ask meanwhile. `done`
  // is called once, by the manager's thread or at once: kUnavailable when there is no room or too
  // many wait, kDeadlineExceeded, kCancelled, or why the load failed. Any thread.
  using Revived = std::function<void(Result<std::shared_ptr<const ModelVersion>>)>;
  struct Patience {
    std::optional<ModelVersion::Time> deadline;
    std::shared_ptr<std::atomic<bool>> cancelled;  // may be null
  };
  void Revive(const ModelVersion& version, Patience patience, Revived done);

  // From now on, of keys that change while serving; what models want otherwise is loaded anew.
  void Reconfigure(const ServerOptions& options);

  // True once LoadAll has gone through its list.
  bool first_load_done() const { return done_.load(std::memory_order_acquire); }
  bool loads_by_request() const { return control_mode_ == "explicit"; }
  // And that models.readiness is content with what came of it, and all required models serve.
  bool ready() const {
    return first_load_done() && !required_missing_ && (!needs_all_ || first_failures_ == 0);
  }

 private:
  struct Waiter {
    VersionKey key;
    Patience patience;
    Revived done;
  };

  void Work();
  void Look();
  void FollowOnce(bool known_only);
  void LoadKnownAnew(const std::vector<WantedVersion>& wanted);
  void FollowRollouts(const std::vector<WantedVersion>& wanted, const std::string& model);
  RepositoryOptions Repository();
  Status ChangeRollout(const std::string& model, const RolloutChange& change);
  Status RollBack(const std::string& model, const std::string& version);
  Status RollBack(const VersionKey& key, RollbackCause cause, const std::string& reason);
  Status Replace(const VersionKey& key);
  Status Release(const std::string& model, const std::string& version);
  Result<VersionKey> NewestOrCanary(const std::string& model) const;
  Result<std::vector<WantedVersion>> Scan(const std::string& model);
  Status KeepQuarantine();
  void NoteRolledBack();
  std::shared_ptr<ModelRollout> RolloutOf(const std::string& model);
  void UpdateRollouts();
  void Obey(std::function<void()> command);
  bool TryObey(std::function<void()> command);
  void ObeyCommands();
  Status Load(const std::string& model);
  Status Unload(const std::string& model, bool with_members);
  Status Obey(const Command& command);
  // Loads and unloads until what serves of this model, or of all if it is empty, is what is wanted.
  // The last failure.
  Status Approach(const std::vector<WantedVersion>& wanted, const std::string& model);
  std::map<VersionKey, KnownVersion> KnownOf(const std::string& model) const;
  bool AreStable(const std::vector<WantedVersion>& wanted);
  std::vector<WantedVersion> UnloadFirst(const WantedVersion& version,
                                         const std::vector<WantedVersion>& wanted);
  void ReturnTo(const std::vector<WantedVersion>& before, const WantedVersion& failed);
  Status LoadOrGiveUp(const WantedVersion& wanted, WorkPriority priority);
  Result<std::shared_ptr<ModelVersion>> LoadVersion(const WantedVersion& wanted,
                                                    WorkPriority priority);
  Result<std::shared_ptr<ModelVersion>> LoadEnsemble(const WantedVersion& wanted);
  void WithdrawEnsembles(const std::string& model);
  Status LoadNeeded(const std::vector<WantedVersion>& ensembles);
  int64_t EstimateOf(const WantedVersion& wanted) const;
  Status GiveUp(const WantedVersion& wanted, const Status& failure);
  void Forget(const VersionKey& key);
  ModelLoader::Way WayOf(WorkPriority priority);
  void ReviveWaiting();
  Status Revive(const VersionKey& key);
  void RefuseLostWaiters();
  void NoteRequired();
  void RememberLoaded();

  ServerOptions options_;  // of the loading thread
  const std::string control_mode_;
  const bool keeps_rollouts_;
  ModelRegistry& registry_;
  ServerMetrics& metrics_;
  ModelLoader loader_;
  ResidentModels resident_;
  std::atomic<size_t> first_failures_{0};
  std::atomic<bool> done_{false}, stopping_{false}, needs_all_{false}, required_missing_{false};
  FolderWatch watch_;
  std::thread thread_;
  // Of the loading thread.
  std::map<VersionKey, KnownVersion> known_;
  std::map<VersionKey, WantedVersion> sources_;  // what the known ones were loaded from
  std::map<VersionKey, std::pair<uint64_t, int64_t>> needs_;  // bytes, by fingerprint
  std::set<VersionKey> short_of_memory_;                      // that the log knows of
  std::map<std::string, std::string> configs_;                // of loads by request, by model
  std::set<std::string> ignored_;                             // paths that the log knows of
  std::set<std::string> needed_;  // models that are loaded for ensembles
  std::map<VersionKey, std::pair<uint64_t, RolloutSettings>> last_scan_;
  std::set<std::string> required_;
  Quarantine quarantine_;
  std::map<std::string, std::shared_ptr<ModelRollout>> rollouts_;  // by model
  int64_t refusals_seen_ = 0;
  bool settled_ = true;  // the last two scans agreed
  bool scan_failed_ = false;

  mutable std::mutex mutex_;
  RolloutOverlays overlays_;                     // guarded by mutex_
  std::vector<QuarantineEntry> rolled_back_;     // guarded by mutex_
  std::vector<std::function<void()>> commands_;  // guarded by mutex_
  std::vector<Waiter> waiters_;                  // guarded by mutex_
};

}  // namespace onnxd
