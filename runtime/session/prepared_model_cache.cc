#include "runtime/session/prepared_model_cache.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>

#include "runtime/base/byte_stream.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEntrySuffix = ".prepared";
constexpr std::string_view kNoteSuffix = ".hash";
constexpr std::string_view kUnfinishedSuffix = ".unfinished";
// A time of the file system may be as much older than the change that it tells.
constexpr int64_t kUncertainNs = 2'000'000'000;
constexpr auto kUnfinishedAge = std::chrono::hours(1);

int64_t Nanoseconds(const timespec& time) {
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

int64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return Nanoseconds(now);
}

// As rename, but a file that is there already stays.
int LinkUnlessThere(const char* from, const char* to) {
  return link(from, to) == 0 || errno == EEXIST ? 0 : -1;
}

// Writes aside, then moves: readers see the whole file or none.
Status Publish(const std::string& path, FunctionRef<Status(const std::string&)> write,
               int (*move)(const char*, const char*) = rename) {
  // Containers that share the folder may have the same process numbers.
  static const uint64_t process = (uint64_t{std::random_device()()} << 32) | std::random_device()();
  static std::atomic<uint64_t> counter{0};
  const std::string aside = StrCat(path, ".", process, ".", counter++, kUnfinishedSuffix);
  Status status = write(aside);
  if (status.ok() && move(aside.c_str(), path.c_str()) != 0) {
    status = FailedPrecondition(StrCat("cannot make ", path, ": ", std::strerror(errno)));
  }
  unlink(aside.c_str());
  return status;
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
  std::error_code ignored;
  fs::create_directories(fs::path(directory).parent_path(), ignored);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return FailedPrecondition(
        StrCat("cannot make the cache folder ", directory, ": ", std::strerror(errno)));
  }
  struct stat info {};
  if (lstat(directory.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
      (info.st_mode & 022) != 0) {
    return FailedPrecondition(
        StrCat("the cache folder ", directory,
               " must be a folder of the user who runs this, and writable for that user alone"));
  }
  std::shared_ptr<PreparedModelCache> cache(new PreparedModelCache(directory, limit_bytes));
  ONNXD_RETURN_IF_ERROR(cache->ReadSecret());
  return cache;
}

// The first process makes it.
Status PreparedModelCache::ReadSecret() {
  const std::string path = StrCat(directory_, "/secret");
  for (int attempt = 0; attempt < 2; ++attempt) {
    auto secret = ReadFile(path, kHashSecretBytes);
    if (secret.ok() && secret->size() == kHashSecretBytes) {
      secret_ = std::move(*secret);
      return Status::Ok();
    }
    const HashSecret made = NewHashSecret();
    ONNXD_RETURN_IF_ERROR(Publish(
        path, [&](const std::string& aside) { return WriteFile(aside, made); }, LinkUnlessThere));
  }
  return FailedPrecondition(StrCat("cannot read ", path));
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

std::string PreparedModelCache::NotePath(const std::string& path) const {
  return StrCat(directory_, "/", HashBytes(path, secret_).Hex(), kNoteSuffix);
}

Result<ContentHash> PreparedModelCache::HashOf(const std::string& path) {
  ONNXD_ASSIGN_OR_RETURN(const FileState state, StateOf(path));
  ByteWriter known;
  known.Text(state.path);
  for (const uint64_t number : {state.device, state.inode, state.bytes}) known.Number(number);
  known.Number(state.modified_ns);
  known.Number(state.changed_ns);
  const std::string note_path = NotePath(state.path);
  if (const auto note = ReadFile(note_path, known.bytes().size() + sizeof(ContentHash));
      note.ok()) {
    ContentHash hash;
    if (note->size() == known.bytes().size() + sizeof(hash) && note->starts_with(known.bytes())) {
      std::memcpy(&hash, note->data() + known.bytes().size(), sizeof(hash));
      return hash;
    }
  }
  const int64_t begin = NowNs();
  ONNXD_ASSIGN_OR_RETURN(const auto source, OpenFile(path));
  ONNXD_ASSIGN_OR_RETURN(const ContentHash hash, HashSource(*source, secret_));
  ONNXD_ASSIGN_OR_RETURN(const FileState after, StateOf(path));
  if (after == state && begin - state.changed_ns > kUncertainNs) {
    known.Number(hash);
    const Status noted = Publish(
        note_path, [&](const std::string& aside) { return WriteFile(aside, known.bytes()); });
    if (!noted.ok()) LogWarning(noted.ToString());
  }
  return hash;
}

std::string PreparedModelCache::KeyOf(const ContentHash& contents, std::string_view options) const {
  return HashBytes(StrCat(contents.Hex(), "\n", BuildIdentity(), "\n", options), secret_).Hex();
}

std::string PreparedModelCache::EntryPath(const std::string& key) const {
  return StrCat(directory_, "/", key, kEntrySuffix);
}

std::optional<GraphArchive> PreparedModelCache::Find(const std::string& key) {
  const std::string path = EntryPath(key);
  auto archive = ReadGraphArchive(path);
  if (archive.ok()) {
    ++hits_;
    utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now
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
  const std::string path = EntryPath(key);
  LogWarning(StrCat("the cache entry ", path, " is of no use and removed"));
  unlink(path.c_str());
}

Status PreparedModelCache::Store(const std::string& key, const std::vector<const Graph*>& graphs,
                                 std::string_view facts) {
  const std::string path = EntryPath(key);
  const Status status = Publish(path, [&](const std::string& aside) -> Status {
    ONNXD_RETURN_IF_ERROR(WriteGraphArchive(aside, graphs, facts));
    std::error_code failed;
    const uint64_t bytes = fs::file_size(aside, failed);
    if (failed || bytes <= limit_bytes_) return Status::Ok();
    return ResourceExhausted(
        StrCat("the entry has ", bytes, " bytes, the cache may have ", limit_bytes_));
  });
  ++(status.ok() ? stored_ : not_stored_);
  if (status.ok()) Evict(path);
  return status;
}

// Also removes what a process left behind that died while it wrote.
void PreparedModelCache::Evict(const std::string& keep) {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code failed;
  for (const auto& file : fs::directory_iterator(directory_, failed)) {
    std::error_code gone;
    const std::string name = file.path().filename().string();
    const auto used = file.last_write_time(gone);
    const uint64_t bytes = gone ? 0 : file.file_size(gone);
    if (gone) continue;
    if (name.ends_with(kUnfinishedSuffix)) {
      if (fs::file_time_type::clock::now() - used > kUnfinishedAge) fs::remove(file.path(), gone);
      continue;
    }
    if (!name.ends_with(kEntrySuffix) && !name.ends_with(kNoteSuffix)) continue;
    total += bytes;
    if (file.path() != keep) entries.push_back({used, bytes, file.path()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_) break;
    if (fs::remove(entry.path, failed)) total -= entry.bytes;
  }
}

PreparedModelCache::Statistics PreparedModelCache::statistics() const {
  return {hits_, misses_, damaged_, stored_, not_stored_};
}

}  // namespace onnxd
