// Convolution of floats in groups, [batch, height, width, channels], by loops of our own: windows
// of 3 x 3 of one stride, 1 or 2, without dilation, with as many filters as channels in each group.
#pragma once

#include <array>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/graph/initializer.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"

namespace onnxd {

// Any thread.
class GroupConv {
 public:
  // Whether a convolution with these attributes and weights, [filters, channels of a group, height,
  // width], is such a one, and registers divide its channels.
  static bool Takes(const Attributes& attributes, const Shape& weights);

  // Packs the weights. Errors as Initializer::InForm. Requires that Takes.
  static Result<GroupConv> Create(const Initializer& weights, const Activation& activation);

  int64_t channels() const { return channels_; }
  std::vector<int64_t> window() const { return {3, 3}; }
  int64_t products() const { return 9 * group_; }  // of an element of the result
  const Activation& activation() const { return bounds_.rest; }

  // Rows [begin, end) of the result of one image, [height, width, channels()], from `out` on. bias:
  // [channels()] or null. The caller applies activation() to it.
  void ComputeRows(const float* image, const std::array<int64_t, 2>& size, const Window& window,
                   const float* bias, int64_t begin, int64_t end, float* out) const;

 private:
  int64_t channels_ = 0, group_ = 0;
  Tensor weights_;  // as GroupConvArguments
  ActivationBounds bounds_;
};

}  // namespace onnxd
