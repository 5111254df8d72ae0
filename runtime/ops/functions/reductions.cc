// Reductions with ONNX's own function bodies, whose axes are an input (version 18 on).
#include "runtime/ops/functions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

Operand Sum(FunctionBody& body, Operand x) {
  return body.Call("ReduceSum", {x, body.Input(1)}, body.attributes());
}

Status ReduceL1(FunctionBody& body) {
  body.Return(0, Sum(body, body.Call("Abs", {body.Input(0)})));
  return Status::Ok();
}

Operand SumOfSquares(FunctionBody& body, Operand x) { return Sum(body, body.Call("Mul", {x, x})); }

Status ReduceSumSquare(FunctionBody& body) {
  body.Return(0, SumOfSquares(body, body.Input(0)));
  return Status::Ok();
}

// Integers go through float, as in the standard's body.
Status ReduceL2(FunctionBody& body) {
  const DataType type = body.InputType(0);
  if (type == DataType::kUndefined) return Unimplemented("the element type is not known");
  const Operand x =
      IsFloatingPoint(type) ? body.Input(0) : body.Cast(body.Input(0), DataType::kDouble);
  const Operand root = body.Call("Sqrt", {SumOfSquares(body, x)});
  body.Return(0, IsFloatingPoint(type) ? root : body.Cast(root, type));
  return Status::Ok();
}

Status ReduceLogSum(FunctionBody& body) {
  body.Return(0, body.Call("Log", {Sum(body, body.Input(0))}));
  return Status::Ok();
}

// log(sum(exp(x))); the largest element stands outside of the sum, where it cannot overflow.
Status ReduceLogSumExp(FunctionBody& body) {
  const DataType type = body.InputType(0);
  if (!IsFloatingPoint(type)) return Unimplemented("the input is not of floats");
  const Operand axes = body.Input(1);
  Attributes kept = body.attributes();
  kept.Set("keepdims", int64_t{1});
  const Operand largest = body.Call("ReduceMax", {body.Input(0), axes}, kept);
  const Operand zero = body.Number(0, type);
  // An infinity cannot be subtracted from itself.
  const Operand shift = body.Call("Where", {body.Call("IsInf", {largest}), zero, largest});
  const Operand sum = Sum(body, body.Call("Exp", {body.Call("Sub", {body.Input(0), shift})}));
  const Operand back = body.Call("ReduceMax", {shift, axes}, body.attributes());
  body.Return(0, body.Call("Add", {body.Call("Log", {sum}), back}));
  return Status::Ok();
}

constexpr int kAll = 1 << 30;
constexpr FunctionEntry kFunctions[] = {
    {"", "ReduceL1", 18, kAll, ReduceL1},
    {"", "ReduceL2", 18, kAll, ReduceL2},
    {"", "ReduceLogSum", 18, kAll, ReduceLogSum},
    {"", "ReduceLogSumExp", 18, kAll, ReduceLogSumExp},
    {"", "ReduceSumSquare", 18, kAll, ReduceSumSquare},
};

}  // namespace

std::span<const FunctionEntry> ReductionFunctions() { return kFunctions; }

}  // namespace onnxd
