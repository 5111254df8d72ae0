// A model with recorded inputs and outputs in files, as ONNX's test data sets hold them.
#pragma once

#include <string>
#include <vector>

#include "runtime/session/inference_session.h"

namespace onnxd {

// One value per input of the session: input_K.pb by position, else NAME.npy. kNotFound names the
// input without a file.
Result<std::vector<Value>> ReadInputs(const std::string& folder, const InferenceSession& session);

// As ReadInputs, for the outputs: output_K.pb, else NAME.npy.
Result<std::vector<Value>> ReadOutputs(const std::string& folder, const InferenceSession& session);

// Compares with the folder's outputs; the error names the output.
Status CompareOutputs(const std::string& folder, const InferenceSession& session,
                      const std::vector<Value>& outputs, double relative, double absolute);

// Writes output_K.pb.
Status WriteOutputs(const std::string& folder, const std::vector<Value>& outputs);

}  // namespace onnxd
