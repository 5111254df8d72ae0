// The inference rules by operator; each family of operators has a file with its list.
#pragma once

#include <span>

#include "runtime/ops/shape_inference.h"

namespace onnxd {

// One rule serves all versions of its operator; it looks at InferenceContext::version where they
// differ.
struct InferenceRule {
  std::string_view domain;
  std::string_view op;
  InferenceFunction infer;
};

std::span<const InferenceRule> ElementwiseRules();
std::span<const InferenceRule> ReductionRules();
std::span<const InferenceRule> DataMovementRules();
std::span<const InferenceRule> ReshapeRules();
std::span<const InferenceRule> ConvolutionRules();
std::span<const InferenceRule> MatMulRules();
std::span<const InferenceRule> NormalizationRules();
std::span<const InferenceRule> RecurrentRules();
std::span<const InferenceRule> MachineLearningRules();
std::span<const InferenceRule> ControlFlowRules();
std::span<const InferenceRule> AttentionRules();
std::span<const InferenceRule> TrainingRules();
std::span<const InferenceRule> ContribTransformerRules();
std::span<const InferenceRule> ResizeRules();
std::span<const InferenceRule> EinsumRules();
std::span<const InferenceRule> SignalRules();
std::span<const InferenceRule> SelectionRules();
std::span<const InferenceRule> TextRules();
std::span<const InferenceRule> ExtensionRules();
std::span<const InferenceRule> VisionRules();
std::span<const InferenceRule> SequenceRules();
std::span<const InferenceRule> QuantizationRules();

// Null when the operator has no rule: its output shapes are known only once it ran.
InferenceFunction FindInferenceRule(std::string_view domain, std::string_view op);

// Numpy broadcasting of two shapes: a dimension of 1 stretches, an unknown one stays unknown unless
// the other side decides. kInvalidArgument when they cannot be broadcast.
// Source: https://onnx.ai/onnx/repo-docs/Broadcasting.html
Result<SymbolicShape> Broadcast(const SymbolicShape& a, const SymbolicShape& b);

// Gives inputs of a control-flow body that declare no type the type of what the node hands in.
void BindBodyInputs(const Node& node, std::span<const ValueType> inputs, Graph& body);

// Output 0 has the shape of input 0.
Status SameShapeAsInput(InferenceContext& context);

}  // namespace onnxd
