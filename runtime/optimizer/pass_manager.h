// The ordered list of passes, and the loop that runs them.
#pragma once

#include <map>
#include <vector>

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// The passes that hold for every provider, in order.
std::vector<const GraphPass*> StandardPasses();

// Runs passes whose level is at most `level` over one graph and the bodies of its nodes. What a
// pass left alone it is not shown again before something else changes it, so that a list of passes
// that grows by one costs the one. Requires that nothing else touches the graph between runs.
class PassRunner {
 public:
  // `context` must outlive it.
  PassRunner(OptimizationLevel level, const PassContext& context)
      : level_(level), context_(context) {}

  // In order and again until none changes the graph (at most 8 rounds). After each change the graph
  // is verified and types are inferred; a pass that breaks the graph is kInternal and names itself.
  Status Run(const std::vector<const GraphPass*>& passes, Graph& graph);

 private:
  struct State {
    int changes = 0;
    std::map<const GraphPass*, int> left_alone;  // after so many changes
    std::map<const Graph*, State> bodies;        // until the graph changes
  };
  // Whether the graph or one of its bodies changed.
  Result<bool> RunGraph(const std::vector<const GraphPass*>& passes, Graph& graph, State& state);
  Result<bool> RunHere(const std::vector<const GraphPass*>& passes, Graph& graph, State& state);

  const OptimizationLevel level_;
  const PassContext& context_;
  State state_;
};

// PassRunner, once.
Status RunPasses(const std::vector<const GraphPass*>& passes, OptimizationLevel level, Graph& graph,
                 const PassContext& context);

}  // namespace onnxd
