// A look at a serialized request before protobuf builds objects from it: 64 MB of empty submessages
// would become gigabytes.
#pragma once

#include <string_view>

#include "runtime/base/status.h"

namespace onnxd {

// Counts tensors, parameters and strings of an inference.ModelInferRequest or an
// onnxd.v1.PredictRequest. kResourceExhausted when there are more than a sensible request has,
// kInvalidArgument when the bytes are no message.
Status ScanInferRequest(std::string_view message);
Status ScanPredictRequest(std::string_view message);

}  // namespace onnxd
