// Losses and optimizers.
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// One loss per label, or a scalar.
Status Loss(InferenceContext& context) {
  if (context.attributes().String("reduction", "mean") == "none") {
    if (const SymbolicShape* labels = context.shape(1)) context.SetShape(0, *labels);
  } else {
    context.SetShape(0, {});
  }
  if (const SymbolicShape* scores = context.shape(0)) context.SetShape(1, *scores);
  return Status::Ok();
}

// Adagrad, Adam and Momentum: R, T, then groups of tensors: X..., G..., states...; outputs are X...
// and the states.
Status Optimizer(InferenceContext& context) {
  const size_t states = context.node().op_type == "Adam" ? 2 : 1;
  if (context.input_count() < 2) return context.Fail("it lacks R and T");
  const size_t tensors = (context.input_count() - 2) / (states + 2);
  if (tensors * (states + 2) + 2 != context.input_count() ||
      context.output_count() != tensors * (states + 1)) {
    return context.Fail("its operands do not form groups");
  }
  for (size_t i = 0; i < context.output_count(); ++i) {
    const size_t source = i < tensors ? 2 + i : 2 + tensors + i;
    context.SetType(i, context.input(source));
  }
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "NegativeLogLikelihoodLoss", Loss},
    {"", "SoftmaxCrossEntropyLoss", Loss},
    {"ai.onnx.preview.training", "Adagrad", Optimizer},
    {"ai.onnx.preview.training", "Adam", Optimizer},
    {"ai.onnx.preview.training", "Momentum", Optimizer},
};

}  // namespace

std::span<const InferenceRule> TrainingRules() { return kRules; }

}  // namespace onnxd
