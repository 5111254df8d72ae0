// Windows, random bits and quantization whose function bodies are ONNX's own: BlackmanWindow,
// HammingWindow, HannWindow, Bernoulli, DynamicQuantizeLinear.
#include <initializer_list>
#include <numbers>

#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

// sum of (-1)^i a[i] cos(2 pi i n / N), N = size, or size - 1 when it is not periodic.
Status CosineWindow(FunctionBody& body, std::initializer_list<double> coefficients) {
  const int64_t to = body.attributes().Int("output_datatype", 1);
  if (!IsDataType(to)) return InvalidArgument(StrCat("output_datatype is ", to));
  const DataType type = DataType::kDouble;
  const auto number = [&](double value) { return body.Number(value, type); };
  const Operand size = body.Cast(body.Input(0), type);
  Operand period = size;
  if (body.attributes().Int("periodic", 1) == 0) period = body.Call("Sub", {size, number(1)});
  const Operand n = body.Call("Range", {number(0), size, number(1)});
  Operand sum;
  double order = 0, sign = 1;
  for (const double coefficient : coefficients) {
    const Operand angle =
        body.Call("Div", {body.Call("Mul", {n, number(2 * std::numbers::pi * order)}), period});
    const Operand term = body.Call("Mul", {body.Call("Cos", {angle}), number(sign * coefficient)});
    sum = sum.absent() ? term : body.Call("Add", {sum, term});
    order += 1;
    sign = -sign;
  }
  body.Return(0, body.Cast(sum, static_cast<DataType>(to)));
  return Status::Ok();
}

Status HannWindow(FunctionBody& body) { return CosineWindow(body, {0.5, 0.5}); }
Status HammingWindow(FunctionBody& body) { return CosineWindow(body, {25.0 / 46, 21.0 / 46}); }
Status BlackmanWindow(FunctionBody& body) { return CosineWindow(body, {0.42, 0.5, 0.08}); }

// y, its scale and zero point: the range of x and 0 on 0 to 255.
Status DynamicQuantizeLinear(FunctionBody& body) {
  const Operand x = body.Input(0), zero = body.Number(0, DataType::kFloat);
  const Operand codes = body.Number(255, DataType::kFloat), one = body.Number(1, DataType::kFloat);
  const Attributes scalar = MakeAttributes({{"keepdims", int64_t{0}}});
  const Operand low = body.Call("Min", {body.Call("ReduceMin", {x}, scalar), zero});
  const Operand high = body.Call("Max", {body.Call("ReduceMax", {x}, scalar), zero});
  const Operand range = body.Call("Sub", {high, low});
  // All zeros have any scale.
  const Operand scale = body.Call(
      "Where", {body.Call("Equal", {range, zero}), one, body.Call("Div", {range, codes})});
  const Operand place = body.Call("Round", {body.Call("Div", {body.Call("Neg", {low}), scale})});
  const Operand point = body.Cast(body.Call("Clip", {place, zero, codes}), DataType::kUint8);
  body.Return(0, body.Call("QuantizeLinear", {x, scale, point}));
  body.Return(1, scale);
  body.Return(2, point);
  return Status::Ok();
}

// 1 with the probability that x says.
Status Bernoulli(FunctionBody& body) {
  const int64_t to = body.attributes().Int("dtype", static_cast<int64_t>(body.InputType(0)));
  if (!IsDataType(to)) return Unimplemented("the type of the input is not known");
  Attributes attributes;
  if (body.attributes().Has("seed")) attributes.Set("seed", body.attributes().Float("seed", 0));
  const Operand drawn = body.Call("RandomUniformLike", {body.Input(0)}, attributes);
  body.Return(0, body.Cast(body.Call("Less", {drawn, body.Input(0)}), static_cast<DataType>(to)));
  return Status::Ok();
}

constexpr int kAll = 1 << 30;
constexpr FunctionEntry kFunctions[] = {
    {"", "Bernoulli", 15, kAll, Bernoulli},
    {"", "BlackmanWindow", 17, kAll, BlackmanWindow},
    {"", "DynamicQuantizeLinear", 11, kAll, DynamicQuantizeLinear},
    {"", "HammingWindow", 17, kAll, HammingWindow},
    {"", "HannWindow", 17, kAll, HannWindow},
};

}  // namespace

std::span<const FunctionEntry> GeneratorFunctions() { return kFunctions; }

}  // namespace onnxd
