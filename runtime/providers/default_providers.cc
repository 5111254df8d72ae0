#include "runtime/providers/default_providers.h"

#include <algorithm>
#include <mutex>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/plugin/plugin.h"
#include "runtime/providers/cpu/cpu_provider.h"
#include "runtime/providers/fused/fused_provider.h"
#include "runtime/providers/gpu/gpu_provider.h"

namespace onnxd {
namespace {

using Provider = std::shared_ptr<const ExecutionProvider>;

struct Used {
  std::mutex mutex;
  std::vector<std::shared_ptr<Device>> devices;  // guarded by mutex
};

Used& AllUsed() {
  static auto* const used = new Used();
  return *used;
}

// Says once of each what it is, and gives it the cache.
void Introduce(const std::shared_ptr<GpuDevice>& device, const ProviderOptions& options) {
  Used& used = AllUsed();
  std::lock_guard lock(used.mutex);
  if (std::find(used.devices.begin(), used.devices.end(), device) != used.devices.end()) return;
  used.devices.push_back(device);
  device->SetProgramCache(options.program_cache);
  const GpuProperties& properties = device->properties();
  LogInfo(StrCat("device ", device->name(), ": ", properties.description, ", ",
                 properties.memory_bytes >> 20, " MiB, ", properties.multiprocessors,
                 " multiprocessors"));
}

Result<std::shared_ptr<GpuDevice>> FindDevice(const std::string& name,
                                              const ProviderOptions& options) {
  auto device =
      name == "cuda"
          ? FindCudaDevice({options.device_id, options.gpu_mem_limit, options.stream_priority,
                            options.use_tf32, options.searches_tactics, options.max_workspace_size})
          : FindOpenClDevice({options.device_id, options.gpu_mem_limit, options.searches_tactics});
  if (device.ok()) Introduce(*device, options);
  return device;
}

// That of the first of these names that has one, else the first that the machine has.
Result<std::shared_ptr<GpuDevice>> FindFusedDevice(std::span<const std::string> names,
                                                   const ProviderOptions& options) {
  for (const std::string& name : names) {
    if (name == "cuda" || name == "opencl") return FindDevice(name, options);
  }
  auto device = FindDevice("cuda", options);
  return device.ok() ? std::move(device) : FindDevice("opencl", options);
}

// Those of plug-ins are opened once for each set of options.
Result<Provider> FindPluginProvider(const Plugin& plugin, const PluginOptions& options) {
  struct Opened {
    std::mutex mutex;
    std::map<std::pair<const OnnxdExecutionProvider*, PluginOptions>, Provider> providers;
  };
  static auto* const opened = new Opened();
  std::lock_guard lock(opened->mutex);
  Provider& known = opened->providers[{plugin.provider, options}];
  if (known != nullptr) return known;
  ONNXD_ASSIGN_OR_RETURN(known, OpenPluginProvider(plugin.name, *plugin.provider, options));
  if (known->device() != nullptr) {
    Used& used = AllUsed();
    std::lock_guard lock_used(used.mutex);
    used.devices.push_back(std::shared_ptr<Device>(known, known->device()));
  }
  return known;
}

Result<Provider> FindInPlugins(const std::string& name, const ProviderOptions& options) {
  std::string known = "cpu, cuda, fused, opencl";
  for (const auto& plugin : options.plugins) {
    if (plugin->provider == nullptr) continue;
    if (plugin->provider->name == name) return FindPluginProvider(*plugin, options.plugin_options);
    known += StrCat(", ", plugin->provider->name);
  }
  return InvalidArgument(StrCat("unknown provider '", name, "'; here are: ", known));
}

// kUnavailable where the machine has no such device. `following`: the names behind this one.
Result<Provider> FindProvider(const std::string& name, std::span<const std::string> following,
                              const ProviderOptions& options) {
  if (name == "cpu") {
    static const Provider cpu = MakeCpuProvider();
    return cpu;
  }
  if (name == "fused") {
    ONNXD_ASSIGN_OR_RETURN(auto device, FindFusedDevice(following, options));
    return MakeFusedProvider(std::move(device), options.float_layers);
  }
  if (name == "cuda" || name == "opencl") {
    ONNXD_ASSIGN_OR_RETURN(auto device, FindDevice(name, options));
    return MakeGpuProvider(name, std::move(device));
  }
  return FindInPlugins(name, options);
}

}  // namespace

std::vector<std::shared_ptr<Device>> UsedDevices() {
  Used& used = AllUsed();
  std::lock_guard lock(used.mutex);
  return used.devices;
}

Result<std::vector<Provider>> MakeProviders(const std::vector<std::string>& names,
                                            const ProviderOptions& options) {
  std::vector<Provider> providers;
  const auto listed = [&](std::string_view name) {
    for (const Provider& provider : providers) {
      if (provider->name() == name) return true;
    }
    return false;
  };
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    if (listed(name)) continue;
    auto provider = FindProvider(name, std::span(names).subspan(i + 1), options);
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
  if (!listed("cpu")) providers.push_back(*FindProvider("cpu", {}, options));
  std::vector<Provider> operators;
  for (const auto& plugin : options.plugins) {
    if (plugin->operators != nullptr) operators.push_back(plugin->operators);
  }
  providers.insert(providers.begin(), operators.begin(), operators.end());
  return providers;
}

}  // namespace onnxd
