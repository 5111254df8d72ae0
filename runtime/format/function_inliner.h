// Expands calls of model-local functions (FunctionProto, IR version 8 on) in the parsed model.
#pragma once

#include "runtime/base/status.h"
#include "runtime/format/parsed_model.h"
#include "runtime/base/wire_reader.h"

namespace onnxd {

// Replaces every node that names a function of the model by the function's body, nested calls and
// subgraphs included. Names inside a body get a prefix of their own; attribute references are
// resolved against the call and the function's defaults; nodes keep the function's opset imports.
// kInvalidArgument on recursion, kResourceExhausted when the expansion outgrows the budget.
Status InlineFunctions(ParsedModel& model, LoadBudget& budget);

}  // namespace onnxd
