// Made-up requests, for trying a model and warming it up.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "runtime/session/inference_session.h"

namespace onnxd {

// One value per input of the signature: reals from -1 to 1, whole numbers 0 and 1 (most models take
// these, whatever they mean), empty strings. A free dimension is `rows` where it is the first, else
// `size`. kUnimplemented for inputs that are no tensors or have no known rank.
Result<std::vector<Value>> RandomRows(const std::vector<TensorSignature>& inputs, int64_t rows,
                                      int64_t size, std::mt19937& random);

}  // namespace onnxd
