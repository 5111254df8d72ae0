#include "runtime/session/value_check.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
ValueType::Kind KindOf(const Value& value) {
  if (value.is_tensor()) return ValueType::Kind::kTensor;
  if (value.sequence() != nullptr) return ValueType::Kind::kSequence;
  if (value.map() != nullptr) return ValueType::Kind::kMap;
  if (value.optional() != nullptr) return ValueType::Kind::kOptional;
  return ValueType::Kind::kUnknown;
}

namespace {

std::string Describe(const Value& value) {
  if (value.absent()) return "nothing";
  ValueType type;
  type.kind = KindOf(value);
  if (value.is_tensor()) type = ValueType::TensorOf(value.tensor().type());
  return ToString(type);
}

bool IsOfType(const Value& value, const ValueType& type) {
  if (!type.known() || type.kind == ValueType::Kind::kOptional) return true;
  if (KindOf(value) != type.kind) return false;
  return !value.is_tensor() || type.element == DataType::kUndefined ||
         value.tensor().type() == type.element;
}

}  // namespace

Status CheckType(const Value& value, const ValueType& type, std::string_view name) {
  if (IsOfType(value, type)) return Status::Ok();
  return InvalidArgument(
      StrCat("value '", name, "' is ", ToString(type), " but came as ", Describe(value)));
}

}  // namespace onnxd
