// MLmodel: how MLflow describes a model that it has saved:
// https://mlflow.org/docs/latest/models.html#storage-format
#pragma once

#include <string>

#include "runtime/base/status.h"

namespace onnxd {

// The ONNX file that the text of an MLmodel names, in the same folder: flavors.onnx.data, or
// model.onnx where it is not said. kInvalidArgument, which begins with `name`, where it is no such
// text or the model is not ONNX.
Result<std::string> OnnxFileOf(const std::string& text, const std::string& name);

}  // namespace onnxd
