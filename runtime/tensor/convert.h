// Conversion of elements between all types that hold numbers: bool, integers of 2 to 64 bits,
// floats of 4 to 64 bits. Strings and complex numbers are none.
#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>

#include "runtime/tensor/data_type.h"
#include "runtime/tensor/minifloat.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

bool IsConvertible(DataType type);

// Source of the rules: ONNX Cast-25. Floats round to nearest, ties to even; towards integers they
// are cut off, values out of range become the type's limit and NaN 0; integers wrap; bool is
// "not zero". Minifloats follow `options`. 4- and 2-bit elements are packed, the first in the low
// bits. Requires both types to be convertible and the ranges not to overlap, unless the types are
// equally wide.
void ConvertElements(DataType from, const void* in, DataType to, void* out, int64_t count,
                     const MinifloatOptions& options = {});

// A number cut off to an integer; out of range it is the type's limit, and NaN 0: C++'s own
// conversion is undefined there.
template <std::integral T>
T Truncated(double value) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(value)) return T(0);
  if (value <= static_cast<double>(Limits::lowest())) return Limits::lowest();
  if (value >= static_cast<double>(Limits::max())) return Limits::max();
  return static_cast<T>(value);
}

// The elements as another type. kInvalidArgument when one of the types is not convertible.
Result<Tensor> Converted(const Tensor& tensor, DataType to, const MinifloatOptions& options = {});

}  // namespace onnxd
