#include "runtime/fusion/quantized_operators.h"

#include "runtime/graph/graph_match.h"
#include "runtime/providers/cpu/fast_kernels.h"
#include "runtime/providers/cpu/passes/quantized_operators.h"
#include "runtime/providers/cpu/passes/signal_rows.h"

namespace onnxd {
namespace {

// Of images, or of signals, of which QuantizedSignals makes images.
bool TakesConv(Graph& graph, const Node& node) {
  const int rank = RankOf(graph, node.inputs[3]).value_or(0);
  if (rank == kSignalRank) {
    const auto row = RowConv(graph, node);
    return row.ok() && row->has_value() && TakesQuantizedConv(graph, **row);
  }
  return rank == kSignalRank + 1 && TakesQuantizedConv(graph, node);
}

}  // namespace

const GraphPass* QuantizedOperators() {
  static const QuantizedOperatorsPass pass({.takes_conv = TakesConv});
  return &pass;
}

}  // namespace onnxd
