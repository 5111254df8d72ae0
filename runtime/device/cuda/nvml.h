// What NVIDIA's management library tells of a GPU, declared here and opened at run time. NVIDIA,
// "NVML API Reference"; a test compares the declarations with its header where that is installed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/base/status.h"

struct nvmlDevice_st;

namespace onnxd::cuda {

struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlMemory {
  unsigned long long total, free, used;
};

// FUNCTION(name, parameters); all answer a code, 0 for success.
#define ONNXD_NVML_FUNCTIONS(FUNCTION)                                          \
  FUNCTION(nvmlInit_v2, ())                                                     \
  FUNCTION(nvmlDeviceGetHandleByPciBusId_v2, (const char*, ::nvmlDevice_st**))  \
  FUNCTION(nvmlDeviceGetUtilizationRates, (::nvmlDevice_st*, NvmlUtilization*)) \
  FUNCTION(nvmlDeviceGetMemoryInfo, (::nvmlDevice_st*, NvmlMemory*))            \
  FUNCTION(nvmlDeviceGetPowerUsage, (::nvmlDevice_st*, unsigned*))

struct NvmlApi {
#define ONNXD_NVML_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ONNXD_NVML_FUNCTIONS(ONNXD_NVML_MEMBER)
#undef ONNXD_NVML_MEMBER
};

// The library at `path`, initialised. kUnavailable says what is missing.
Result<NvmlApi> LoadNvml(const std::string& path);
// That of this machine, opened on the first call and kept. Any thread.
Result<const NvmlApi*> OpenNvml();

struct GpuReadings {
  std::optional<double> utilization;  // 0 to 1
  std::optional<double> power_watts;
  std::optional<int64_t> used_bytes;
};

// Of the GPU with that PCI bus id; what it does not tell is left out.
GpuReadings ReadGpu(const NvmlApi& nvml, const std::string& bus_id);

}  // namespace onnxd::cuda
