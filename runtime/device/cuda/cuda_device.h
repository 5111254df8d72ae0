// An NVIDIA GPU through its driver and NVRTC.
#pragma once

#include <compare>
#include <functional>
#include <memory>

#include "runtime/device/cuda/cublaslt.h"
#include "runtime/device/cuda/cuda_driver.h"
#include "runtime/device/cuda/cudnn.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/gpu_device.h"

namespace onnxd {

struct CudaOptions {
  int device_id = 0;
  int64_t memory_limit = 0;  // bytes; 0: none
  int stream_priority = 0;  // as CUDA counts: lower numbers go first; clamped to the device's range
  bool use_tf32 = false;    // GpuProperties
  bool searches_tactics = false;          // GpuDevice
  int64_t max_workspace_size = 32 << 20;  // bytes that a library may take for one node
  auto operator<=>(const CudaOptions&) const = default;
};

// The device, made on the first call with these options and kept: others have memory and streams of
// their own, in the same context.
// kUnavailable says why there is none: no driver, no NVRTC, no such GPU. Any thread.
Result<std::shared_ptr<GpuDevice>> FindCudaDevice(const CudaOptions& options);

// NVIDIA's libraries, where they are there.
struct CudaLibraries {
  const cuda::CublasLtApi* cublaslt = nullptr;
  std::function<const cuda::CudnnApi*()> open_cudnn = nullptr;  // see MakeCudnnLibrary
};

// A device of this driver and compiler, which must outlive it, as the libraries must.
Result<std::shared_ptr<GpuDevice>> MakeCudaDevice(const cuda::DriverApi& driver,
                                                  const cuda::NvrtcApi& nvrtc,
                                                  const CudaLibraries& libraries,
                                                  const CudaOptions& options);

}  // namespace onnxd
