// The normalisation of Slice's starts, ends and steps (ONNX Slice-13).
#pragma once

#include <cstdint>

namespace onnxd {

struct SliceRange {
  int64_t start;
  int64_t step;
  int64_t count;
};

// One axis of extent `dim`; step is not 0.
SliceRange NormalizeSlice(int64_t start, int64_t end, int64_t step, int64_t dim);

}  // namespace onnxd
