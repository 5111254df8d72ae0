// RemoteRepository: a folder of this machine that holds what a SourceUrl has.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "server/sources/object_store.h"
#include "server/sources/repository_layout.h"

namespace onnxd {

// One thread. The folder stays from one start to the next; processes that share it take turns, so
// that none downloads what another does. A version appears and changes whole, in one step.
//
//   CACHE/HASH OF THE URL/models       what is served, FOLDER/NAME/VERSION/model.onnx
//                         partial      what has not wholly come
//                         manifest     which revision of each object stands in models
//                         lock, used   held while it changes; while a process serves it
class RemoteRepository {
 public:
  struct Options {
    std::string cache_dir;
    int64_t cache_bytes =
        0;  // of all repositories in that folder; those that nobody serves go first
    std::string model_name;  // of a single model
    std::string versions;    // of models whose files say nothing else, as in models.versions
    std::function<void(int64_t)> count_bytes = [](int64_t) {};  // that were downloaded
  };

  // `stopping`: from then on nothing is downloaded. kInvalidArgument for what is no URL,
  // kUnavailable where the folder cannot be made.
  static Result<std::unique_ptr<RemoteRepository>> Open(const std::string& url, Options options,
                                                        const std::atomic<bool>* stopping);
  ~RemoteRepository();
  RemoteRepository(const RemoteRepository&) = delete;
  RemoteRepository& operator=(const RemoteRepository&) = delete;

  const std::string& url() const { return url_.text; }
  const std::string& folder() const { return models_; }
  // Whether an earlier Sync, of whatever process, has filled it.
  bool has_models() const;

  // Makes the folder what the source has: of each model the versions that its settings want, and
  // those here already that the source still has. What fails leaves the folder as it was, but for
  // models that were brought up to date before. As ObjectStore and Download;
  // kResourceExhausted where cache_bytes do not suffice.
  Status Sync();
  // Breaks off what a Sync on another thread waits for, once `stopping` is set.
  void Abort() { fetcher_.Abort(); }

 private:
  struct Entry {
    std::string revision;
    int64_t bytes = 0;
    bool operator==(const Entry&) const = default;
  };
  using Manifest = std::map<std::string, Entry>;  // by NAME/VERSION/FILE
  using Placed = std::vector<const PlacedObject*>;

  RemoteRepository(SourceUrl url, Options options, const std::atomic<bool>* stopping);

  Status Update();
  Status UpdateModel(const std::string& model, const Placed& objects);
  Status UpdateVersion(const std::string& model, const std::string& version, const Placed& objects);
  Status UpdateFile(const PlacedObject& placed);
  std::vector<int64_t> WantedVersions(const std::string& model, const Placed& objects) const;
  Result<std::string> Bring(const RemoteObject& object);
  Status MakeRoom(int64_t bytes);
  bool Has(const PlacedObject& placed) const;
  void DropAbsent(const std::vector<PlacedObject>& placed);
  void ReadManifest();
  Status WriteManifest() const;

  const SourceUrl url_;
  const Options options_;
  const Fetcher fetcher_;
  const std::unique_ptr<ObjectStore> store_;
  std::string folder_, models_;
  int used_ = -1;  // the file `used`, locked
  Manifest manifest_;
  bool synced_ = false;  // by this process, once
};

}  // namespace onnxd
