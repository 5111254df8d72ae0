// PreparedModelCache: what loading a model comes to (the optimised graph and packed weights), kept
// in a private folder, so that the next start maps a file instead of working it out.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/content_hash.h"
#include "runtime/base/private_folder.h"
#include "runtime/base/status.h"
#include "runtime/format/graph_archive.h"

namespace onnxd {

// A file as it was seen: what does not change while its contents stay.
struct FileState {
  std::string path;
  uint64_t device = 0, inode = 0, bytes = 0;
  int64_t modified_ns = 0, changed_ns = 0;
  bool operator==(const FileState&) const = default;
};

// Of one folder. Every method may be called from any thread.
class PreparedModelCache {
 public:
  struct Statistics {
    int64_t hits = 0, misses = 0, damaged = 0, stored = 0, not_stored = 0;
  };

  // Errors as PrivateFolder::Open.
  static Result<std::shared_ptr<PreparedModelCache>> Open(const std::string& directory,
                                                          uint64_t limit_bytes);

  // What the file's contents are. Read once: later calls compare only its FileState, unless the
  // file was changed so shortly before that its time may not tell. kNotFound, kDataLoss.
  Result<ContentHash> HashOf(const std::string& path);
  static Result<FileState> StateOf(const std::string& path);

  // The name of an entry for contents, with everything else that it depends on.
  std::string KeyOf(const ContentHash& contents, std::string_view options) const;
  // Nothing when there is none, or when it is damaged: then it is removed.
  std::optional<GraphArchive> Find(const std::string& key);
  // A found entry turned out to be of no use.
  void Reject(const std::string& key);
  // Entries used longest ago go first where the limit would be passed.
  Status Store(const std::string& key, const std::vector<const Graph*>& graphs,
               std::string_view facts);
  Statistics statistics() const;

  // Where it is; others may keep files of theirs there.
  const std::shared_ptr<PrivateFolder>& folder() const { return folder_; }

 private:
  explicit PreparedModelCache(std::shared_ptr<PrivateFolder> folder) : folder_(std::move(folder)) {}
  std::string NoteName(const std::string& path) const;

  const std::shared_ptr<PrivateFolder> folder_;
  std::atomic<int64_t> hits_{0}, misses_{0}, damaged_{0}, stored_{0}, not_stored_{0};
};

}  // namespace onnxd
