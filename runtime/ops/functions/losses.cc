// NegativeLogLikelihoodLoss and SoftmaxCrossEntropyLoss as their parts. Source: the texts and
// function bodies of ONNX NegativeLogLikelihoodLoss-22 and SoftmaxCrossEntropyLoss-13.
#include <optional>
#include <string>

#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

// logarithms [batch, classes, d...], input 1: the class of each place [batch, d...], input 2: a
// weight per class, or none.
Status Likelihood(FunctionBody& body, Operand logarithms) {
  const DataType type = body.InputType(0);
  const Attributes& a = body.attributes();
  const std::string reduction = a.String("reduction", "mean");
  if (type == DataType::kUndefined) return Unimplemented("the type of the input is not known");
  if (reduction != "none" && reduction != "sum" && reduction != "mean") {
    return InvalidArgument(StrCat("reduction is '", reduction, "'"));
  }
  Operand target = body.Cast(body.Input(1), DataType::kInt64), ignored;
  if (a.Has("ignore_index")) {
    const auto index = static_cast<double>(a.Int("ignore_index", 0));
    ignored = body.Call("Equal", {target, body.Number(index, DataType::kInt64)});
    target = body.Call("Where", {ignored, body.Number(0, DataType::kInt64), target});
  }
  const Operand chosen =
      body.Call("GatherElements", {logarithms, Unsqueeze(body, target, 1)}, AxisOf(1));
  Operand loss = body.Call("Neg", {Squeeze(body, chosen, 1)});
  Operand weight;
  if (body.HasInput(2)) weight = body.Call("Gather", {body.Input(2), target});
  if (!ignored.absent()) {
    const Operand counts = weight.absent() ? body.Number(1, type) : weight;
    weight = body.Call("Where", {ignored, body.Number(0, type), counts});
  }
  if (!weight.absent()) loss = body.Call("Mul", {loss, weight});
  const Attributes scalar = MakeAttributes({{"keepdims", int64_t{0}}});
  if (reduction == "sum") loss = body.Call("ReduceSum", {loss}, scalar);
  if (reduction == "mean" && weight.absent()) loss = body.Call("ReduceMean", {loss}, scalar);
  if (reduction == "mean" && !weight.absent()) {
    loss = body.Call(
        "Div", {body.Call("ReduceSum", {loss}, scalar), body.Call("ReduceSum", {weight}, scalar)});
  }
  body.Return(0, loss);
  return Status::Ok();
}

Status NegativeLogLikelihoodLoss(FunctionBody& body) { return Likelihood(body, body.Input(0)); }

Status SoftmaxCrossEntropyLoss(FunctionBody& body) {
  const Operand logarithms = body.Call("LogSoftmax", {body.Input(0)}, AxisOf(1));
  if (body.HasOutput(1)) body.Return(1, logarithms);
  return Likelihood(body, logarithms);
}

constexpr int kAll = 1 << 30;
constexpr FunctionEntry kFunctions[] = {
    {"", "NegativeLogLikelihoodLoss", 12, kAll, NegativeLogLikelihoodLoss},
    {"", "SoftmaxCrossEntropyLoss", 12, kAll, SoftmaxCrossEntropyLoss},
};

}  // namespace

std::span<const FunctionEntry> LossFunctions() { return kFunctions; }

}  // namespace onnxd
