// The normalisation of Slice's starts, ends and steps (ONNX Slice-13).
#pragma once

#include <cstdint>

#include "runtime/tensor/data_type.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

struct SliceRange {
  int64_t start;
  int64_t step;
  int64_t count;
};

// One axis of extent `dim`; step is not 0.
SliceRange NormalizeSlice(int64_t start, int64_t end, int64_t step, int64_t dim);

// The most that an open dimension of such a tensor can be, beside those that are known: no process
// holds more bytes, and 2^31 - 1 is what exporters write for "to the end".
int64_t LargestExtent(const SymbolicShape& shape, DataType element);

// Whether all of a dimension stays, in its order; it is `largest` at most where it is open.
bool SliceTakesAll(const Dimension& dimension, int64_t start, int64_t end, int64_t step,
                   int64_t largest);

}  // namespace onnxd
