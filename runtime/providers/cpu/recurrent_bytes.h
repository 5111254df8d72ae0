// What com.microsoft DynamicQuantizeLSTM multiplies its inputs and states by: one direction's
// gates in bytes. Source of the semantics: onnxruntime's ContribOperators document; its kernel
// quantizes all steps of the input at once, and each step's states.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/packed_bytes.h"

namespace onnxd {

// Immutable.
class ByteGates {
 public:
  // The directions' gates of weights [directions, depth, columns] in input `weights`, with their
  // scales and zero points; kUnimplemented where one of the three is not constant.
  static Result<std::vector<ByteGates>> Make(const KernelInfo& info, size_t weights, size_t scale,
                                             size_t zero);

  int64_t ScratchFloats(int64_t rows) const;
  // out[rows, columns] = x[rows, depth] * gates, or += them. Rows are quantized alike, to unsigned
  // bytes.
  void Multiply(const float* x, int64_t rows, float* out, bool add, float* scratch) const;

 private:
  PackedByteMatrix matrix_;
  std::vector<float> scales_;   // per column
  std::vector<int32_t> zeros_;  // per column; empty: 0
};

}  // namespace onnxd
