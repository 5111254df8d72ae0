// SharedMemory: regions of POSIX shared memory that clients on this machine register by name, for
// inputs to be read from and outputs written to.
// Source: https://github.com/triton-inference-server/server,
// docs/protocol/extension_shared_memory.md
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>

#include "runtime/base/status.h"

namespace onnxd {

// Bytes are copied, with calls that fail where a client has cut its memory short; nothing is
// mapped. Any thread.
class SharedMemory {
 public:
  struct Region {
    std::string name, key;
    uint64_t offset = 0, bytes = 0;
  };

  // `enabled`: server.shared_memory. Otherwise every call answers kUnimplemented.
  explicit SharedMemory(bool enabled) : enabled_(enabled) {}

  // `key` as shm_open has it. kInvalidArgument for keys that name no shared memory, and for a size
  // beyond its end; kAlreadyExists; kResourceExhausted beyond 1,024 regions.
  Status Register(const Region& region);
  // An empty name: all of them. A name that is not there is none the less gone.
  Status Unregister(const std::string& name);
  // An empty name: all of them.
  Result<std::map<std::string, Region>> Regions(const std::string& name) const;

  // Whether a region has so many bytes from `offset` on: kInvalidArgument.
  Status Check(const std::string& region, uint64_t offset, uint64_t bytes) const {
    return Find(region, offset, bytes).status();
  }
  // Reads `bytes.size()` bytes of a region from `offset` on.
  Status Read(const std::string& region, uint64_t offset, std::span<std::byte> bytes) const;
  Status Write(const std::string& region, uint64_t offset, std::span<const std::byte> bytes) const;

 private:
  struct Open;
  Result<std::shared_ptr<const Open>> Find(const std::string& region, uint64_t offset,
                                           uint64_t bytes) const;

  const bool enabled_;
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Open>> open_;  // guarded by mutex_
};

}  // namespace onnxd
