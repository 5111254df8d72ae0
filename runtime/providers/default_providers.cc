#include "runtime/providers/default_providers.h"

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/cpu/cpu_provider.h"
#include "runtime/providers/gpu/gpu_provider.h"

namespace onnxd {
namespace {

using Provider = std::shared_ptr<const ExecutionProvider>;

// Null where the machine has no such device.
Result<Provider> FindProvider(const std::string& name) {
  if (name == "cpu") {
    static const Provider cpu = MakeCpuProvider();
    return cpu;
  }
  if (name == "cuda") {
    ONNXD_ASSIGN_OR_RETURN(auto device, FindCudaDevice({}));
    return MakeGpuProvider(name, std::move(device));
  }
  if (name == "opencl") {
    ONNXD_ASSIGN_OR_RETURN(auto device, FindOpenClDevice({}));
    return MakeGpuProvider(name, std::move(device));
  }
  return InvalidArgument(
      StrCat("unknown provider '", name, "'; this build has: cpu, cuda, opencl"));
}

}  // namespace

Result<std::vector<Provider>> MakeProviders(const std::vector<std::string>& names) {
  std::vector<Provider> providers;
  const auto listed = [&](std::string_view name) {
    for (const Provider& provider : providers) {
      if (provider->name() == name) return true;
    }
    return false;
  };
  for (const std::string& name : names) {
    if (listed(name)) continue;
    auto provider = FindProvider(name);
    if (provider.ok()) {
      Device* const device = (*provider)->device();
      for (const Provider& other : providers) {
        if (device == nullptr || other->device() == nullptr || other->device() == device) continue;
        return InvalidArgument(StrCat("providers ", other->name(), " and ", name,
                                      " have different devices: a session uses one"));
      }
      providers.push_back(std::move(*provider));
    } else if (provider.status().code() == StatusCode::kUnavailable) {
      LogWarning(StrCat("provider ", name, " is left out: ", provider.status().message()));
    } else {
      return provider.status();
    }
  }
  if (!listed("cpu")) providers.push_back(*FindProvider("cpu"));
  return providers;
}

}  // namespace onnxd
