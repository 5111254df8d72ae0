#include "runtime/device/cuda/nvml.h"

#include <dlfcn.h>

#include "runtime/base/str_cat.h"

namespace onnxd::cuda {

Result<NvmlApi> LoadNvml(const std::string& path) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable(StrCat("NVML: cannot open ", path));
  NvmlApi nvml;
  const char* missing = nullptr;
#define ONNXD_NVML_LOAD(name, parameters)                                   \
  nvml.name = reinterpret_cast<decltype(nvml.name)>(dlsym(library, #name)); \
  if (nvml.name == nullptr) missing = #name;
  ONNXD_NVML_FUNCTIONS(ONNXD_NVML_LOAD)
#undef ONNXD_NVML_LOAD
  if (missing != nullptr) return Unavailable(StrCat("NVML: the library lacks ", missing));
  if (const int code = nvml.nvmlInit_v2(); code != 0) {
    return Unavailable(StrCat("NVML: nvmlInit failed with ", code));
  }
  return nvml;
}

Result<const NvmlApi*> OpenNvml() {
  static const Result<NvmlApi> nvml = LoadNvml("libnvidia-ml.so.1");
  if (!nvml.ok()) return nvml.status();
  return &*nvml;
}

GpuReadings ReadGpu(const NvmlApi& nvml, const std::string& bus_id) {
  GpuReadings readings;
  ::nvmlDevice_st* device = nullptr;
  if (nvml.nvmlDeviceGetHandleByPciBusId_v2(bus_id.c_str(), &device) != 0) return readings;
  NvmlUtilization utilization{};
  if (nvml.nvmlDeviceGetUtilizationRates(device, &utilization) == 0) {
    readings.utilization = utilization.gpu / 100.0;
  }
  unsigned milliwatts = 0;
  if (nvml.nvmlDeviceGetPowerUsage(device, &milliwatts) == 0) {
    readings.power_watts = milliwatts / 1000.0;
  }
  NvmlMemory memory{};
  if (nvml.nvmlDeviceGetMemoryInfo(device, &memory) == 0) {
    readings.used_bytes = static_cast<int64_t>(memory.used);
  }
  return readings;
}

}  // namespace onnxd::cuda
