// Device: a memory apart from the host's, such as a GPU's. Stream: what is done there, in order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
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
  // Waits until all is done.
  virtual Status Synchronize() = 0;

  // Where kernels of this stream write what went wrong; on the device.
  virtual void* failure_word() const = 0;
  // Synchronizes, reads that and clears it.
  virtual Result<DeviceFailure> TakeFailure() = 0;
};

// Lives as long as the process; any thread.
class Device {
 public:
  virtual ~Device() = default;

  virtual std::string_view name() const = 0;  // "cuda:0", "opencl:0"
  // Uninitialised, aligned to 256 bytes. kResourceExhausted beyond the device's limit.
  virtual Result<DeviceBuffer> Allocate(size_t bytes) = 0;
  // Memory of the host from which copies run beside computation.
  virtual Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) = 0;
  virtual Result<std::unique_ptr<Stream>> MakeStream() = 0;
  // Whether it stopped working: everything on it is gone, and calls answer kUnavailable.
  virtual bool lost() const = 0;
};

}  // namespace onnxd
