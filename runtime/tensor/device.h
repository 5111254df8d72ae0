// Device: a memory apart from the host's, such as a GPU's. Stream: what is done there, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "runtime/base/status.h"

namespace onnxd {

// Bytes on a device. Frees itself there; whoever lets go of it has seen the streams that use it
// end.
using DeviceBuffer = std::shared_ptr<void>;

// What went wrong in a kernel that reads indices from data: the first that a stream saw.
struct DeviceFailure {
  uint32_t step = 0;  // of the plan, see KernelContext::step
  uint32_t code = 0;  // the kernel's own; 0: nothing
  int64_t value = 0;  // the index at fault
};

// Rows of `bytes` each, of which every next one begins so many bytes behind the one before.
struct CopiedRows {
  void* to;
  size_t to_pitch;
  const void* from;
  size_t from_pitch;
  size_t bytes, rows;
};

// Work that a stream recorded, to be done again by one call.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Work in the order of the calls, which return before it is done. One thread at a time. A call that
// fails with kUnavailable means that the device is lost (Device::lost).
class Stream {
 public:
  virtual ~Stream() = default;

  // `from` may be written again when the call returns, unless it is pinned
  // (Device::AllocatePinned): then when the copy is done.
  virtual Status CopyIn(void* to, const void* from, size_t bytes) = 0;
  // The bytes are there after Synchronize.
  virtual Status CopyOut(void* to, const void* from, size_t bytes) = 0;
  virtual Status CopyWithin(void* to, const void* from, size_t bytes) = 0;
  // Requires pitches of `bytes` and more. Not recorded.
  virtual Status CopyRowsWithin(const CopiedRows& rows);
  // Not recorded.
  virtual Status Zero(void* to, size_t bytes);
  // Waits until all is done.
  virtual Status Synchronize() = 0;

  // Until EndRecording, kernels and copies within the device are not done but recorded, with the
  // addresses and arguments of the calls; other calls fail. kUnimplemented: the device records
  // nothing.
  virtual Status BeginRecording() { return Unimplemented("the device records nothing"); }
  // Ends it also where it fails: then nothing of it was done.
  virtual Result<std::unique_ptr<DeviceGraph>> EndRecording() {
    return Unimplemented("the device records nothing");
  }
  // Enqueues what this stream recorded.
  virtual Status Replay(const DeviceGraph&) { return Unimplemented("the device records nothing"); }

  // Where kernels of this stream write what went wrong; on the device.
  virtual void* failure_word() const = 0;
  // Synchronizes, reads that and clears it.
  virtual Result<DeviceFailure> TakeFailure() = 0;
};

// What monitoring wants to know of a device.
struct DeviceStatistics {
  int64_t memory_bytes = 0;            // that it has
  int64_t used_bytes = 0;              // of buffers here that are in use
  int64_t kept_bytes = 0;              // that are kept for later ones
  std::optional<double> utilization;   // 0 to 1, by whomever
  std::optional<double> power_watts;   //
  std::optional<int64_t> total_bytes;  // in use by all processes
};

// Lives as long as the process; any thread.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;  // "cuda:0", "opencl:0"
  // Uninitialised, aligned to 256 bytes. kResourceExhausted beyond the device's limit.
  virtual Result<DeviceBuffer> Allocate(size_t bytes) = 0;
  // Memory of the host from which copies run beside computation. Kept when it is freed, for the
  // next that asks: kResourceExhausted beyond what a device may so take.
  virtual Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) = 0;
  virtual Result<std::unique_ptr<Stream>> MakeStream() = 0;
  // Whether it stopped working: everything on it is gone, and calls answer kUnavailable.
  virtual bool lost() const = 0;
  // The failure that said so; OK while it works.
  virtual Status loss() const { return Status::Ok(); }
  virtual DeviceStatistics statistics() const { return {}; }
};

}  // namespace onnxd
