// Operators that pick, place, count or generate elements.
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

Status NonZero(InferenceContext& context) {
  context.SetElement(0, DataType::kInt64);
  if (const SymbolicShape* shape = context.shape(0)) {
    context.SetShape(0, {static_cast<int64_t>(shape->size()), Dimension()});
  }
  return Status::Ok();
}

// As many elements of the attribute axis as the data say, or of the flattened input without it.
Status Compress(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (!context.attributes().Has("axis")) {
    context.SetShape(0, {Dimension()});
    return Status::Ok();
  }
  if (shape == nullptr) return Status::Ok();
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(context.attributes().Int("axis", 0),
                                                       static_cast<int>(shape->size())));
  SymbolicShape out = *shape;
  out[static_cast<size_t>(axis)] = Dimension();
  context.SetShape(0, std::move(out));
  return Status::Ok();
}

Status Unique(InferenceContext& context) {
  for (size_t i = 1; i < context.output_count(); ++i) {
    context.SetElement(i, DataType::kInt64);
    context.SetShape(i, {Dimension()});
  }
  return Compress(context);
}

// Element type of the attribute dtype, else of input 0; the shape of input 0.
Status Like(InferenceContext& context) {
  const int64_t type = context.attributes().Int("dtype", 0);
  if (IsDataType(type)) {
    context.SetElement(0, static_cast<DataType>(type));
  } else if (context.input(0).is_tensor()) {
    context.SetElement(0, context.input(0).element);
  }
  return SameShapeAsInput(context);
}

Status EyeLike(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape != nullptr && shape->size() != 2) return context.Fail("the input must have rank 2");
  return Like(context);
}

Status Det(InferenceContext& context) {
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  if (shape->size() < 2) return context.Fail("the input has no matrix");
  context.SetShape(0, SymbolicShape(shape->begin(), shape->end() - 2));
  return Status::Ok();
}

Status FromShapeAttribute(InferenceContext& context) {
  const int64_t type = context.attributes().Int("dtype", 1);
  if (!IsDataType(type)) return context.Fail("attribute 'dtype' is no data type");
  context.SetElement(0, static_cast<DataType>(type));
  SymbolicShape shape;
  for (const int64_t extent : context.attributes().Ints("shape")) {
    if (extent < 0) return context.Fail("attribute 'shape' holds a negative extent");
    shape.emplace_back(extent);
  }
  context.SetShape(0, std::move(shape));
  return Status::Ok();
}

Status Multinomial(InferenceContext& context) {
  const int64_t type = context.attributes().Int("dtype", 6);
  if (IsDataType(type)) context.SetElement(0, static_cast<DataType>(type));
  const SymbolicShape* shape = context.shape(0);
  if (shape == nullptr) return Status::Ok();
  const int64_t samples = context.attributes().Int("sample_size", 1);
  if (shape->size() != 2 || samples < 0) return context.Fail("the input must have rank 2");
  context.SetShape(0, {(*shape)[0], samples});
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "Bernoulli", Like},
    {"", "Compress", Compress},
    {"", "CumProd", SameShapeAsInput},
    {"", "Det", Det},
    {"", "EyeLike", EyeLike},
    {"", "Multinomial", Multinomial},
    {"", "NonZero", NonZero},
    {"", "RandomNormal", FromShapeAttribute},
    {"", "RandomNormalLike", Like},
    {"", "RandomUniform", FromShapeAttribute},
    {"", "RandomUniformLike", Like},
    {"", "ReverseSequence", SameShapeAsInput},
    {"", "Scatter", SameShapeAsInput},
    {"", "TensorScatter", SameShapeAsInput},
    {"", "Unique", Unique},
};

}  // namespace

std::span<const InferenceRule> SelectionRules() { return kRules; }

}  // namespace onnxd
