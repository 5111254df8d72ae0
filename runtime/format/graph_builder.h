// ParsedModel -> Model: names become ids, operator versions are resolved, captures made explicit.
#pragma once

#include "runtime/base/status.h"
#include "runtime/format/parsed_model.h"
#include "runtime/graph/model.h"

namespace onnxd {

// kInvalidArgument names the node or value: unknown names, duplicate definitions, cycles, a missing
// or impossible opset import.
Result<Model> BuildModel(ParsedModel parsed);

}  // namespace onnxd
