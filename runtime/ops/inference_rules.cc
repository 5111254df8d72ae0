#include "runtime/ops/inference_rules.h"

#include <unordered_map>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/ops/custom_operators.h"

namespace onnxd {

InferenceFunction FindInferenceRule(std::string_view domain, std::string_view op) {
  static const auto rules = [] {
    std::unordered_map<std::string_view, std::vector<InferenceRule>> all;  // by operator
    for (const auto& family :
         {ElementwiseRules(), ReductionRules(),       DataMovementRules(),
          ConvolutionRules(), MatMulRules(),          NormalizationRules(),
          RecurrentRules(),   MachineLearningRules(), ControlFlowRules(),
          AttentionRules(),   TrainingRules(),        QuantizationRules(),
          SequenceRules(),    VisionRules(),          TextRules(),
          ExtensionRules(),   SelectionRules(),       SignalRules(),
          EinsumRules(),      ResizeRules(),          ContribTransformerRules(),
          ReshapeRules()}) {
      for (const InferenceRule& rule : family) all[rule.op].push_back(rule);
    }
    return all;
  }();
  const auto found = rules.find(op);
  if (found == rules.end()) return FindCustomInferenceRule(domain, op);
  for (const InferenceRule& rule : found->second) {
    if (rule.domain == domain) return rule.infer;
  }
  return FindCustomInferenceRule(domain, op);
}

Result<SymbolicShape> Broadcast(const SymbolicShape& a, const SymbolicShape& b) {
  const SymbolicShape& longer = a.size() >= b.size() ? a : b;
  const SymbolicShape& shorter = a.size() >= b.size() ? b : a;
  SymbolicShape out = longer;
  const size_t offset = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    Dimension& left = out[offset + i];
    const Dimension& right = shorter[i];
    if (left == right && (left.known() || !left.symbol.empty())) continue;
    if (right.known() && right.value == 1) continue;
    if (left.known() && left.value == 1) {
      left = right;
    } else if (left.known() && right.known()) {
      return InvalidArgument(
          StrCat("shapes ", ToString(a), " and ", ToString(b), " cannot be broadcast together"));
    } else if (right.known()) {
      left = right;
    } else if (!left.known()) {
      left = Dimension();
    }
  }
  return out;
}

Status SameShapeAsInput(InferenceContext& context) {
  if (const SymbolicShape* shape = context.shape(0)) context.SetShape(0, *shape);
  return Status::Ok();
}

}  // namespace onnxd
