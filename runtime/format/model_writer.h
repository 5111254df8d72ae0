// Model -> ONNX bytes.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/graph/model.h"

namespace onnxd {

// One ModelProto with all weights inside. kInvalidArgument when it would exceed the 2 GB that
// protobuf allows. Captures are written as the outer names that subgraphs refer to.
Result<std::string> WriteModel(const Model& model);

}  // namespace onnxd
