// Softmax and the normalizations with ONNX's own function bodies; InstanceNormalization and Gemm,
// which ONNX gives none, for element types without a kernel.
#include <optional>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"

namespace onnxd {
namespace {

using Operand = FunctionBody::Operand;

Attributes KeepDims() { return MakeAttributes({{"keepdims", int64_t{1}}}); }

// exp(x - max) and its sum along the axis.
std::pair<Operand, Operand> ShiftedExponentials(FunctionBody& body, Operand& shifted) {
  const Operand axis = body.Integers({body.attributes().Int("axis", -1)});
  const Operand x = body.Input(0);
  shifted = body.Call("Sub", {x, body.Call("ReduceMax", {x, axis}, KeepDims())});
  const Operand exponentials = body.Call("Exp", {shifted});
  return {exponentials, body.Call("ReduceSum", {exponentials, axis}, KeepDims())};
}

Status Softmax(FunctionBody& body) {
  Operand shifted;
  const auto parts = ShiftedExponentials(body, shifted);
  body.Return(0, body.Call("Div", {parts.first, parts.second}));
  return Status::Ok();
}

Status LogSoftmax(FunctionBody& body) {
  Operand shifted;
  const auto parts = ShiftedExponentials(body, shifted);
  body.Return(0, body.Call("Sub", {shifted, body.Call("Log", {parts.second})}));
  return Status::Ok();
}

// Axes from `axis` to the last; nullopt when there is no such axis, or the rank is not known and
// `axis` counts from the front.
std::optional<std::vector<int64_t>> TrailingAxes(const FunctionBody& body, int64_t axis) {
  const int rank = body.InputRank(0);
  if (axis >= 0 && rank < 0) return std::nullopt;
  const int64_t first = axis < 0 ? axis : axis - rank;
  if (first >= 0 || first < -(rank < 0 ? kMaxRank : rank)) return std::nullopt;
  std::vector<int64_t> axes;
  for (int64_t a = first; a < 0; ++a) axes.push_back(a);
  return axes;
}

// The type of the statistics: what stash_type names, float unless it says otherwise.
DataType StashType(const FunctionBody& body) {
  return static_cast<DataType>(body.attributes().Int("stash_type", 1));
}

// What they are computed in: never less than the input.
DataType ComputeType(const FunctionBody& body) {
  return body.InputType(0) == DataType::kDouble ? DataType::kDouble : StashType(body);
}

// x less its mean over some axes, and the root of its variance there and the attribute epsilon.
struct Statistics {
  Operand mean, centred, deviation;
};

Statistics StatisticsOf(FunctionBody& body, Operand x, Operand axes, DataType type) {
  Statistics s;
  s.mean = body.Call("ReduceMean", {x, axes}, KeepDims());
  s.centred = body.Call("Sub", {x, s.mean});
  const Operand variance =
      body.Call("ReduceMean", {body.Call("Mul", {s.centred, s.centred}), axes}, KeepDims());
  const Operand epsilon =
      body.Number(static_cast<double>(body.attributes().Float("epsilon", 1e-5f)), type);
  s.deviation = body.Call("Sqrt", {body.Call("Add", {variance, epsilon})});
  return s;
}

Status LayerNormalization(FunctionBody& body) {
  const auto axes = TrailingAxes(body, body.attributes().Int("axis", -1));
  const DataType type = body.InputType(0), compute = ComputeType(body);
  if (!axes || axes->empty() || type == DataType::kUndefined) {
    return Unimplemented("the input's type or rank is not known");
  }
  const Operand over = body.Integers(*axes);
  const Operand x = body.Cast(body.Input(0), compute);
  const Statistics statistics = StatisticsOf(body, x, over, compute);
  Operand y = body.Cast(body.Call("Div", {statistics.centred, statistics.deviation}), type);
  y = body.Call("Mul", {y, body.Input(1)});
  if (body.HasInput(2)) y = body.Call("Add", {y, body.Input(2)});
  body.Return(0, y);
  if (body.HasOutput(1)) body.Return(1, body.Cast(statistics.mean, StashType(body)));
  if (body.HasOutput(2)) {
    body.Return(2, body.Cast(body.Call("Reciprocal", {statistics.deviation}), StashType(body)));
  }
  return Status::Ok();
}

Status RmsNormalization(FunctionBody& body) {
  const auto axes = TrailingAxes(body, body.attributes().Int("axis", -1));
  const DataType type = body.InputType(0), compute = ComputeType(body);
  if (!axes || axes->empty() || type == DataType::kUndefined) {
    return Unimplemented("the input's type or rank is not known");
  }
  const Operand x = body.Cast(body.Input(0), compute);
  const Operand mean =
      body.Call("ReduceMean", {body.Call("Mul", {x, x}), body.Integers(*axes)}, KeepDims());
  const Operand epsilon =
      body.Number(static_cast<double>(body.attributes().Float("epsilon", 1e-5f)), compute);
  const Operand root = body.Call("Sqrt", {body.Call("Add", {mean, epsilon})});
  const Operand y = body.Cast(body.Call("Div", {x, root}), type);
  body.Return(0, body.Call("Mul", {y, body.Input(1)}));
  return Status::Ok();
}

Status MeanVarianceNormalization(FunctionBody& body) {
  const Operand axes = body.Integers(body.attributes().Ints("axes", {0, 2, 3}));
  const Operand x = body.Input(0);
  const DataType type = body.InputType(0);
  const Operand mean = body.Call("ReduceMean", {x, axes}, KeepDims());
  const Operand square = body.Call("ReduceMean", {body.Call("Mul", {x, x}), axes}, KeepDims());
  const Operand variance = body.Call("Sub", {square, body.Call("Mul", {mean, mean})});
  const Operand deviation =
      body.Call("Add", {body.Call("Sqrt", {variance}), body.Number(1e-9, type)});
  body.Return(0, body.Call("Div", {body.Call("Sub", {x, mean}), deviation}));
  return Status::Ok();
}

// Statistics over the spatial axes of [batch, channels, spatial...].
Status InstanceNormalization(FunctionBody& body) {
  const int rank = body.InputRank(0);
  const DataType type = body.InputType(0);
  if (rank < 3 || type == DataType::kUndefined) {
    return Unimplemented("the input's type or rank is not known");
  }
  std::vector<int64_t> spatial, beside = {0};
  for (int axis = 2; axis < rank; ++axis) {
    spatial.push_back(axis);
    beside.push_back(axis);
  }
  const Operand over = body.Integers(spatial), expand = body.Integers(beside);
  const Operand x = body.Input(0);
  const Statistics statistics = StatisticsOf(body, x, over, type);
  const Operand scale = body.Call("Unsqueeze", {body.Input(1), expand});
  const Operand bias = body.Call("Unsqueeze", {body.Input(2), expand});
  const Operand scaled =
      body.Call("Mul", {body.Call("Div", {statistics.centred, statistics.deviation}), scale});
  body.Return(0, body.Call("Add", {scaled, bias}));
  return Status::Ok();
}

// Statistics of groups of channels. Scale and bias are per group in version 18, per channel since.
Status GroupNormalization(FunctionBody& body) {
  const int rank = body.InputRank(0);
  const DataType type = body.InputType(0), compute = ComputeType(body);
  const int64_t groups = body.attributes().Int("num_groups", 0);
  if (rank < 3 || type == DataType::kUndefined) {
    return Unimplemented("the input's type or rank is not known");
  }
  if (groups < 1) return InvalidArgument(StrCat("num_groups is ", groups));
  const Operand shape = body.Call("Shape", {body.Input(0)});
  const Operand over = body.Integers({2});
  const Operand x =
      body.Call("Reshape", {body.Cast(body.Input(0), compute), body.Integers({0, groups, -1})});
  const Statistics statistics = StatisticsOf(body, x, over, compute);
  Operand y = body.Cast(body.Call("Div", {statistics.centred, statistics.deviation}), type);
  const bool per_channel = body.node().since_version >= 21;
  if (per_channel) y = body.Call("Reshape", {y, shape});
  std::vector<int64_t> beside;
  for (int axis = 1; axis < (per_channel ? rank - 1 : 2); ++axis) beside.push_back(axis);
  const Operand expand = body.Integers(beside);
  y = body.Call("Mul", {y, body.Call("Unsqueeze", {body.Input(1), expand})});
  y = body.Call("Add", {y, body.Call("Unsqueeze", {body.Input(2), expand})});
  body.Return(0, per_channel ? y : body.Call("Reshape", {y, shape}));
  return Status::Ok();
}

// alpha * A' * B' + beta * C
Status Gemm(FunctionBody& body) {
  const Attributes& a = body.attributes();
  const DataType type = body.InputType(0);
  const bool whole = a.Float("alpha", 1) == 1 && a.Float("beta", 1) == 1;
  if (type == DataType::kUndefined || (!whole && !IsFloatingPoint(type))) {
    return Unimplemented("integers with factors");
  }
  const auto turned = [&](size_t i, const char* name) {
    return a.Int(name, 0) != 0 ? body.Call("Transpose", {body.Input(i)}) : body.Input(i);
  };
  const auto scaled = [&](Operand x, const char* name) {
    const float factor = a.Float(name, 1);
    if (factor == 1) return x;
    return body.Call("Mul", {x, body.Number(static_cast<double>(factor), type)});
  };
  Operand y = scaled(body.Call("MatMul", {turned(0, "transA"), turned(1, "transB")}), "alpha");
  if (body.HasInput(2)) y = body.Call("Add", {y, scaled(body.Input(2), "beta")});
  body.Return(0, y);
  return Status::Ok();
}

constexpr int kAll = 1 << 30;
constexpr FunctionEntry kFunctions[] = {
    {"", "Gemm", 7, kAll, Gemm},
    {"", "GroupNormalization", 18, kAll, GroupNormalization},
    {"", "InstanceNormalization", 6, kAll, InstanceNormalization},
    {"", "LayerNormalization", 1, kAll, LayerNormalization},
    {"", "LogSoftmax", 13, kAll, LogSoftmax},
    {"", "MeanVarianceNormalization", 9, kAll, MeanVarianceNormalization},
    {"", "RMSNormalization", 23, kAll, RmsNormalization},
    {"", "Softmax", 13, kAll, Softmax},
};

}  // namespace

std::span<const FunctionEntry> NormalizationFunctions() { return kFunctions; }

}  // namespace onnxd
