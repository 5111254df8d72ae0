#include "runtime/tensor/value.h"

#include "runtime/base/str_cat.h"

namespace onnxd {

ValueType ValueType::TensorOf(DataType element, std::optional<SymbolicShape> shape) {
  ValueType type;
  type.kind = Kind::kTensor;
  type.element = element;
  type.shape = std::move(shape);
  return type;
}

ValueType ValueType::SequenceOf(ValueType inner) {
  ValueType type;
  type.kind = Kind::kSequence;
  type.inner = std::make_shared<const ValueType>(std::move(inner));
  return type;
}

ValueType ValueType::MapOf(DataType key, ValueType inner) {
  ValueType type;
  type.kind = Kind::kMap;
  type.element = key;
  type.inner = std::make_shared<const ValueType>(std::move(inner));
  return type;
}

ValueType ValueType::OptionalOf(ValueType inner) {
  ValueType type;
  type.kind = Kind::kOptional;
  type.inner = std::make_shared<const ValueType>(std::move(inner));
  return type;
}

std::string ToString(const ValueType& type) {
  const auto inner = [&] { return type.inner ? ToString(*type.inner) : std::string("?"); };
  switch (type.kind) {
    case ValueType::Kind::kUnknown:
      return "?";
    case ValueType::Kind::kTensor:
      return StrCat(DataTypeName(type.element), type.shape ? ToString(*type.shape) : "[...]");
    case ValueType::Kind::kSparseTensor:
      return StrCat("sparse(", DataTypeName(type.element), ")");
    case ValueType::Kind::kSequence:
      return StrCat("seq(", inner(), ")");
    case ValueType::Kind::kMap:
      return StrCat("map(", DataTypeName(type.element), ", ", inner(), ")");
    case ValueType::Kind::kOptional:
      return StrCat("optional(", inner(), ")");
  }
  return "?";
}

}  // namespace onnxd
