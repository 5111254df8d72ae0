// Which execution providers compute a model, on which device and how.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/config/option_key.h"

namespace onnxd {

// Of `cuda`, `opencl` and `fused`, called as onnxruntime calls them, and of plug-ins.
struct ProviderDeviceSettings {
  int64_t device_id = 0;
  // bytes of the device, for all models with these options together; 0: what there is
  int64_t gpu_mem_limit = 0;
  int64_t stream_priority = 0;  // lower numbers go first, as CUDA counts
  bool use_tf32 = false;        // of CUDA: products of float may round their operands to TF32
  // EXHAUSTIVE: kernels that can be had in several ways are timed; HEURISTIC, DEFAULT: by size
  std::string cudnn_conv_algo_search = "EXHAUSTIVE";
  int64_t max_workspace_size = 33'554'432;  // bytes that cuBLASLt may take for one product
  // of `fused`: values, separated by semicolons, that products make in float whatever the precision
  std::string float_layers;
  std::string plugin;  // NAME=VALUE, separated by commas: what providers of plug-ins take
  bool operator==(const ProviderDeviceSettings&) const = default;
};

const std::vector<OptionKey<ProviderDeviceSettings>>& ProviderDeviceKeys();

// `text` as such pairs; kInvalidArgument names the part that is none, or a name that comes twice.
Result<std::map<std::string, std::string>> ParsePluginOptions(const std::string& text);

// NAME=VALUE, separated by commas, as a command has them: names that are not among these keys are
// for providers of plug-ins.
Result<ProviderDeviceSettings> ParseProviderOptions(const std::string& text);

}  // namespace onnxd
