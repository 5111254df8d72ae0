// com.microsoft operators of quantized files, said as dequantize, compute in float, quantize.
// Source of the semantics: onnxruntime's ContribOperators document.
#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

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

// A and B, each with its scale and zero point, C's scale and zero point.
Status QuantizedPair(FunctionBody& body, const char* op_type) {
  const Operand c = body.Call(op_type, {Dequantize(body, 0, 1, 2), Dequantize(body, 3, 4, 5)});
  body.Return(0, Quantize(body, c, 6, 7, 0));
  return Status::Ok();
}
Status QLinearAdd(FunctionBody& body) { return QuantizedPair(body, "Add"); }
Status QLinearMul(FunctionBody& body) { return QuantizedPair(body, "Mul"); }

// X, its scale and zero point, the result's scale and zero point; element by element.
Status QLinearLeakyRelu(FunctionBody& body) {
  const Operand y = body.Call("LeakyRelu", {Dequantize(body, 0, 1, 2)}, body.attributes());
  body.Return(0, Quantize(body, y, 3, 4, 0));
  return Status::Ok();
}
Status QLinearSigmoid(FunctionBody& body) {
  body.Return(0, Quantize(body, body.Call("Sigmoid", {Dequantize(body, 0, 1, 2)}), 3, 4, 0));
  return Status::Ok();
}

// Before opset 13 the input is seen as a matrix that is cut at the axis, which is the same along
// the last one.
Status QLinearSoftmax(FunctionBody& body) {
  const int64_t axis = body.attributes().Int("axis", -1);
  const int rank = body.InputRank(0);
  const bool is_last = axis == -1 || (rank > 0 && axis == rank - 1);
  if (body.attributes().Int("opset", 1) < 13 && !is_last) {
    return Unimplemented("an axis that is not the last, before opset 13");
  }
  const Operand y = body.Call("Softmax", {Dequantize(body, 0, 1, 2)},
                              MakeAttributes({{"axis", is_last ? int64_t{-1} : axis}}));
  body.Return(0, Quantize(body, y, 3, 4, 0));
  return Status::Ok();
}

// The result's scale and zero point, then each part with its own.
Status QLinearConcat(FunctionBody& body) {
  std::vector<Operand> parts;
  for (size_t i = 2; i + 2 < body.node().inputs.size(); i += 3) {
    parts.push_back(Dequantize(body, i, i + 1, i + 2));
  }
  if (parts.empty()) return Unimplemented("no parts");
  const Operand y = body.CallMany("Concat", parts, 1, body.attributes())[0];
  body.Return(0, Quantize(body, y, 0, 1, 2));
  return Status::Ok();
}

Status QLinearGlobalAveragePool(FunctionBody& body) {
  const bool last = body.attributes().Int("channels_last", 0) != 0;
  const int rank = body.InputRank(0);
  if (last && rank < 3) return Unimplemented("the input's rank is not known");
  Operand x = Dequantize(body, 0, 1, 2);
  if (last) x = ChannelsFirst(body, x, rank);
  Operand y = body.Call("GlobalAveragePool", {x});
  if (last) y = ChannelsLast(body, y, rank);
  body.Return(0, Quantize(body, y, 3, 4, 0));
  return Status::Ok();
}

// Bytes a and b by one scale each, b's perhaps by column, plus a bias where there is one.
Operand ScaledProduct(FunctionBody& body, Operand a, Operand a_scale, Operand a_zero,
                      size_t b_scale, size_t b_zero, size_t bias) {
  const Operand sums = body.Call("MatMulInteger", {a, body.Input(1), a_zero, body.Input(b_zero)});
  const Operand scale = body.Call("Mul", {a_scale, body.Input(b_scale)});
  const Operand y = body.Call("Mul", {body.Cast(sums, DataType::kFloat), scale});
  return body.HasInput(bias) ? body.Call("Add", {y, body.Input(bias)}) : y;
}

// A, B, their scales, their zero points, bias.
Status MatMulIntegerToFloat(FunctionBody& body) {
  if (body.InputRank(3) > 1 || body.InputRank(3) < 0) {
    return Unimplemented("b_scale is of unknown rank, or of more than one axis");
  }
  body.Return(0, ScaledProduct(body, body.Input(0), body.Input(2), body.Input(4), 3, 5, 6));
  return Status::Ok();
}

// A of floats, B, its scale and zero point, bias.
Status DynamicQuantizeMatMul(FunctionBody& body) {
  if (body.InputRank(2) > 1 || body.InputRank(2) < 0) {
    return Unimplemented("b_scale is of unknown rank, or of more than one axis");
  }
  const auto a = body.CallMany("DynamicQuantizeLinear", {body.Input(0)}, 3, {});
  body.Return(0, ScaledProduct(body, a[0], a[1], a[2], 2, 3, 4));
  return Status::Ok();
}

// X, its scale and zero point, the result's scale and zero point.
Status QLinearAveragePool(FunctionBody& body) {
  const bool last = body.attributes().Int("channels_last", 0) != 0;
  const int rank = body.InputRank(0);
  if (last && rank < 3) return Unimplemented("the input's rank is not known");
  Operand x = Dequantize(body, 0, 1, 2);
  if (last) x = ChannelsFirst(body, x, rank);
  Operand y = body.Call("AveragePool", {x}, Without(body.attributes(), {"channels_last"}));
  if (last) y = ChannelsLast(body, y, rank);
  body.Return(0, Quantize(body, y, 3, 4, 0));
  return Status::Ok();
}

// ai.onnx QLinearConv, whose input and output may have their channels last; the weights never have.
Status QLinearConv(FunctionBody& body) {
  const bool last = body.attributes().Int("channels_last", 0) != 0;
  const int rank = body.InputRank(0);
  if (last && rank < 3) return Unimplemented("the input's rank is not known");
  std::vector<Operand> inputs;
  for (size_t i = 0; i < body.node().inputs.size(); ++i) inputs.push_back(body.Input(i));
  if (last) inputs[0] = ChannelsFirst(body, inputs[0], rank);
  const Attributes attributes = Without(body.attributes(), {"channels_last"});
  Operand y = body.CallMany("QLinearConv", inputs, 1, attributes)[0];
  if (last) y = ChannelsLast(body, y, rank);
  body.Return(0, y);
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
// where onnxruntime and our kernel of constant weights round them to 8 bits.
Status DynamicQuantizeLSTM(FunctionBody& body) {
  const Attributes turned = MakeAttributes({{"perm", std::vector<int64_t>{0, 2, 1}}});
  const auto weights = [&](size_t w, size_t scale, size_t zero) {
    if (body.InputRank(scale) == 1) {  // which providers fold where the weights are constant
      const Operand x =
          body.Call("DequantizeLinear", {body.Input(w), body.Input(scale), body.Input(zero)},
                    MakeAttributes({{"axis", int64_t{0}}}));
      return body.Call("Transpose", {x}, turned);
    }
    // [directions, 1, 1] or [directions, 1, columns] beside the weights.
    const int rank = body.InputRank(scale);
    const Operand shape = rank == 2 ? body.Integers({0, 1, -1}) : body.Integers({-1, 1, 1});
    Operand x = body.Cast(body.Input(w), DataType::kFloat);
    if (body.HasInput(zero)) {
      const Operand zeros = body.Cast(body.Input(zero), DataType::kFloat);
      x = body.Call("Sub", {x, body.Call("Reshape", {zeros, shape})});
    }
    x = body.Call("Mul", {x, body.Call("Reshape", {body.Input(scale), shape})});
    return body.Call("Transpose", {x}, turned);
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

// What 4-bit codes stand for in bitsandbytes: FP4 (one sign bit) and NF4 (quantiles of the normal
// distribution). Source: Dettmers et al., QLoRA (arXiv 2305.14314).
constexpr float kFp4[] = {
    0,     5.208333333e-03f,  0.66666667f,  1,  0.33333333f,  0.5f,  0.16666667f,  0.25f,
    -0.0f, -5.208333333e-03f, -0.66666667f, -1, -0.33333333f, -0.5f, -0.16666667f, -0.25f};
constexpr float kNf4[] = {-1,
                          -0.6961928009986877f,
                          -0.5250730514526367f,
                          -0.39491748809814453f,
                          -0.28444138169288635f,
                          -0.18477343022823334f,
                          -0.09105003625154495f,
                          0,
                          0.07958029955625534f,
                          0.16093020141124725f,
                          0.24611230194568634f,
                          0.33791524171829224f,
                          0.44070982933044434f,
                          0.5626170039176941f,
                          0.7229568362236023f,
                          1};

// A, B: codes of [N, K] in a row, the first in the high half of a byte; absmax per block of them.
Status MatMulBnb4(FunctionBody& body) {
  const Attributes& a = body.attributes();
  const int64_t n = a.Int("N", 0), k = a.Int("K", 0), block = a.Int("block_size", 0);
  constexpr int64_t kMax = int64_t{1} << 30;
  if (n < 1 || k < 1 || n > kMax || k > kMax || block < 16 || block > kMax) {
    return InvalidArgument("N, K or block_size is out of range");
  }
  if (a.Int("transB", 1) != 1) return Unimplemented("transB other than 1");
  const auto& table = a.Int("quant_type", 0) == 0 ? kFp4 : kNf4;
  const auto byte = [&](uint8_t value) {
    return body.Constant(Tensor::Of<uint8_t>(Shape{}, {value}));
  };
  const Operand high = body.Call("BitShift", {body.Input(1), byte(4)},
                                 MakeAttributes({{"direction", std::string("RIGHT")}}));
  const Operand low = body.Call("BitwiseAnd", {body.Input(1), byte(15)});
  const Operand pairs = body.Call("Concat",
                                  {body.Call("Reshape", {high, body.Integers({-1, 1})}),
                                   body.Call("Reshape", {low, body.Integers({-1, 1})})},
                                  MakeAttributes({{"axis", int64_t{1}}}));
  Operand codes = body.Call("Reshape", {pairs, body.Integers({-1})});
  codes = Slice(body, codes, body.Integers({0}), body.Integers({n * k}), 0);
  const Operand values = body.Call("Gather", {body.Constant(Tensor::Of<float>(Shape{16}, table)),
                                              body.Cast(codes, DataType::kInt32)});
  const Operand blocks =
      body.Call("Div", {Range(body, body.Integers({n * k})), body.Integers({block})});
  const Operand absmax =
      body.Cast(body.Call("Reshape", {body.Input(2), body.Integers({-1})}), DataType::kFloat);
  const Operand weights = body.Call("Mul", {values, body.Call("Gather", {absmax, blocks})});
  const Operand matrix = body.Call("Reshape", {weights, body.Integers({n, k})});
  const Operand turned =
      body.Call("Transpose", {matrix}, MakeAttributes({{"perm", std::vector<int64_t>{1, 0}}}));
  const Operand x = body.Cast(body.Input(0), DataType::kFloat);
  body.Return(0, body.Cast(body.Call("MatMul", {x, turned}), body.InputType(0)));
  return Status::Ok();
}

constexpr const char* kMicrosoft = "com.microsoft";
constexpr FunctionEntry kFunctions[] = {
    {kMicrosoft, "DynamicQuantizeLSTM", 1, 1, DynamicQuantizeLSTM},
    {kMicrosoft, "DynamicQuantizeMatMul", 1, 1, DynamicQuantizeMatMul},
    {kMicrosoft, "MatMulBnb4", 1, 1, MatMulBnb4},
    {kMicrosoft, "MatMulIntegerToFloat", 1, 1, MatMulIntegerToFloat},
    {kMicrosoft, "QLinearAdd", 1, 1, QLinearAdd},
    {kMicrosoft, "QLinearAveragePool", 1, 1, QLinearAveragePool},
    {kMicrosoft, "QLinearConcat", 1, 1, QLinearConcat},
    {kMicrosoft, "QLinearConv", 1, 1, QLinearConv},
    {kMicrosoft, "QLinearGlobalAveragePool", 1, 1, QLinearGlobalAveragePool},
    {kMicrosoft, "QLinearLeakyRelu", 1, 1, QLinearLeakyRelu},
    {kMicrosoft, "QLinearMul", 1, 1, QLinearMul},
    {kMicrosoft, "QLinearReduceMean", 1, 1, QLinearReduceMean},
    {kMicrosoft, "QLinearSigmoid", 1, 1, QLinearSigmoid},
    {kMicrosoft, "QLinearSoftmax", 1, 1, QLinearSoftmax},
    {kMicrosoft, "QLinearWhere", 1, 1, QLinearWhere},
};

}  // namespace

std::span<const FunctionEntry> ContribQuantizedFunctions() { return kFunctions; }

}  // namespace onnxd
