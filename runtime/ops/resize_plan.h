// What Resize and Upsample compute: every interpolation is separable, so each axis is a weighted
// sum of a few input positions per output position. Source: ONNX Resize-10 to -19, Upsample-1 to
// -10.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

struct ResizeMode {
  enum class Interpolation { kNearest, kLinear, kCubic };
  Interpolation interpolation;
  std::string coordinates, nearest;
  bool antialias, exclude_outside;
  double cubic_a, extrapolation;
};

// kInvalidArgument for a mode that ONNX does not know.
Result<ResizeMode> ResizeModeOf(const Node& node);

// Output position x is the sum over t of weights[x * taps + t] * input[index[x * taps + t]], or the
// extrapolation value where it is outside.
struct ResizeAxisPlan {
  size_t taps = 1;
  std::vector<int64_t> index;
  std::vector<float> weights;
  std::vector<bool> outside;
  bool doubles = false;  // index[x] is x / 2, with one tap

  int64_t size() const { return static_cast<int64_t>(outside.size()); }
  bool anything_outside() const;
};

struct ResizePlan {
  Shape in;
  std::vector<std::pair<int, ResizeAxisPlan>> axes;  // those that change, one after another
  int64_t buffer = 0;                                // elements of each of two intermediate images
  double extrapolation = 0;
};

// `known`: the node's operands, null where they are absent or not known. kFailedPrecondition where
// one is needed; kInvalidArgument names the operand that does not fit; kResourceExhausted where an
// axis would need more than 32 million weights.
Result<ResizePlan> PlanResize(const ResizeMode& mode, const Node& node, const Shape& in,
                              std::span<const Tensor* const> known);

}  // namespace onnxd
