// The host's side of onnxd_plugin.h: the functions that callbacks may call, and calls that fail
// safely.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/kernel/kernel.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/plugin/onnxd_plugin.h"

// What a callback's context points at. Fields that the callback may not use are null.
struct OnnxdContext {
  const onnxd::Node* node = nullptr;
  onnxd::InferenceContext* inference = nullptr;
  const onnxd::KernelInfo* kernel = nullptr;                    // in a provider's create
  const std::map<std::string, std::string>* options = nullptr;  // in a provider's open
  std::vector<bool>* on_host = nullptr;                         // by input; in a provider's create
  std::string error;
  bool misused = false;                            // set_output refused something
  std::vector<std::vector<int64_t>> dims_storage;  // what input_dims returned
  std::vector<onnxd::Tensor> constants;            // what constant_input returned
};

namespace onnxd {

const OnnxdHost& PluginHost();

// Letters, digits and a few signs: what may stand in messages, lists and file names.
bool IsPluginName(const char* text, std::string_view also);

// Runs one callback. A status other than OK, an unknown status, a refused set_output and an
// exception become an error that begins with `what`.
Status CallPlugin(OnnxdContext& context, std::string_view what, FunctionRef<OnnxdStatus()> call);

}  // namespace onnxd
