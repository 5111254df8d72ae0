// A GPU (or, with PoCL, the processor) through OpenCL. It needs shared virtual memory of coarse
// grain, which OpenCL 2.0 brought: addresses on the device are pointers.
#pragma once

#include <compare>
#include <memory>

#include "runtime/device/gpu_device.h"

namespace onnxd {

struct OpenClOptions {
  int device_id = 0;         // counts GPUs of all platforms; where there is none, other devices
  int64_t memory_limit = 0;  // bytes; 0: none
  bool searches_tactics = false;      // GpuDevice
  bool emulate_matrix_units = false;  // TF32 as well; for tests of kernels, see matrix_units.h
  bool emulate_warpgroup_units = false;  // likewise, see warpgroup_units.h
  auto operator<=>(const OpenClOptions&) const = default;
};

// The device, made on the first call with these options and kept: others have memory of their own.
// kUnavailable says why there is none. Any thread.
Result<std::shared_ptr<GpuDevice>> FindOpenClDevice(const OpenClOptions& options);

}  // namespace onnxd
