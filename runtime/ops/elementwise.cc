// Elementwise operators: one input's shape, or the broadcast of all.
#include <cctype>

#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Status BroadcastAll(InferenceContext& context) {
  SymbolicShape shape;
  for (size_t i = 0; i < context.input_count(); ++i) {
    if (!context.HasInput(i)) continue;
    if (context.shape(i) == nullptr) return Status::Ok();
    ONNXD_ASSIGN_OR_RETURN(shape, Broadcast(shape, *context.shape(i)));
  }
  context.SetShape(0, std::move(shape));
  return Status::Ok();
}

// Opset 1 and 6 arithmetic broadcasts B into A at an axis: the result has A's shape.
Status Arithmetic(InferenceContext& context) {
  return context.version() < 7 ? SameShapeAsInput(context) : BroadcastAll(context);
}

Status Cast(InferenceContext& context) {
  int64_t to = context.attributes().Int("to", 0);
  if (const std::string* name = context.attributes().Find<std::string>("to")) {  // Cast-1
    std::string lower = *name;
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    to = static_cast<int64_t>(DataTypeFromName(lower).value_or(DataType::kUndefined));
  }
  if (!IsDataType(to)) return context.Fail("attribute 'to' is no data type");
  context.SetElement(0, static_cast<DataType>(to));
  return SameShapeAsInput(context);
}

Status CastLike(InferenceContext& context) {
  if (context.input(1).is_tensor()) context.SetElement(0, context.input(1).element);
  return SameShapeAsInput(context);
}

Status Identity(InferenceContext& context) {
  context.SetType(0, context.input(0));
  return Status::Ok();
}

// Bounds are inputs since version 11, of one element each.
Status Clip(InferenceContext& context) {
  for (const size_t bound : {1, 2}) {
    if (!context.HasInput(bound) || context.shape(bound) == nullptr) continue;
    for (const Dimension& dimension : *context.shape(bound)) {
      if (dimension.known() && dimension.value != 1) {
        return context.Fail(StrCat("input ", bound, " of shape ", ToString(*context.shape(bound)),
                                   " is not a scalar"));
      }
    }
  }
  return SameShapeAsInput(context);
}

Status Dropout(InferenceContext& context) {
  ONNXD_RETURN_IF_ERROR(SameShapeAsInput(context));
  if (const SymbolicShape* shape = context.shape(0)) context.SetShape(1, *shape);
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "Abs", SameShapeAsInput},
    {"", "Acos", SameShapeAsInput},
    {"", "Acosh", SameShapeAsInput},
    {"", "Add", Arithmetic},
    {"", "Affine", SameShapeAsInput},
    {"", "And", Arithmetic},
    {"", "Asin", SameShapeAsInput},
    {"", "Asinh", SameShapeAsInput},
    {"", "Atan", SameShapeAsInput},
    {"", "Atanh", SameShapeAsInput},
    {"", "BitCast", Cast},
    {"", "BitShift", BroadcastAll},
    {"", "BitwiseAnd", BroadcastAll},
    {"", "BitwiseNot", SameShapeAsInput},
    {"", "BitwiseOr", BroadcastAll},
    {"", "BitwiseXor", BroadcastAll},
    {"", "Cast", Cast},
    {"", "CastLike", CastLike},
    {"", "Ceil", SameShapeAsInput},
    {"", "Celu", SameShapeAsInput},
    {"", "Clip", Clip},
    {"", "Cos", SameShapeAsInput},
    {"", "Cosh", SameShapeAsInput},
    {"", "Div", Arithmetic},
    {"", "Dropout", Dropout},
    {"", "Elu", SameShapeAsInput},
    {"", "Equal", Arithmetic},
    {"", "Erf", SameShapeAsInput},
    {"", "Exp", SameShapeAsInput},
    {"", "Floor", SameShapeAsInput},
    {"", "Gelu", SameShapeAsInput},
    {"", "Greater", Arithmetic},
    {"", "GreaterOrEqual", BroadcastAll},
    {"", "HardSigmoid", SameShapeAsInput},
    {"", "HardSwish", SameShapeAsInput},
    {"", "Identity", Identity},
    {"", "IsInf", SameShapeAsInput},
    {"", "IsNaN", SameShapeAsInput},
    {"", "LeakyRelu", SameShapeAsInput},
    {"", "Less", Arithmetic},
    {"", "LessOrEqual", BroadcastAll},
    {"", "Log", SameShapeAsInput},
    {"", "Max", BroadcastAll},
    {"", "Mean", BroadcastAll},
    {"", "Min", BroadcastAll},
    {"", "Mish", SameShapeAsInput},
    {"", "Mod", BroadcastAll},
    {"", "Mul", Arithmetic},
    {"", "Neg", SameShapeAsInput},
    {"", "Not", SameShapeAsInput},
    {"", "Or", Arithmetic},
    {"", "PRelu", SameShapeAsInput},
    {"", "ParametricSoftplus", SameShapeAsInput},
    {"", "Pow", Arithmetic},
    {"", "Reciprocal", SameShapeAsInput},
    {"", "Relu", SameShapeAsInput},
    {"", "Round", SameShapeAsInput},
    {"", "ScaledTanh", SameShapeAsInput},
    {"", "Selu", SameShapeAsInput},
    {"", "Shrink", SameShapeAsInput},
    {"", "Sigmoid", SameShapeAsInput},
    {"", "Sign", SameShapeAsInput},
    {"", "Sin", SameShapeAsInput},
    {"", "Sinh", SameShapeAsInput},
    {"", "Softplus", SameShapeAsInput},
    {"", "Softsign", SameShapeAsInput},
    {"", "Sqrt", SameShapeAsInput},
    {"", "Sub", Arithmetic},
    {"", "Sum", BroadcastAll},
    {"", "Swish", SameShapeAsInput},
    {"", "Tan", SameShapeAsInput},
    {"", "Tanh", SameShapeAsInput},
    {"", "ThresholdedRelu", SameShapeAsInput},
    {"", "Where", BroadcastAll},
    {"", "Xor", Arithmetic},
    {"com.microsoft", "BiasGelu", SameShapeAsInput},
    {"com.microsoft", "FastGelu", SameShapeAsInput},
    {"com.microsoft", "Gelu", SameShapeAsInput},
    {"com.microsoft", "QuickGelu", SameShapeAsInput},
    {"onnxd", "ElementwiseChain", BroadcastAll},
    {"onnxd", "RotaryPositions", BroadcastAll},
};

}  // namespace

std::span<const InferenceRule> ElementwiseRules() { return kRules; }

}  // namespace onnxd
