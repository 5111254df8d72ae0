// The bodies of TensorFlow Serving's predict calls.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/http/http_message.h"
#include "server/inference/inference_request.h"
#include "server/inference/json_writer.h"
#include "server/service/inference_service.h"

namespace onnxd {

struct Instances {
  std::vector<NamedValue> inputs;
  bool by_row = true;  // "instances", not "inputs"
  int64_t rows = 0;    // where by row
};

// kInvalidArgument: malformed, other signatures than "serving_default", neither or both forms, rows
// that name different inputs, or values that do not fit the model's. As TensorFromNested beside.
Result<Instances> ReadInstances(const HttpBody& body, const ModelVersion& version,
                                int64_t max_depth);

// {"predictions": ..} or {"outputs": ..}. kInvalidArgument where an output has no row for each
// instance; as AppendNested beside.
Result<std::string> WritePredictions(const Instances& form, const InferenceResponse& response,
                                     NonFiniteNumbers& non_finite);

}  // namespace onnxd
