// GpuDevice: a device that compiles kernels from source (dialect.h) and runs them.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/device/device_library.h"
#include "runtime/device/dialect.h"
#include "runtime/device/program_cache.h"
#include "runtime/tensor/device.h"

namespace onnxd {

// An entry point of a compiled program. Immutable, any thread; lives as long as its device.
class DeviceKernel {
 public:
  virtual ~DeviceKernel() = default;
};

// How many groups of how many lanes run a kernel, along three axes.
struct LaunchGrid {
  std::array<uint32_t, 3> groups = {1, 1, 1};
  std::array<uint32_t, 3> lanes = {1, 1, 1};
  size_t room_bytes = 0;  // of the kernel's LOCAL_ROOM

  // At least `count` lanes along one axis.
  static LaunchGrid Over(int64_t count, uint32_t lanes = 256);
};

// Describes a matrix of 16-bit elements to COPY_TILE, see warpgroup_units.h. Source: NVIDIA, "CUDA
// Driver API", CUtensorMap.
struct TileMap {
  alignas(128) std::array<uint64_t, 16> words = {};
};

// The arguments of a kernel in their order: addresses on the device, and values that are copied.
class LaunchArguments {
 public:
  static constexpr size_t kMostArguments = 48;
  static constexpr size_t kMostBytes = 128;

  struct Argument {
    bool is_pointer;
    size_t bytes;
    alignas(8) std::byte value[kMostBytes];
  };

  LaunchArguments& Pointer(const void* address) {
    Argument& argument = Next(true, sizeof(address));
    std::memcpy(argument.value, &address, sizeof(address));
    return *this;
  }
  template <typename T>
  LaunchArguments& Value(const T& value) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kMostBytes);
    std::memcpy(Next(false, sizeof(value)).value, &value, sizeof(value));
    return *this;
  }

  size_t size() const { return size_; }
  const Argument& operator[](size_t i) const { return arguments_[i]; }

 private:
  Argument& Next(bool is_pointer, size_t bytes) {
    Argument& argument = arguments_.at(size_++);
    argument.is_pointer = is_pointer;
    argument.bytes = bytes;
    return argument;
  }

  size_t size_ = 0;
  std::array<Argument, kMostArguments> arguments_;
};

class GpuStream : public Stream {
 public:
  virtual Status Launch(const DeviceKernel& kernel, const LaunchGrid& grid,
                        const LaunchArguments& arguments) = 0;
};

struct GpuProperties {
  std::string description;  // as its maker calls it
  int64_t memory_bytes = 0;
  int multiprocessors = 1;
  int64_t local_bytes = 0;     // of one group
  int64_t room_bytes = 0;      // of one group that has nothing but a LOCAL_ROOM
  int compute_capability = 0;  // of CUDA: 90 for 9.0
  bool computes_double = true;
  bool has_matrix_units = false;     // or emulates them for tests, see matrix_units.h
  bool has_warpgroup_units = false;  // likewise, see warpgroup_units.h
  bool use_tf32 = false;             // the user lets these round operands of f32
};

class GpuDevice : public Device {
 public:
  virtual Dialect dialect() const = 0;
  virtual const GpuProperties& properties() const = 0;

  // The entry point `name` of `source`, which is compiled on the first call. kInternal says what
  // the compiler said: sources are this program's own.
  Result<std::shared_ptr<const DeviceKernel>> FindKernel(const std::string& source,
                                                         const std::string& name);
  // Where compiled programs, and what was fastest, are found and put; before the first FindKernel.
  void SetProgramCache(std::shared_ptr<ProgramCache> cache);

  // Of `rows` rows of `columns` elements, dense and at a multiple of 16 bytes, from which tiles of
  // 64 elements of `tile_rows` rows are copied, zeros where there are none. Empty where no kernel
  // reads it; kInternal says what the driver did not take.
  virtual Result<TileMap> MakeTileMap(const void*, int64_t /*rows*/, int64_t /*columns*/,
                                      int64_t /*tile_rows*/) const {
    return TileMap();
  }

  // Bytes of the host on the device, there when the call returns: tables that kernels read.
  Result<DeviceBuffer> Upload(std::span<const std::byte> bytes);

  // Whether ways of computing the same are to be timed.
  bool searches_tactics() const { return searches_tactics_; }
  void set_searches_tactics(bool searches) { searches_tactics_ = searches; }
  // What was fastest by an earlier timing here, or in the cache.
  std::optional<std::string> FindFastest(const std::string& question);
  void StoreFastest(const std::string& question, const std::string& answer);

  // Added before the device is used.
  const std::vector<std::shared_ptr<DeviceLibrary>>& libraries() const { return libraries_; }
  void AddLibrary(std::shared_ptr<DeviceLibrary> library) {
    libraries_.push_back(std::move(library));
  }

  // All sources so far, without the prelude.
  std::vector<std::string> sources() const;

 protected:
  // A program's entry points, made from its whole text.
  class Program {
   public:
    virtual ~Program() = default;
    virtual Result<std::shared_ptr<const DeviceKernel>> FindKernel(const std::string& name) = 0;
  };
  // `binary`: set to what LoadBinary takes, where it is not null.
  virtual Result<std::unique_ptr<Program>> Compile(const std::string& text,
                                                   std::string* binary) = 0;
  virtual Result<std::unique_ptr<Program>> LoadBinary(const std::string& binary) = 0;
  // All that binaries depend on, but their text.
  virtual std::string CompilerIdentity() const = 0;

 private:
  struct Entry {
    std::mutex mutex;
    std::unique_ptr<Program> program;                                    // guarded by mutex
    std::map<std::string, std::shared_ptr<const DeviceKernel>> kernels;  // guarded by mutex
  };
  Result<std::unique_ptr<Program>> FindProgram(const std::string& text);

  mutable std::mutex mutex_;
  std::shared_ptr<ProgramCache> cache_;                     // guarded by mutex_
  std::map<std::string, std::shared_ptr<Entry>> programs_;  // by source; guarded by mutex_
  std::map<std::string, std::string> fastest_;              // by question; guarded by mutex_
  std::atomic<bool> searches_tactics_ = false;
  std::vector<std::shared_ptr<DeviceLibrary>> libraries_;
};

}  // namespace onnxd
