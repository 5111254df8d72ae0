#include "runtime/session/prepared_model_cache.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "runtime/base/byte_stream.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntrySuffix = ".prepared";
constexpr std::string_view kNoteSuffix = ".hash";
// A time of the file system may be as much older than the change that it tells.
constexpr int64_t kUncertainNs = 2'000'000'000;

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

// The program: another build may pack otherwise.
std::string BuildIdentity() {
  static const std::string identity = [] {
    struct stat info {};
    if (stat("/proc/self/exe", &info) != 0) return std::string("unknown");
    return StrCat(info.st_size, " ", Nanoseconds(info.st_mtim));
  }();
  return identity;
}

}  // namespace

Result<std::shared_ptr<PreparedModelCache>> PreparedModelCache::Open(const std::string& directory,
                                                                     uint64_t limit_bytes) {
  ONNXD_ASSIGN_OR_RETURN(auto folder, PrivateFolder::Open(directory, limit_bytes));
  return std::shared_ptr<PreparedModelCache>(new PreparedModelCache(std::move(folder)));
}

Result<FileState> PreparedModelCache::StateOf(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return NotFound(StrCat("no such file: ", path));
  FileState state;
  std::error_code failed;
  state.path = fs::absolute(path, failed).string();
  state.device = info.st_dev;
  state.inode = info.st_ino;
  state.bytes = static_cast<uint64_t>(info.st_size);
  state.modified_ns = Nanoseconds(info.st_mtim);
  state.changed_ns = Nanoseconds(info.st_ctim);
  return state;
}

std::string PreparedModelCache::NoteName(const std::string& path) const {
  return StrCat(HashBytes(path, folder_->secret()).Hex(), kNoteSuffix);
}

Result<ContentHash> PreparedModelCache::HashOf(const std::string& path) {
  ONNXD_ASSIGN_OR_RETURN(const FileState state, StateOf(path));
  ByteWriter known;
  known.Text(state.path);
  for (const uint64_t number : {state.device, state.inode, state.bytes}) known.Number(number);
  known.Number(state.modified_ns);
  known.Number(state.changed_ns);
  const std::string note_name = NoteName(state.path);
  if (const auto note =
          ReadFile(folder_->PathOf(note_name), known.bytes().size() + sizeof(ContentHash));
      note.ok()) {
    ContentHash hash;
    if (note->size() == known.bytes().size() + sizeof(hash) && note->starts_with(known.bytes())) {
      std::memcpy(&hash, note->data() + known.bytes().size(), sizeof(hash));
      return hash;
    }
  }
  const int64_t begin = NowNs();
  ONNXD_ASSIGN_OR_RETURN(const auto source, OpenFile(path));
  ONNXD_ASSIGN_OR_RETURN(const ContentHash hash, HashSource(*source, folder_->secret()));
  ONNXD_ASSIGN_OR_RETURN(const FileState after, StateOf(path));
  if (after == state && begin - state.changed_ns > kUncertainNs) {
    known.Number(hash);
    const Status noted = folder_->Write(
        note_name, [&](const std::string& aside) { return WriteFile(aside, known.bytes()); });
    if (!noted.ok()) LogWarning(noted.ToString());
  }
  return hash;
}

std::string PreparedModelCache::KeyOf(const ContentHash& contents, std::string_view options) const {
  return HashBytes(StrCat(contents.Hex(), "\n", BuildIdentity(), "\n", options), folder_->secret())
      .Hex();
}

std::optional<GraphArchive> PreparedModelCache::Find(const std::string& key) {
  const std::string name = StrCat(key, kEntrySuffix);
  auto archive = ReadGraphArchive(folder_->PathOf(name));
  if (archive.ok()) {
    ++hits_;
    folder_->Touch(name);
    return std::move(*archive);
  }
  if (archive.status().code() == StatusCode::kNotFound) {
    ++misses_;
  } else {
    Reject(key);
  }
  return std::nullopt;
}

void PreparedModelCache::Reject(const std::string& key) {
  ++damaged_;
  const std::string name = StrCat(key, kEntrySuffix);
  LogWarning(StrCat("the cache entry ", folder_->PathOf(name), " is of no use and removed"));
  folder_->Remove(name);
}

Status PreparedModelCache::Store(const std::string& key, const std::vector<const Graph*>& graphs,
                                 std::string_view facts) {
  const std::string name = StrCat(key, kEntrySuffix);
  const Status status = folder_->Write(name, [&](const std::string& aside) -> Status {
    ONNXD_RETURN_IF_ERROR(WriteGraphArchive(aside, graphs, facts));
    std::error_code failed;
    const uint64_t bytes = fs::file_size(aside, failed);
    if (failed || bytes <= folder_->limit_bytes()) return Status::Ok();
    return ResourceExhausted(
        StrCat("the entry has ", bytes, " bytes, the cache may have ", folder_->limit_bytes()));
  });
  ++(status.ok() ? stored_ : not_stored_);
  if (status.ok()) folder_->Evict(name);
  return status;
}

PreparedModelCache::Statistics PreparedModelCache::statistics() const {
  return {hits_, misses_, damaged_, stored_, not_stored_};
}

}  // namespace onnxd
