// Sequences and optionals.
#include "runtime/base/str_cat.h"
#include "runtime/ops/inference_rules.h"

namespace onnxd {
namespace {

ValueType ElementOf(const ValueType& type) {
  return type.inner != nullptr ? *type.inner : ValueType{};
}

Status SequenceConstruct(InferenceContext& context) {
  ValueType element = context.input(0);
  for (size_t i = 1; i < context.input_count(); ++i) {
    if (context.input(i).shape != element.shape) element.shape.reset();
  }
  if (element.known()) context.SetType(0, ValueType::SequenceOf(std::move(element)));
  return Status::Ok();
}

Status SequenceEmpty(InferenceContext& context) {
  const int64_t type = context.attributes().Int("dtype", 1);
  if (!IsDataType(type)) return context.Fail("attribute 'dtype' is no data type");
  context.SetType(0, ValueType::SequenceOf(ValueType::TensorOf(static_cast<DataType>(type))));
  return Status::Ok();
}

Status SameSequence(InferenceContext& context) {
  ValueType type = context.input(0);
  if (type.inner != nullptr) {
    ValueType element = *type.inner;
    element.shape.reset();
    context.SetType(0, ValueType::SequenceOf(std::move(element)));
  }
  return Status::Ok();
}

Status SequenceAt(InferenceContext& context) {
  ValueType element = ElementOf(context.input(0));
  element.shape.reset();
  if (element.known()) context.SetType(0, std::move(element));
  return Status::Ok();
}

Status ConcatFromSequence(InferenceContext& context) {
  const ValueType element = ElementOf(context.input(0));
  if (element.is_tensor()) context.SetElement(0, element.element);
  return Status::Ok();
}

Status SplitToSequence(InferenceContext& context) {
  if (context.input(0).is_tensor()) {
    context.SetType(0, ValueType::SequenceOf(ValueType::TensorOf(context.input(0).element)));
  }
  return Status::Ok();
}

Status Scalar(InferenceContext& context) {
  context.SetShape(0, {});
  return Status::Ok();
}

Status Optional(InferenceContext& context) {
  if (const ValueType* type = context.attributes().Find<ValueType>("type")) {
    context.SetType(0, ValueType::OptionalOf(*type));
  } else if (context.input(0).known()) {
    context.SetType(0, ValueType::OptionalOf(context.input(0)));
  }
  return Status::Ok();
}

Status OptionalGetElement(InferenceContext& context) {
  const ValueType& type = context.input(0);
  ValueType out = type.kind == ValueType::Kind::kOptional ? ElementOf(type) : type;
  if (type.kind == ValueType::Kind::kOptional) out.shape.reset();
  if (out.known()) context.SetType(0, std::move(out));
  return Status::Ok();
}

constexpr InferenceRule kRules[] = {
    {"", "ConcatFromSequence", ConcatFromSequence},
    {"", "Optional", Optional},
    {"", "OptionalGetElement", OptionalGetElement},
    {"", "OptionalHasElement", Scalar},
    {"", "SequenceAt", SequenceAt},
    {"", "SequenceConstruct", SequenceConstruct},
    {"", "SequenceEmpty", SequenceEmpty},
    {"", "SequenceErase", SameSequence},
    {"", "SequenceInsert", SameSequence},
    {"", "SequenceLength", Scalar},
    {"", "SplitToSequence", SplitToSequence},
};

}  // namespace

std::span<const InferenceRule> SequenceRules() { return kRules; }

}  // namespace onnxd
