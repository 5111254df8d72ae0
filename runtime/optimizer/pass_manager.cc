#include "runtime/optimizer/pass_manager.h"

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {

std::vector<const GraphPass*> StandardPasses() {
  return {IdentityElimination(),
          LoopInvariants(),
          ShapeFolding(),
          ReshapeTargetFolding(),
          EinsumProduct(),  // before they are computed one element at a time
          ConstantFolding(),
          ScanDistances(),
          StackedProducts(),
          FlattenedProducts(),
          TransposedParts(),
          RegroupingElimination(),
          SqueezeElimination(),  // before convolutions take what follows them
          HardSigmoidFusion(),   // before convolutions take its sum as their bias
          PReluAsLeakyRelu(),
          ConvTransposeAsConv(),
          PadFusion(),
          ConvPaddingCrop(),
          ConvAffineFusion(),
          ProductBatchNormalizationFusion(),
          TransposeElimination(),
          TransposedRegrouping(),
          SelectionFusion(),
          OneHotProduct(),
          GeluFusion(),
          LayerNormalizationFusion(),
          GlobalAveragePoolFusion(),
          MatMulScaleFusion(),
          DenormalWeights(),
          BlockedProducts(),
          ConvActivationFusion(),
          DeadCodeElimination()};
}

Result<bool> PassRunner::RunHere(const std::vector<const GraphPass*>& passes, Graph& graph,
                                 State& state) {
  constexpr int kMaxRounds = 8;
  const int before = state.changes;
  bool changed = level_ != OptimizationLevel::kDisable;
  for (int round = 0; round < kMaxRounds && changed; ++round) {
    changed = false;
    for (const GraphPass* pass : passes) {
      if (pass->level() > level_) continue;
      const auto seen = state.left_alone.find(pass);
      if (seen != state.left_alone.end() && seen->second == state.changes) continue;
      const auto broken = [&](const Status& status) {
        return Internal(StrCat("pass '", pass->name(), "': ", status.message()));
      };
      ONNXD_ASSIGN_OR_RETURN(const bool pass_changed, pass->Run(graph, context_));
      if (!pass_changed) {
        state.left_alone[pass] = state.changes;
        continue;
      }
      changed = true;
      ++state.changes;
      state.bodies.clear();
      if (const Status status = graph.SortNodes(); !status.ok()) return broken(status);
      if (const Status status = graph.Verify(); !status.ok()) return broken(status);
      if (const Status status = InferGraph(graph); !status.ok()) return broken(status);
    }
  }
  return state.changes != before;
}

Result<bool> PassRunner::RunGraph(const std::vector<const GraphPass*>& passes, Graph& graph,
                                  State& state) {
  ONNXD_ASSIGN_OR_RETURN(bool changed, RunHere(passes, graph, state));
  bool body_changed = false;
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes.entries()) {
      auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (body == nullptr) continue;
      State& of_body = state.bodies[body->get()];
      ONNXD_ASSIGN_OR_RETURN(const bool own, RunGraph(passes, **body, of_body));
      body_changed = body_changed || own;
    }
  }
  if (body_changed) ++state.changes;  // what a body reads is an affair of its graph's
  return changed || body_changed;
}

Status PassRunner::Run(const std::vector<const GraphPass*>& passes, Graph& graph) {
  return RunGraph(passes, graph, state_).status();
}

Status RunPasses(const std::vector<const GraphPass*>& passes, OptimizationLevel level, Graph& graph,
                 const PassContext& context) {
  return PassRunner(level, context).Run(passes, graph);
}

}  // namespace onnxd
