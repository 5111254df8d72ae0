#include "runtime/optimizer/pass_manager.h"

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {

std::vector<const GraphPass*> StandardPasses() {
  return {IdentityElimination(),
          ShapeFolding(),
          ConstantFolding(),
          EinsumProduct(),
          ConvTransposeAsConv(),
          ConvPaddingCrop(),
          ConvBiasFusion(),
          ConvBatchNormalizationFusion(),
          TransposeElimination(),
          TransposedRegrouping(),
          OneHotProduct(),
          GeluFusion(),
          LayerNormalizationFusion(),
          MatMulScaleFusion(),
          BlockedProducts(),
          ConvActivationFusion(),
          DeadCodeElimination()};
}

namespace {

Status RunHere(const std::vector<const GraphPass*>& passes, OptimizationLevel level, Graph& graph,
               const PassContext& context) {
  constexpr int kMaxRounds = 8;
  bool changed = true;
  for (int round = 0; round < kMaxRounds && changed; ++round) {
    changed = false;
    for (const GraphPass* pass : passes) {
      if (pass->level() > level || level == OptimizationLevel::kDisable) continue;
      const auto broken = [&](const Status& status) {
        return Internal(StrCat("pass '", pass->name(), "': ", status.message()));
      };
      ONNXD_ASSIGN_OR_RETURN(const bool pass_changed, pass->Run(graph, context));
      if (!pass_changed) continue;
      changed = true;
      if (const Status status = graph.SortNodes(); !status.ok()) return broken(status);
      if (const Status status = graph.Verify(); !status.ok()) return broken(status);
      if (const Status status = InferGraph(graph); !status.ok()) return broken(status);
    }
  }
  return Status::Ok();
}

}  // namespace

Status RunPasses(const std::vector<const GraphPass*>& passes, OptimizationLevel level, Graph& graph,
                 const PassContext& context) {
  ONNXD_RETURN_IF_ERROR(RunHere(passes, level, graph, context));
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes.entries()) {
      auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (body != nullptr) ONNXD_RETURN_IF_ERROR(RunPasses(passes, level, **body, context));
    }
  }
  return Status::Ok();
}

}  // namespace onnxd
