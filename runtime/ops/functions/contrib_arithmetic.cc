// com.microsoft operators of numbers and signals, said in operators that have kernels. Source of
// the semantics: onnxruntime's ContribOperators document.
#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/functions/dimensions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

constexpr const char* kMicrosoft = "com.microsoft";

// Real and imaginary parts, which are the last axis.
std::vector<Operand> Parts(FunctionBody& body, Operand x) {
  return body.CallMany("Split", {x}, 2,
                       MakeAttributes({{"axis", int64_t{-1}}, {"num_outputs", int64_t{2}}}));
}

// A times B, or times B's conjugate.
Status ComplexMul(FunctionBody& body) {
  const bool conjugate = body.node().op_type == "ComplexMulConj";
  const auto a = Parts(body, body.Input(0)), b = Parts(body, body.Input(1));
  const auto times = [&](Operand x, Operand y) { return body.Call("Mul", {x, y}); };
  const Operand real = body.Call(conjugate ? "Add" : "Sub", {times(a[0], b[0]), times(a[1], b[1])});
  const Operand imaginary =
      body.Call(conjugate ? "Sub" : "Add", {times(a[1], b[0]), times(a[0], b[1])});
  body.Return(0, body.Call("Concat", {real, imaginary}, AxisOf(-1)));
  return Status::Ok();
}

// The last `signal_ndim` axes of X are the signal.
Result<int64_t> SignalAxes(FunctionBody& body, int rank) {
  const Attributes& a = body.attributes();
  const int64_t axes = a.Int("signal_ndim", 1);
  if (rank < 0) return Unimplemented("the input's rank is not known");
  if (a.Int("onesided", 1) != 1 || a.Int("normalized", 0) != 0 || axes < 1 || axes > rank) {
    return InvalidArgument("onesided must be 1, normalized 0, signal_ndim within the rank");
  }
  return axes;
}

Operand Transform(FunctionBody& body, Operand x, int64_t axis, bool inverse, bool onesided) {
  return body.Call(
      "DFT", {x, {}, body.Number(static_cast<double>(axis), DataType::kInt64)},
      MakeAttributes({{"inverse", int64_t{inverse}}, {"onesided", int64_t{onesided}}}));
}

// Real [..., n] to the first half of its spectrum [..., n / 2 + 1, 2].
Status Rfft(FunctionBody& body) {
  ONNXD_ASSIGN_OR_RETURN(const int64_t axes, SignalAxes(body, body.InputRank(0)));
  Operand x = Transform(body, Unsqueeze(body, body.Input(0), -1), -2, false, true);
  for (int64_t axis = 1; axis < axes; ++axis) x = Transform(body, x, -2 - axis, false, false);
  body.Return(0, x);
  return Status::Ok();
}

// The way back: to real [..., 2 * (m - 1)] of a spectrum [..., m, 2].
Status Irfft(FunctionBody& body) {
  ONNXD_ASSIGN_OR_RETURN(const int64_t axes, SignalAxes(body, body.InputRank(0) - 1));
  Operand x = body.Input(0);
  for (int64_t axis = 1; axis < axes; ++axis) x = Transform(body, x, -2 - axis, true, false);
  // The second half is the first one's conjugate, backwards, without both ends.
  const Operand backwards = body.Call("Slice", {x, body.Integers({-2}), body.Integers({0}),
                                                body.Integers({-2}), body.Integers({-1})});
  const auto half = Parts(body, backwards);
  const Operand conjugate = body.Call("Concat", {half[0], body.Call("Neg", {half[1]})}, AxisOf(-1));
  const Operand whole = body.Call("Concat", {x, conjugate}, AxisOf(-2));
  body.Return(0, Squeeze(body, Parts(body, Transform(body, whole, -2, true, false))[0], -1));
  return Status::Ok();
}

// X + Y * gate
Status GatedAdd(FunctionBody& body) {
  const Operand scaled = body.Call("Mul", {body.Input(1), body.Input(2)});
  body.Return(0, body.Call("Add", {body.Input(0), scaled}));
  return Status::Ok();
}

// z * sigmoid(z) of z = scale * X
Status ScaledSilu(FunctionBody& body) {
  const Operand x = body.Cast(body.Input(0), DataType::kFloat);
  const float alpha = body.attributes().Float("alpha", 1);
  const Operand scale = body.HasInput(1)
                            ? body.Cast(body.Input(1), DataType::kFloat)
                            : body.Number(static_cast<double>(alpha), DataType::kFloat);
  const Operand z = body.Cast(body.Call("Mul", {x, scale}), body.InputType(0));
  body.Return(0, body.Call("Mul", {z, body.Call("Sigmoid", {z})}));
  return Status::Ok();
}

// RMS normalization of every `scale`-long row of X, times an activation of the gate; all in float.
Status GatedRmsNorm(FunctionBody& body) {
  const std::string activation = body.attributes().String("activation", "silu");
  if (activation != "silu" && activation != "swish" && activation != "sigmoid") {
    return InvalidArgument(StrCat("activation '", activation, "'"));
  }
  const Operand x = body.Cast(body.Input(0), DataType::kFloat);
  const Operand scale = body.Cast(body.Input(1), DataType::kFloat);
  Operand gate = body.Cast(body.Input(2), DataType::kFloat);
  const Operand rows =
      body.Call("Concat", {body.Integers({-1}), DimensionOf(body, scale, 0)}, AxisOf(0));
  const Operand normalized =
      body.Call("RMSNormalization", {body.Call("Reshape", {x, rows}), scale},
                MakeAttributes({{"axis", int64_t{-1}},
                                {"epsilon", body.attributes().Float("epsilon", 1e-5f)}}));
  const Operand y = body.Call("Reshape", {normalized, body.Call("Shape", {x})});
  const Operand open = body.Call("Sigmoid", {gate});
  gate = activation == "sigmoid" ? open : body.Call("Mul", {gate, open});
  body.Return(0, body.Cast(body.Call("Mul", {y, gate}), body.InputType(0)));
  return Status::Ok();
}

// Dropout(data + bias) + residual
Status BiasDropout(FunctionBody& body) {
  const Operand sum = body.Call("Add", {body.Input(0), body.Input(1)});
  const auto dropped =
      body.CallMany("Dropout", {sum, body.Input(3), body.Input(4)}, 2, body.attributes());
  body.Return(0, body.HasInput(2) ? body.Call("Add", {dropped[0], body.Input(2)}) : dropped[0]);
  if (body.HasOutput(1)) body.Return(1, dropped[1]);
  return Status::Ok();
}

Status GemmFastGelu(FunctionBody& body) {
  const Operand product = body.Call("MatMul", {body.Input(0), body.Input(1)});
  body.Return(0, body.Call("FastGelu", {product, body.Input(2)}, {}, kMicrosoft));
  return Status::Ok();
}

// All windows of `size` elements along an axis; their elements become the last axis.
Status UnfoldTensor(FunctionBody& body) {
  const Attributes& a = body.attributes();
  const int64_t rank = body.InputRank(0), size = a.Int("size", 0), step = a.Int("step", 1);
  int64_t axis = a.Int("dim", -1);
  if (rank < 0) return Unimplemented("the input's rank is not known");
  if (axis < 0) axis += rank;
  if (axis < 0 || axis >= rank || size < 1 || step < 1) {
    return InvalidArgument("dim, size or step is out of range");
  }
  const Operand extent = DimensionOf(body, body.Input(0), axis);
  const Operand last = body.Call("Sub", {extent, body.Integers({size})});
  const Operand count =
      body.Call("Add", {body.Call("Div", {last, body.Integers({step})}), body.Integers({1})});
  const Operand first = body.Call("Mul", {Range(body, count), body.Integers({step})});
  const Operand places = body.Call(
      "Add", {Unsqueeze(body, first, 1), Unsqueeze(body, Range(body, body.Integers({size})), 0)});
  const Operand windows = body.Call("Gather", {body.Input(0), places}, AxisOf(axis));
  std::vector<int64_t> perm;
  for (int64_t i = 0; i <= rank; ++i) {
    if (i != axis + 1) perm.push_back(i);
  }
  perm.push_back(axis + 1);
  body.Return(0, body.Call("Transpose", {windows}, MakeAttributes({{"perm", perm}})));
  return Status::Ok();
}

// ConvTranspose whose pads, [begins..., ends...], are an input: they cut what it gives without.
Status ConvTransposeWithDynamicPads(FunctionBody& body) {
  const int rank = body.InputRank(0);
  if (rank < 3) return Unimplemented("the input's rank is not known");
  if (body.attributes().String("auto_pad", "NOTSET") != "NOTSET") return Unimplemented("auto_pad");
  const Operand whole =
      body.Call("ConvTranspose", {body.Input(0), body.Input(1), body.Input(3)}, body.attributes());
  if (!body.HasInput(2)) {
    body.Return(0, whole);
    return Status::Ok();
  }
  std::vector<int64_t> axes;
  for (int64_t axis = 2; axis < rank; ++axis) axes.push_back(axis);
  const auto pads =
      body.CallMany("Split", {body.Input(2)}, 2,
                    MakeAttributes({{"axis", int64_t{0}}, {"num_outputs", int64_t{2}}}));
  const Operand extents = body.Call("Shape", {whole}, MakeAttributes({{"start", int64_t{2}}}));
  body.Return(0, body.Call("Slice", {whole, pads[0], body.Call("Sub", {extents, pads[1]}),
                                     body.Integers(axes)}));
  return Status::Ok();
}

constexpr FunctionEntry kFunctions[] = {
    {kMicrosoft, "BiasDropout", 1, 1, BiasDropout},
    {kMicrosoft, "ComplexMul", 1, 1, ComplexMul},
    {kMicrosoft, "ComplexMulConj", 1, 1, ComplexMul},
    {kMicrosoft, "ConvTransposeWithDynamicPads", 1, 1, ConvTransposeWithDynamicPads},
    {kMicrosoft, "GatedAdd", 1, 1, GatedAdd},
    {kMicrosoft, "GatedRMSNorm", 1, 1, GatedRmsNorm},
    {kMicrosoft, "GemmFastGelu", 1, 1, GemmFastGelu},
    {kMicrosoft, "Irfft", 1, 1, Irfft},
    {kMicrosoft, "Rfft", 1, 1, Rfft},
    {kMicrosoft, "ScaledSiLU", 1, 1, ScaledSilu},
    {kMicrosoft, "UnfoldTensor", 1, 1, UnfoldTensor},
};

}  // namespace

std::span<const FunctionEntry> ContribArithmeticFunctions() { return kFunctions; }

}  // namespace onnxd
