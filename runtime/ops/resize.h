// The sizes and scales of a Resize or Upsample node. Source: ONNX Resize-10 to -19, Upsample-7, -9.
#pragma once

#include <optional>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// What the node's operands ask for; empty when an operand is absent or not known yet.
struct ResizeRequest {
  std::vector<double> scales;
  std::vector<int64_t> sizes;
};

// Per axis of the input: the output extent and the scale that coordinates are computed with.
struct ResizeSizes {
  std::vector<int64_t> extents;
  std::vector<double> scales;
};

// The axes that scales, sizes and roi speak of.
Result<std::vector<int>> ResizeAxes(const Node& node, int rank);

// kInvalidArgument names the node and the operand that does not fit. Requires one part of the
// request to be given.
Result<ResizeSizes> SizesOfResize(const Node& node, const std::vector<int64_t>& input,
                                  const ResizeRequest& request);

// Which operand holds scales: 1 before Resize-11, 2 from then on. Sizes are operand 3.
size_t ResizeScalesOperand(const Node& node);

}  // namespace onnxd
