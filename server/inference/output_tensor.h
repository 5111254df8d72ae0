// What an answer's output is on the wire.
#pragma once

#include <optional>

#include "server/inference/inference_request.h"
#include "server/inference/json_writer.h"

namespace onnxd {

// The tensor to write for an output: its own; its classes, where a number of them is asked for; one
// BYTES element with its JSON, where it is a sequence or map, which have no tensor form. Fails as
// Classify and AppendNested.
Result<Tensor> OutputTensor(const NamedValue& output, const std::optional<int64_t>& classification,
                            NonFiniteNumbers& non_finite);

}  // namespace onnxd
