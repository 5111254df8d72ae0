#include "runtime/session/model_preparation.h"

#include "runtime/base/function_ref.h"
#include "runtime/base/str_cat.h"
#include "runtime/ops/op_schema.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/optimizer/pass_manager.h"
#include "runtime/session/constant_evaluator.h"
#include "runtime/session/device_partition.h"
#include "runtime/session/function_expansion.h"
#include "runtime/session/kernel_race.h"

namespace onnxd {
namespace {

Status CheckInputs(const Graph& graph) {
  for (const ValueId id : graph.inputs) {
    if (graph.value(id).type.known()) continue;
    return InvalidArgument(StrCat("graph input '", graph.value(id).name, "' has no type"));
  }
  return Status::Ok();
}

// Applies to the nodes of a graph and of its bodies.
void ForEachNode(Graph& graph, FunctionRef<void(Node&)> visit) {
  for (Node& node : graph.nodes) {
    visit(node);
    for (auto& [name, attribute] : node.attributes.entries()) {
      if (auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute)) ForEachNode(**body, visit);
    }
  }
}

// While it lives, nodes that other providers were given look like operators that no pass knows.
class OthersHidden {
 public:
  OthersHidden(Graph& graph, std::string_view provider) : graph_(graph) {
    ForEachNode(graph_, [&](Node& node) {
      const bool own = node.provider.empty() || node.provider == provider;
      if (!own && node.provider != "session") node.domain.insert(0, kHidden);
    });
  }
  ~OthersHidden() {
    ForEachNode(graph_, [&](Node& node) {
      if (node.domain.starts_with(kHidden)) node.domain.erase(0, kHidden.size());
    });
  }
  OthersHidden(const OthersHidden&) = delete;
  OthersHidden& operator=(const OthersHidden&) = delete;

 private:
  static constexpr std::string_view kHidden = "another provider's ";
  Graph& graph_;
};

Status RunProviderPasses(const SessionOptions& options, std::vector<const GraphPass*> passes,
                         Graph& graph, PassContext context) {
  for (const auto& provider : options.providers) {
    context.owns = [&](const Node& node) {
      for (const auto& other : options.providers) {
        if (other == provider) return true;
        if (other->Knows(node)) return false;
      }
      return true;
    };
    context.precision =
        provider->Computes(options.precision) ? options.precision : Precision::kFloat32;
    ONNXD_RETURN_IF_ERROR(PartitionGraph(graph, options.providers));
    const OthersHidden hidden(graph, provider->name());
    PassRunner runner(options.optimization, context);
    for (const GraphPass* own : provider->Passes()) {
      passes.push_back(own);
      ONNXD_RETURN_IF_ERROR(runner.Run(passes, graph));
    }
  }
  return Status::Ok();
}

}  // namespace

std::optional<Stage> StageFromName(std::string_view name) {
  if (name == "loaded") return Stage::kLoaded;
  if (name == "expanded") return Stage::kExpanded;
  if (name == "optimized") return Stage::kOptimized;
  if (name == "final") return Stage::kFinal;
  return std::nullopt;
}

Status CheckModel(Model& model) {
  ONNXD_RETURN_IF_ERROR(CheckGraph(model.graph));
  ONNXD_RETURN_IF_ERROR(InferGraph(model.graph));
  ONNXD_RETURN_IF_ERROR(CheckGraph(model.graph));  // again, with inferred types
  return CheckInputs(model.graph);
}

Precision EffectivePrecision(const SessionOptions& options) {
  for (const auto& provider : options.providers) {
    if (provider->Computes(options.precision)) return options.precision;
  }
  return Precision::kFloat32;
}

Status PrepareModel(Model& model, const SessionOptions& options, Stage last,
                    const std::function<void(const Graph&)>& when_optimized) {
  if (last == Stage::kLoaded) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(ExpandFunctions(model.graph, options.providers));
  if (last == Stage::kExpanded) return Status::Ok();
  PassContext context;
  context.evaluate = MakeConstantEvaluator(options.providers, options.pool);
  if (options.cache != nullptr) context.race = MakeKernelRace(options.providers, options.pool);
  const auto opset = model.opsets.find("");
  if (opset != model.opsets.end()) context.opset = opset->second;
  context.precision = EffectivePrecision(options);
  // A provider's pass starts where those before it have come to an end, and they may go on from
  // what it leaves.
  std::vector<const GraphPass*> passes = StandardPasses();
  ONNXD_RETURN_IF_ERROR(RunPasses(passes, options.optimization, model.graph, context));
  if (when_optimized) when_optimized(model.graph);
  if (last == Stage::kOptimized) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(
      RunProviderPasses(options, std::move(passes), model.graph, std::move(context)));
  ONNXD_RETURN_IF_ERROR(PartitionGraph(model.graph, options.providers));
  return InsertCopies(model.graph, options.providers);
}

}  // namespace onnxd
