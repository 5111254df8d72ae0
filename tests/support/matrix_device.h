// A device for kernels of matrix units.
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/opencl/opencl_device.h"

namespace onnxd {

// The machine's NVIDIA GPU, without NVIDIA's libraries, where it has one of compute capability 9.0;
// else the emulation that `options` ask for.
inline Result<std::shared_ptr<GpuDevice>> FindMatrixDevice(const OpenClOptions& options) {
  static std::mutex mutex;
  static auto* const gpus = new std::map<OpenClOptions, std::shared_ptr<GpuDevice>>();
  std::lock_guard lock(mutex);
  std::shared_ptr<GpuDevice>& gpu = (*gpus)[options];
  if (gpu != nullptr) return gpu;
  const auto driver = cuda::OpenDriver();
  const auto nvrtc = cuda::OpenNvrtc();
  if (driver.ok() && nvrtc.ok()) {
    CudaOptions of_cuda;
    of_cuda.use_tf32 = options.emulate_matrix_units;
    of_cuda.searches_tactics = options.searches_tactics;
    const auto found = MakeCudaDevice(**driver, **nvrtc, {}, of_cuda);
    if (found.ok() && (*found)->properties().compute_capability == 90) return gpu = *found;
  }
  return FindOpenClDevice(options);
}

}  // namespace onnxd
