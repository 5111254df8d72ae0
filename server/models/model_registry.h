// ModelRegistry: (name, version) -> ModelVersion. An immutable map replaced whole; the lock is held
// for one pointer copy.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "server/models/model_version.h"

namespace onnxd {

// Any thread.
class ModelRegistry {
 public:
  using Versions = std::map<std::string, std::shared_ptr<const ModelVersion>>;  // by version
  using Models = std::map<std::string, Versions>;

  // Announces a version that is being loaded, until it is published or given up.
  void Expect(const std::string& model, const std::string& version);
  // Returns what it replaces, if anything.
  std::shared_ptr<const ModelVersion> Publish(std::shared_ptr<const ModelVersion> version);
  // New requests do not find it any more. Null when there is none.
  std::shared_ptr<const ModelVersion> Remove(const std::string& model, const std::string& version);
  bool Has(const std::string& model, const std::string& version) const;
  // Whether a version of the model other than `version` serves.
  bool HasOther(const std::string& model, const std::string& version) const;
  // `reason`: why it does not serve, until it does or is removed.
  void GiveUp(const std::string& model, const std::string& version, const std::string& reason);

  // From now on, of this model, or where `model` is empty of all, so that those without rollout
  // lose theirs. Labels of versions that do not serve yet stay where they were.
  using Rollouts = std::map<std::string, RolloutSettings>;  // by model
  void SetRollouts(const std::string& model, const Rollouts& rollouts);
  // As it is now; without labels and shares where nothing was said.
  RolloutSettings Rollout(const std::string& model) const;

  // From now on requests that name no version do not come to this one while another serves. Who
  // names it is told the reason once it does not serve.
  void RollBack(const std::string& model, const std::string& version, const std::string& reason);
  void Release(const std::string& model, const std::string& version);

  // The version, or the one that is the label of; with an empty `version` what the model's split
  // has for the request at `point` (RoutePoint), and without a split the newest published one, but
  // the shadow.
  // kUnavailable while what is asked for is being loaded or when its load failed, else kNotFound,
  // which names what is missing.
  Result<std::shared_ptr<const ModelVersion>> Find(const std::string& model,
                                                   const std::string& version,
                                                   std::optional<uint64_t> point = {}) const;
  std::shared_ptr<const Models> Snapshot() const;

  enum class State { kReady, kLoading, kUnavailable };
  static const char* StateName(State state);  // as Triton says it: "READY", ...
  struct Entry {
    std::string model, version;
    State state;
    std::string reason;  // why it is not ready
  };
  // All that serve, load or failed, ordered by model and version.
  std::vector<Entry> Index() const;

 private:
  // What Find answers when it found nothing.
  Status Missing(const std::string& model, const std::string& version) const;

  using Key = std::pair<std::string, std::string>;  // model, version
  // What decides beside the versions that serve.
  struct Routing {
    Rollouts rollouts;
    std::map<Key, std::string> rolled_back;  // and why
    bool empty() const { return rollouts.empty() && rolled_back.empty(); }
  };
  static std::shared_ptr<const ModelVersion> Choose(const std::string& model,
                                                    const Versions& versions,
                                                    const Routing& routing,
                                                    std::optional<uint64_t> point);

  mutable std::mutex mutex_;
  std::shared_ptr<const Models> models_ = std::make_shared<Models>();     // guarded by mutex_
  std::shared_ptr<const Routing> routing_ = std::make_shared<Routing>();  // guarded by mutex_
  std::set<Key> loading_;                                                 // guarded by mutex_
  std::map<Key, std::string> failed_;                                     // guarded by mutex_
};

}  // namespace onnxd
