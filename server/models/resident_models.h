// ResidentModels: the versions that are in memory: what serves, what is kept for a return to it,
// and what waits for its last request to end; and how room is made for more.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/models/eviction.h"
#include "server/models/model_registry.h"

namespace onnxd {

// One thread.
class ResidentModels {
 public:
  // `memory`: the account, with its limit, that those of all versions belong to.
  ResidentModels(ModelRegistry& registry, Scheduler& scheduler, ServerMetrics& metrics,
                 std::shared_ptr<MemoryAccount> memory);

  // What was loaded later than so long ago makes no room for others.
  void SetLeastResident(std::chrono::seconds least) { least_resident_ = least; }

  // Reserves so many bytes for what is about to be loaded, unloading others where that helps, but
  // not what serves of the model `own`. kResourceExhausted says how much there is.
  Status Reserve(MemoryAccount& account, int64_t bytes, const std::string& own);
  // Unloads until a tenth of the memory is free, as far as rules allow.
  void Relieve();

  // From now on it serves, instead of an older load of the same version.
  void Publish(std::shared_ptr<const ModelVersion> version, uint64_t fingerprint);
  // As Publish, when the version is still in memory, from the same files.
  bool PublishKept(const VersionKey& key, uint64_t fingerprint);
  // Does not serve any more. `keep`: it stays in memory until that is needed, or another version of
  // the model takes its place there.
  void Unload(const VersionKey& key, bool keep);
  // As Unload, and their memory is free, but where requests last longer than `most`.
  void UnloadAndWait(const std::vector<VersionKey>& keys, std::chrono::milliseconds most);

  // Whether it serves but is not in memory: loading and publishing it again makes it.
  bool IsEvicted(const VersionKey& key) const;
  // Versions of the model for which this holds.
  std::vector<VersionKey> Evicted(const std::string& model) const;

  // Frees what no request holds any more, here and not on the thread of its last request.
  void DropRetired();
  bool has_retired() const { return !retired_.empty(); }

  const std::shared_ptr<MemoryAccount>& memory() const { return memory_; }

 private:
  using Version = std::shared_ptr<const ModelVersion>;
  std::vector<ResidentVersion> Candidates(const std::string& own) const;
  bool EvictFor(int64_t bytes, const std::string& own);
  void Evict(const VersionKey& key);
  void Retire(Version version);

  ModelRegistry& registry_;
  Scheduler& scheduler_;
  ServerMetrics& metrics_;
  const std::shared_ptr<MemoryAccount> memory_;
  std::chrono::seconds least_resident_{60};
  std::map<VersionKey, uint64_t> fingerprints_;  // of what serves
  struct Kept {
    Version version;
    uint64_t fingerprint;
  };
  std::map<std::string, Kept> kept_;  // one a model
  std::vector<Version> retired_;
};

}  // namespace onnxd
