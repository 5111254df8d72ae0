// The layout pass: convolutions and what lies between them work on [batch, height, width,
// channels].
#pragma once

#include <functional>
#include <vector>

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// What a provider computes in that layout.
struct ChannelsLastRules {
  using Takes = std::function<bool(const Graph&, const Node&)>;

  // Of images that operators are carried through to; of 32 or fewer bits.
  std::vector<DataType> types;
  // Of the 2-D convolutions with constant weights, without negative pads.
  Takes conv;
  Takes byte_conv;  // QLinearConv; null: none
  // InstanceNormalization and GroupNormalization.
  bool normalizes = true;
  // Weights come as [filters, height, width, channels], or with a filter for each channel as
  // [1, height, width, channels]; else as ONNX has them.
  bool filters_last = false;
  // Images and such weights get zeros behind their channels, up to a multiple of so many.
  int64_t channels_of = 1;
  // Whether a graph with such convolutions is worth it; null: all are.
  std::function<bool(const Graph&)> pays = nullptr;
};

// Rewrites 2-D convolutions with constant weights into onnxd::ConvChannelsLast, with filters last
// those of plain images whose windows lie side by side into MatMul, and carries the
// layout through pools, normalizations (BatchNormalization of constants as a product and a sum),
// pads, reductions that keep their axes, concatenations and splits over channels and elementwise
// operators.
// Values that others need in the plain layout are transposed back by visible Transpose nodes. Level
// all.
class ChannelsLastPass : public GraphPass {
 public:
  explicit ChannelsLastPass(ChannelsLastRules rules) : rules_(std::move(rules)) {}
  std::string_view name() const override { return "channels_last"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }
  Result<bool> Run(Graph& graph, const PassContext&) const override;

 private:
  const ChannelsLastRules rules_;
};

// Whether a convolution with these attributes and weights, as ONNX has them, has a filter for each
// channel.
bool IsDepthwise(const Attributes& attributes, const Shape& weights);

}  // namespace onnxd
