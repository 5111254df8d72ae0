// The one place that knows which providers this build has.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernel/execution_provider.h"

namespace onnxd {

class ProgramCache;
struct Plugin;

// Of the device of "cuda", "opencl" and "fused"; called as onnxruntime calls them.
struct ProviderOptions {
  int device_id = 0;
  // Bytes of the device, for all sessions with these options together; 0: what there is.
  int64_t gpu_mem_limit = 0;
  int stream_priority = 0;  // of CUDA: lower numbers go first; cut to what the device has
  // Of CUDA: products of float may round their operands to TF32's 10 bits of fraction.
  bool use_tf32 = false;
  // Kernels that can be had in several ways are timed on the device, the fastest is kept; else they
  // are chosen by their sizes. onnxruntime's cudnn_conv_algo_search, of products as well.
  bool searches_tactics = false;
  int64_t max_workspace_size = 32 << 20;  // bytes that a library of CUDA may take for one product
  // Of fused: values that products make in float whatever the session's precision is.
  std::set<std::string> float_layers;
  // Where compiled kernels are kept; null: nowhere. A device has that of the first call with it.
  std::shared_ptr<ProgramCache> program_cache;

  // Their operators' providers come before the listed ones, and lists may name their providers,
  // which are opened with these options.
  std::vector<std::shared_ptr<const Plugin>> plugins;
  std::map<std::string, std::string> plugin_options;
};

// Devices that providers were made of so far. Any thread.
std::vector<std::shared_ptr<Device>> UsedDevices();

// Providers by priority for `names` ("fused", "cuda", "opencl", "cpu", those of plug-ins); the CPU
// provider is added at the end when it is not listed, and "fused" uses the device of the next name
// that has one. One whose device this machine lacks (kUnavailable) is left out, and a line of the
// log says why. kInvalidArgument lists the known names.
Result<std::vector<std::shared_ptr<const ExecutionProvider>>> MakeProviders(
    const std::vector<std::string>& names, const ProviderOptions& options = {});

}  // namespace onnxd
