// Control flow: output types are those of the subgraphs.
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// The element types of the then branch; shapes may differ between branches and stay unknown.
Status If(InferenceContext& context) {
  const std::shared_ptr<Graph> branch = context.attributes().Subgraph("then_branch");
  const std::shared_ptr<Graph> other = context.attributes().Subgraph("else_branch");
  for (const auto& graph : {branch, other}) {
    if (graph == nullptr) return context.Fail("it lacks a branch");
    if (graph->outputs.size() != context.output_count()) {
      return context.Fail("a branch has another number of outputs than the node");
    }
  }
  for (size_t i = 0; i < context.output_count(); ++i) {
    ValueType type = branch->value(branch->outputs[i]).type;
    const ValueType& alternative = other->value(other->outputs[i]).type;
    if (!type.known()) type = alternative;
    if (type.is_tensor() && alternative.is_tensor() && type.element != alternative.element) {
      return context.Fail("its branches give different types");
    }
    type.shape.reset();
    context.SetType(i, std::move(type));
  }
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {{"", "If", If}};

}  // namespace

std::span<const InferenceRule> ControlFlowRules() { return kRules; }

}  // namespace onnxd
