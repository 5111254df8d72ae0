// Attention of heads, as kernels of devices are compared with the CPU's.
#pragma once

#include <string>
#include <vector>

#include "tests/support/cast_model.h"

namespace onnxd {

struct Heads {
  int64_t queries, keys, width, value_width;
  int64_t batch = 1, query_heads = 2, key_heads = 2;
};

// Attention of ONNX, whose newest version is not above `opset`, with a mask of `mask` where it has
// dimensions; its result is "y".
inline CastModel AttentionOf(DataType type, int64_t opset, const Heads& h,
                             const Attributes& attributes, const Shape& mask) {
  CastModel m(type, opset);
  std::vector<std::string> inputs{m.Input({h.batch, h.query_heads, h.queries, h.width}),
                                  m.Input({h.batch, h.key_heads, h.keys, h.width}),
                                  m.Input({h.batch, h.key_heads, h.keys, h.value_width})};
  if (mask.rank() > 0) inputs.push_back(m.Input(mask));
  m.model().Node("Attention", inputs, {"y"}, attributes);
  return m;
}

// How far the results of kernels that compute in that type may be apart: shares are rounded to it,
// and results on either side.
inline double AttentionTolerance(DataType type) {
  if (type == DataType::kFloat) return 1e-5;
  return type == DataType::kFloat16 ? 2e-3 : 1.6e-2;
}

}  // namespace onnxd
