// What functions of templates read their arguments with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "server/templates/template_value.h"

namespace onnxd {

inline std::string TextAt(const TemplateArguments& arguments, size_t place, std::string_view name,
                          std::string_view otherwise) {
  const TemplateValue* const value = arguments.Find(place, name);
  return value == nullptr || value->is_none() ? std::string(otherwise) : value->Written();
}

inline int64_t WholeAt(const TemplateArguments& arguments, size_t place, std::string_view name,
                       int64_t otherwise) {
  const TemplateValue* const value = arguments.Find(place, name);
  return value == nullptr ? otherwise : value->whole().value_or(otherwise);
}

inline bool FlagAt(const TemplateArguments& arguments, size_t place, std::string_view name) {
  const TemplateValue* const value = arguments.Find(place, name);
  return value != nullptr && value->IsTrue();
}

inline Status Spend(const TemplateArguments& arguments, size_t bytes) {
  return arguments.budget == nullptr ? Status::Ok() : arguments.budget->Spend(bytes);
}

}  // namespace onnxd
