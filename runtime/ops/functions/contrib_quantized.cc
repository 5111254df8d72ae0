// com.microsoft operators of quantized files, said as dequantize, compute in float, quantize.
// Source of the semantics: onnxruntime's ContribOperators document.
#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

Operand Dequantize(FunctionBody& body, size_t x, size_t scale, size_t zero) {
  return body.Call("DequantizeLinear", {body.Input(x), body.Input(scale), body.Input(zero)});
}

// To the type of input `like` when the zero point, which would tell it, is left out.
Operand Quantize(FunctionBody& body, Operand x, size_t scale, size_t zero, size_t like) {
  Attributes attributes;
  if (!body.HasInput(zero)) {
    attributes.Set("output_dtype", static_cast<int64_t>(body.InputType(like)));
  }
  return body.Call("QuantizeLinear", {x, body.Input(scale), body.Input(zero)}, attributes);
}

Attributes Without(const Attributes& from, std::initializer_list<const char*> names) {
  Attributes attributes = from;
  for (const char* name : names) attributes.Erase(name);
  return attributes;
}

// X, its scale and zero point, the result's scale and zero point.
Status QLinearAveragePool(FunctionBody& body) {
  const bool last = body.attributes().Int("channels_last", 0) != 0;
  const int rank = body.InputRank(0);
  if (last && rank < 3) return Unimplemented("the input's rank is not known");
  std::vector<int64_t> to_first = {0, rank - 1}, to_last = {0};
  for (int axis = 1; axis < rank - 1; ++axis) to_first.push_back(axis);
  for (int axis = 2; axis < rank; ++axis) to_last.push_back(axis);
  to_last.push_back(1);
  Operand x = Dequantize(body, 0, 1, 2);
  if (last) x = body.Call("Transpose", {x}, MakeAttributes({{"perm", to_first}}));
  Operand y = body.Call("AveragePool", {x}, Without(body.attributes(), {"channels_last"}));
  if (last) y = body.Call("Transpose", {y}, MakeAttributes({{"perm", to_last}}));
  body.Return(0, Quantize(body, y, 3, 4, 0));
  return Status::Ok();
}

Status QLinearReduceMean(FunctionBody& body) {
  const auto axes = body.attributes().Ints("axes");
  const Operand over = axes.empty() ? Operand{} : body.Integers(axes);
  const Operand mean = body.Call("ReduceMean", {Dequantize(body, 0, 1, 2), over},
                                 Without(body.attributes(), {"axes"}));
  body.Return(0, Quantize(body, mean, 3, 4, 0));
  return Status::Ok();
}

// condition, X, its scale and zero point, Y with its, Z's scale and zero point.
Status QLinearWhere(FunctionBody& body) {
  const Operand z =
      body.Call("Where", {body.Input(0), Dequantize(body, 1, 2, 3), Dequantize(body, 4, 5, 6)});
  body.Return(0, Quantize(body, z, 7, 8, 1));
  return Status::Ok();
}

// Weights [directions, input, 4 * hidden] and recurrence [directions, hidden, 4 * hidden] with a
// scale and zero point per direction, or per direction and column. Inputs and states stay float,
// where onnxruntime rounds them to 8 bits.
Status DynamicQuantizeLSTM(FunctionBody& body) {
  const auto weights = [&](size_t w, size_t scale, size_t zero) {
    // [directions, 1, 1] or [directions, 1, columns] beside the weights.
    const int rank = body.InputRank(scale);
    const Operand shape = rank == 2 ? body.Integers({0, 1, -1}) : body.Integers({-1, 1, 1});
    Operand x = body.Cast(body.Input(w), DataType::kFloat);
    if (body.HasInput(zero)) {
      const Operand zeros = body.Cast(body.Input(zero), DataType::kFloat);
      x = body.Call("Sub", {x, body.Call("Reshape", {zeros, shape})});
    }
    x = body.Call("Mul", {x, body.Call("Reshape", {body.Input(scale), shape})});
    return body.Call("Transpose", {x}, MakeAttributes({{"perm", std::vector<int64_t>{0, 2, 1}}}));
  };
  if (body.InputRank(8) < 0 || body.InputRank(10) < 0) {
    return Unimplemented("the rank of W_scale or R_scale is not known");
  }
  const Operand w = weights(1, 8, 9), r = weights(2, 10, 11);
  const auto results = body.CallMany("LSTM",
                                     {body.Input(0), w, r, body.Input(3), body.Input(4),
                                      body.Input(5), body.Input(6), body.Input(7)},
                                     3, body.attributes());
  for (size_t i = 0; i < results.size(); ++i) body.Return(i, results[i]);
  return Status::Ok();
}

constexpr const char* kMicrosoft = "com.microsoft";
constexpr FunctionEntry kFunctions[] = {
    {kMicrosoft, "DynamicQuantizeLSTM", 1, 1, DynamicQuantizeLSTM},
    {kMicrosoft, "QLinearAveragePool", 1, 1, QLinearAveragePool},
    {kMicrosoft, "QLinearReduceMean", 1, 1, QLinearReduceMean},
    {kMicrosoft, "QLinearWhere", 1, 1, QLinearWhere},
};

}  // namespace

std::span<const FunctionEntry> ContribQuantizedFunctions() { return kFunctions; }

}  // namespace onnxd
