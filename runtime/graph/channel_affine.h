// BatchNormalization of constants, as passes fold it into what is beside it.
#pragma once

#include <optional>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// What a BatchNormalization node with constant parameters computes of each channel: x * scale +
// shift (ONNX BatchNormalization-15, inference).
struct ChannelAffine {
  std::vector<float> scale, shift;
};

// nullopt where the node trains, has other outputs, or parameters that are computed, no floats or
// not one for each of so many channels.
Result<std::optional<ChannelAffine>> ChannelAffineOf(const Graph& graph, const Node& node,
                                                     int64_t channels);

// The floats of a constant value; null when it is none.
const Initializer* FloatConstant(const Graph& graph, ValueId id);

}  // namespace onnxd
