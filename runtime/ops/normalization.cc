// Normalisations and the softmax family.
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

// Inputs 1.. of BatchNormalization and InstanceNormalization are vectors with one entry a channel.
Status CheckPerChannel(InferenceContext& context, size_t vectors) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  if (shape->size() < 2) return context.Fail("the input has no channel axis");
  for (size_t i = 1; i <= vectors; ++i) {
    const SymbolicShape* vector = context.shape(i);
    if (vector == nullptr || !(*shape)[1].known()) continue;
    const bool matches =
        vector->size() == 1 && (!(*vector)[0].known() || (*vector)[0].value == (*shape)[1].value);
    if (!matches) {
      return context.Fail(StrCat("input ", i, " has shape ", ToString(*vector), ", expected [",
                                 (*shape)[1].value, "]"));
    }
  }
  return Status::Ok();
}

Status BatchNormalization(InferenceContext& context) {
  // Before version 9 the vectors may have an entry for every element of an image (spatial = 0).
  ONNXD_RETURN_IF_ERROR(CheckPerChannel(context, context.version() >= 9 ? 4 : 0));
  for (const size_t i : {1, 2}) {
    const ValueType& running = context.input(i + 2);
    if (!running.is_tensor()) continue;
    context.SetElement(i, running.element);
    if (running.shape) context.SetShape(i, *running.shape);
  }
  return SameShapeAsInput(context);
}

Status InstanceNormalization(InferenceContext& context) {
  ONNXD_RETURN_IF_ERROR(CheckPerChannel(context, 2));
  return SameShapeAsInput(context);
}

Status LayerNormalization(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const auto rank = static_cast<int>(shape->size());
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes().Int("axis", -1), rank));
  SymbolicShape statistics = *shape;
  for (int i = axis; i < rank; ++i) statistics[static_cast<size_t>(i)] = 1;
  context.SetShape(0, *shape);
  for (size_t i = 1; i < context.output_count(); ++i) {
    context.SetElement(i, DataType::kFloat);
    context.SetShape(i, statistics);
  }
  return Status::Ok();
}

Status SoftmaxFamily(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  if (!shape->empty()) {
    const int64_t fallback = context.version() < 13 ? 1 : -1;
    const int64_t axis = context.attributes().Int("axis", fallback);
    // Before opset 13 the axis may be the rank: everything is flattened into rows of one element.
    if (!(context.version() < 13 && axis == static_cast<int64_t>(shape->size()))) {
      ONNXD_RETURN_IF_ERROR(NormalizeAxis(axis, static_cast<int>(shape->size())).status());
    }
  }
  return SameShapeAsInput(context);
}

Status SkipLayerNormalization(InferenceContext& context) {
  ONNXD_RETURN_IF_ERROR(SameShapeAsInput(context));
  if (context.output_count() > 1 &&
      (context.node().output(1) != kNoValue || context.node().output(2) != kNoValue)) {
    return Unimplemented("the mean and inv_std_var outputs are not supported");
  }
  if (const SymbolicShape* shape = context.shape(0)) context.SetShape(3, *shape);
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "BatchNormalization", BatchNormalization},
    {"", "GroupNormalization", SameShapeAsInput},
    {"", "Hardmax", SoftmaxFamily},
    {"", "ImageScaler", SameShapeAsInput},
    {"", "InstanceNormalization", InstanceNormalization},
    {"", "LRN", SameShapeAsInput},
    {"", "LayerNormalization", LayerNormalization},
    {"", "LogSoftmax", SoftmaxFamily},
    {"", "LpNormalization", SameShapeAsInput},
    {"", "MeanVarianceNormalization", SameShapeAsInput},
    {"", "RMSNormalization", SameShapeAsInput},
    {"", "SimplifiedLayerNormalization", LayerNormalization},
    {"", "Softmax", SoftmaxFamily},
    {"com.microsoft", "SkipLayerNormalization", SkipLayerNormalization},
    {"onnxd", "GroupNormalizationChannelsLast", SameShapeAsInput},
};

}  // namespace

std::span<const InferenceRule> NormalizationRules() { return kRules; }

}  // namespace onnxd
