// One opset per domain for a graph whose nodes carry versions of their own.
#pragma once

#include <map>
#include <string>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

// Makes `opsets` (by domain, "" is ai.onnx) name for every domain in the graph an opset at which
// each node means the version that it has: the present one where that holds, otherwise the lowest
// that does. Domains without a schema of ours keep their opset, or get 1. kUnimplemented names the
// node that cannot be said beside the others, and kInvalidArgument one that ONNX does not know.
Status SelectOpsets(const Graph& graph, std::map<std::string, int64_t>& opsets);

}  // namespace onnxd
