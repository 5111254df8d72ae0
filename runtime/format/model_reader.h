// ONNX model files -> Model.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/graph/model.h"

namespace onnxd {

// Reads a model file. Weights stay references into the file (or its external data, which must lie
// beneath the file's folder). Memory is bounded by 4 x the file's size + 256 MB. kInvalidArgument
// says what is wrong and where.
Result<Model> ReadModelFile(const std::string& path);

// The same for bytes in memory; external data is refused.
Result<Model> ReadModelBytes(std::string bytes);

}  // namespace onnxd
