// Broadcasting as operators meant it before opset 7.
#pragma once

#include "runtime/graph/graph.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

// The shape of operand B as numpy would have it. Versions 1 and 6 align B with A at attribute
// 'axis' where 'broadcast' is set, and PRelu a slope per channel with A's second dimension; later
// ones leave B as it is.
inline Shape LegacyBroadcastShape(const Node& node, const Shape& a, const Shape& b) {
  const bool per_channel = node.op_type == "PRelu" && b.rank() == 1 && a.rank() > 1;
  if (node.since_version >= 7 || (node.attributes.Int("broadcast", 0) == 0 && !per_channel)) {
    return b;
  }
  const int64_t axis = per_channel ? 1 : node.attributes.Int("axis", a.rank() - b.rank());
  std::vector<int64_t> dims(static_cast<size_t>(a.rank()), 1);
  for (int i = 0; i < b.rank(); ++i) {
    const int64_t at = (axis < 0 ? axis + a.rank() : axis) + i;
    if (at >= 0 && at < a.rank()) dims[static_cast<size_t>(at)] = b[i];
  }
  return Shape(dims);
}

}  // namespace onnxd
