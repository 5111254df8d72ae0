// What reductions reduce over, for inference and kernels alike.
#pragma once

#include <optional>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"

namespace onnxd {

// Whether this version of the operator takes its axes as input 1 (ReduceSum from 13, the others
// from 18) instead of as an attribute.
bool ReductionAxesAreInput(const Node& node);

// Normalised, sorted axes of a Reduce* node over a tensor of `rank`; `axes` is the attribute or the
// known input, empty meaning all axes unless noop_with_empty_axes is set, when it means none.
Result<std::vector<int>> ReductionAxes(const Node& node, const std::vector<int64_t>& axes,
                                       int rank);

}  // namespace onnxd
