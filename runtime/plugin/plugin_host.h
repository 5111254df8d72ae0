// The host's side of onnxd_plugin.h: the functions that callbacks may call, and calls that fail
// safely.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/function_ref.h"
#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/plugin/onnxd_plugin.h"

// What a callback's context points at. Fields that the callback may not use are null.
struct OnnxdContext {
  const onnxd::Node* node = nullptr;
  onnxd::InferenceContext* inference = nullptr;
  std::string error;
  bool misused = false;                            // set_output refused something
  std::vector<std::vector<int64_t>> dims_storage;  // what input_dims returned
};

namespace onnxd {

const OnnxdHost& PluginHost();

// Runs one callback. A status other than OK, an unknown status, a refused set_output and an
// exception become an error that begins with `what`.
Status CallPlugin(OnnxdContext& context, std::string_view what, FunctionRef<OnnxdStatus()> call);

}  // namespace onnxd
