// Which execution providers compute a model, and on which device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/config/option_key.h"

namespace onnxd {

// Of `cuda`, `opencl` and `fused`; called as onnxruntime calls them.
struct ProviderDeviceSettings {
  int64_t device_id = 0;
  // bytes of the device, for all models with these options together; 0: what there is
  int64_t gpu_mem_limit = 0;
  int64_t stream_priority = 0;  // lower numbers go first, as CUDA counts
  bool operator==(const ProviderDeviceSettings&) const = default;
};

const std::vector<OptionKey<ProviderDeviceSettings>>& ProviderDeviceKeys();

}  // namespace onnxd
