// The geometry of convolutions and pools, for inference and kernels alike.
// Source: ONNX Conv-11, ConvTranspose-11, MaxPool-12, AveragePool-19 (auto_pad, ceil_mode).
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

// Whether strides, dilations or pads are all the same number; so is a list that is absent.
inline bool AreAll(const std::vector<int64_t>& list, int64_t wanted) {
  return std::all_of(list.begin(), list.end(), [&](int64_t x) { return x == wanted; });
}

// Per spatial axis; vectors have one entry each.
struct Window {
  std::vector<int64_t> kernel, strides, dilations, pads_begin, pads_end, output;
};

// The first of two convolutions that a node is: its attributes are those that begin with "expand_",
// without that.
Node ExpandNodeOf(const Node& node);

// The window of a Conv, MaxPool, AveragePool or LpPool node over the spatial dimensions `input`
// (known). `kernel` comes from the weights for convolutions, from kernel_shape for pools.
// kInvalidArgument when an attribute is out of range or an output size is not positive.
Result<Window> PoolWindow(const Node& node, const std::vector<int64_t>& input,
                          const std::vector<int64_t>& kernel);

// The window of a ConvTranspose node; `output` includes output_padding or is output_shape.
Result<Window> TransposedWindow(const Node& node, const std::vector<int64_t>& input,
                                const std::vector<int64_t>& kernel);

}  // namespace onnxd
