#include "runtime/base/private_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <random>
#include <vector>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kUnfinishedSuffix = ".unfinished";
constexpr auto kUnfinishedAge = std::chrono::hours(1);

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

}  // namespace

Result<std::shared_ptr<PrivateFolder>> PrivateFolder::Open(const std::string& directory,
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
  std::shared_ptr<PrivateFolder> folder(new PrivateFolder(directory, limit_bytes));
  ONNXD_RETURN_IF_ERROR(folder->ReadSecret());
  return folder;
}

// The first process makes it.
Status PrivateFolder::ReadSecret() {
  const std::string path = PathOf("secret");
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

std::string PrivateFolder::PathOf(std::string_view name) const {
  return StrCat(directory_, "/", name);
}

Status PrivateFolder::Write(std::string_view name,
                            FunctionRef<Status(const std::string& path)> write) {
  return Publish(PathOf(name), write);
}

void PrivateFolder::Touch(std::string_view name) {
  utimensat(AT_FDCWD, PathOf(name).c_str(), nullptr, 0);
}

void PrivateFolder::Remove(std::string_view name) { unlink(PathOf(name).c_str()); }

void PrivateFolder::Evict(std::string_view keep) {
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
    if (name.find('.') == std::string::npos) continue;
    total += bytes;
    if (name != keep) entries.push_back({used, bytes, file.path()});
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.used < b.used; });
  for (const Entry& entry : entries) {
    if (total <= limit_bytes_) break;
    if (fs::remove(entry.path, failed)) total -= entry.bytes;
  }
}

}  // namespace onnxd
