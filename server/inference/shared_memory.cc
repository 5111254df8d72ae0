#include "server/inference/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <limits>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostRegions = 1024;
constexpr size_t kMostNameBytes = 256;

bool Fits(uint64_t offset, uint64_t bytes, uint64_t size) {
  return offset <= size && bytes <= size - offset;
}

// Moves all bytes or fails; `move` is pread or pwrite.
template <typename Move, typename Byte>
Status MoveAll(Move move, int descriptor, std::span<Byte> bytes, uint64_t offset,
               const std::string& region) {
  while (!bytes.empty()) {
    const ssize_t moved = move(descriptor, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) {
      return InvalidArgument(
          StrCat("shared memory region '", region, "' has become shorter than it was"));
    }
    bytes = bytes.subspan(static_cast<size_t>(moved));
    offset += static_cast<uint64_t>(moved);
  }
  return Status::Ok();
}

}  // namespace

struct SharedMemory::Open {
  Region region;
  int descriptor = -1;
  ~Open() {
    if (descriptor >= 0) close(descriptor);
  }
  // Whether the memory still reaches as far: what is written beyond would grow it.
  bool Reaches(uint64_t end) const {
    struct stat info {};
    return fstat(descriptor, &info) == 0 && static_cast<uint64_t>(info.st_size) >= end;
  }
};

Status SharedMemory::Register(const Region& region) {
  if (!enabled_) return Unimplemented("shared memory is off: server.shared_memory");
  if (region.name.empty() || region.name.size() > kMostNameBytes ||
      region.key.size() > kMostNameBytes || region.bytes == 0 ||
      region.offset > static_cast<uint64_t>(std::numeric_limits<off_t>::max()) ||
      !Fits(region.offset, region.bytes, std::numeric_limits<off_t>::max())) {
    return InvalidArgument("a region needs a name, a key, and a size above 0");
  }
  // shm_open(3): one slash, at the begin.
  const std::string key = region.key.starts_with('/') ? region.key : "/" + region.key;
  if (key.size() < 2 || key.find('/', 1) != std::string::npos || key == "/." || key == "/..") {
    return InvalidArgument("the key names no shared memory");
  }
  auto open = std::make_shared<Open>();
  open->region = region;
  open->descriptor = shm_open(key.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK, 0);
  if (open->descriptor < 0) {
    return InvalidArgument(StrCat("shared memory '", region.key, "' cannot be opened"));
  }
  struct stat info {};
  if (fstat(open->descriptor, &info) != 0 || !S_ISREG(info.st_mode) ||
      !Fits(region.offset, region.bytes, static_cast<uint64_t>(info.st_size))) {
    return InvalidArgument(StrCat("shared memory '", region.key, "' ends before offset ",
                                  region.offset, " and ", region.bytes, " bytes"));
  }
  std::lock_guard lock(mutex_);
  if (open_.size() >= kMostRegions) return ResourceExhausted("too many shared memory regions");
  if (!open_.try_emplace(region.name, std::move(open)).second) {
    return Status(StatusCode::kAlreadyExists,
                  StrCat("shared memory region '", region.name, "' is registered already"));
  }
  return Status::Ok();
}

Status SharedMemory::Unregister(const std::string& name) {
  if (!enabled_) return Unimplemented("shared memory is off: server.shared_memory");
  std::lock_guard lock(mutex_);
  if (name.empty()) {
    open_.clear();
  } else {
    open_.erase(name);
  }
  return Status::Ok();
}

Result<std::map<std::string, SharedMemory::Region>> SharedMemory::Regions(
    const std::string& name) const {
  std::map<std::string, Region> regions;
  std::lock_guard lock(mutex_);
  for (const auto& [known, open] : open_) {
    if (name.empty() || name == known) regions.emplace(known, open->region);
  }
  if (!name.empty() && regions.empty()) {
    return NotFound(StrCat("no shared memory region '", name.substr(0, 64), "'"));
  }
  return regions;
}

Result<std::shared_ptr<const SharedMemory::Open>> SharedMemory::Find(const std::string& region,
                                                                     uint64_t offset,
                                                                     uint64_t bytes) const {
  if (!enabled_) return Unimplemented("shared memory is off: server.shared_memory");
  std::lock_guard lock(mutex_);
  const auto found = open_.find(region);
  if (found == open_.end()) {
    return InvalidArgument(StrCat("no shared memory region '", region.substr(0, 64), "'"));
  }
  if (!Fits(offset, bytes, found->second->region.bytes)) {
    return InvalidArgument(StrCat("shared memory region '", region, "' has ",
                                  found->second->region.bytes, " bytes, not ", bytes, " from ",
                                  offset, " on"));
  }
  return found->second;
}

Status SharedMemory::Read(const std::string& region, uint64_t offset,
                          std::span<std::byte> bytes) const {
  ONNXD_ASSIGN_OR_RETURN(const auto open, Find(region, offset, bytes.size()));
  return MoveAll(pread, open->descriptor, bytes, open->region.offset + offset, region);
}

Status SharedMemory::Write(const std::string& region, uint64_t offset,
                           std::span<const std::byte> bytes) const {
  ONNXD_ASSIGN_OR_RETURN(const auto open, Find(region, offset, bytes.size()));
  const uint64_t begin = open->region.offset + offset;
  if (!open->Reaches(begin + bytes.size())) {
    return InvalidArgument(
        StrCat("shared memory region '", region, "' has become shorter than it was"));
  }
  return MoveAll(pwrite, open->descriptor, bytes, begin, region);
}

}  // namespace onnxd
