// Signals [batch, channels, length] as images of one row [batch, channels, 1, length].
#pragma once

#include <optional>

#include "runtime/graph/graph_pass.h"

namespace onnxd {

inline constexpr int kSignalRank = 3;
inline constexpr int64_t kRowAxis = 2;  // of the image

// Attributes of a window of one axis, for two, of which the first has one position.
void AddRow(Node& node);

// A QLinearConv whose weights are a constant [out, in, length], with weights [out, in, 1, length];
// its input and output are to be images. nullopt for others.
Result<std::optional<Node>> RowConv(Graph& graph, const Node& conv);

// QLinearConv of signals that fast kernels would take of images: of these. Extended.
const GraphPass* QuantizedSignals();

}  // namespace onnxd
