// Shapes with symbols, made whole by what a request brings.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/session/inference_session.h"

namespace onnxd {

// What each symbol of the signature is in these values, one per entry; absent ones say nothing.
std::map<std::string, int64_t> SymbolsOf(const std::vector<TensorSignature>& signature,
                                         std::span<const Value> values);

// Dimensions that nobody knows are 1.
Shape BoundShape(const SymbolicShape& shape, const std::map<std::string, int64_t>& symbols);

// Elements of one number in the tensor's type, which is one of numbers or booleans.
Result<Tensor> Filled(DataType type, const Shape& shape, double number);

}  // namespace onnxd
