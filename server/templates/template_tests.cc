#include <map>

#include "runtime/base/str_cat.h"
#include "runtime/text/unicode.h"
#include "server/templates/template_arguments.h"
#include "server/templates/template_functions.h"

namespace onnxd {
namespace {

using Value = TemplateValue;
using Arguments = TemplateArguments;

using Test = Result<bool> (*)(const Value& value, const Arguments& arguments);

Result<const Value*> Other(const Arguments& arguments) {
  const Value* const other = arguments.Find(0, "other");
  if (other == nullptr) return InvalidArgument("a test needs a value to compare with");
  return other;
}

template <bool kSwaps, bool kNegates>
Result<bool> Compared(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const Value* const other, Other(arguments));
  ONNXD_ASSIGN_OR_RETURN(const bool less, kSwaps ? IsLess(*other, value) : IsLess(value, *other));
  return less != kNegates;
}

Result<bool> Equal(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const Value* const other, Other(arguments));
  return AreEqual(value, *other);
}

Result<bool> Unequal(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const bool equal, Equal(value, arguments));
  return !equal;
}

Result<bool> LeavesNothing(const Value& value, int64_t divisor, int64_t rest) {
  const auto number = value.whole();
  if (!number || divisor == 0) return InvalidArgument("a test of divisors needs whole numbers");
  return divisor == -1 ? rest == 0 : ((*number % divisor) + divisor) % divisor == rest;
}

const std::map<std::string_view, Test>& Tests() {
  using V = const Value&;
  using A = const Arguments&;
  static const auto* const tests = new std::map<std::string_view, Test>{
      {"defined", [](V v, A) -> Result<bool> { return !v.is_undefined(); }},
      {"undefined", [](V v, A) -> Result<bool> { return v.is_undefined(); }},
      {"none", [](V v, A) -> Result<bool> { return v.is_none(); }},
      {"true", [](V v, A) -> Result<bool> { return v.boolean() != nullptr && *v.boolean(); }},
      {"false", [](V v, A) -> Result<bool> { return v.boolean() != nullptr && !*v.boolean(); }},
      {"boolean", [](V v, A) -> Result<bool> { return v.boolean() != nullptr; }},
      {"string", [](V v, A) -> Result<bool> { return v.text() != nullptr; }},
      {"mapping", [](V v, A) -> Result<bool> { return v.dict() != nullptr; }},
      {"number", [](V v, A) -> Result<bool> { return v.number().has_value(); }},
      {"integer", [](V v, A) -> Result<bool> { return v.integer() != nullptr; }},
      {"float", [](V v, A) -> Result<bool> { return v.real() != nullptr; }},
      {"callable", [](V v, A) -> Result<bool> { return v.function() != nullptr; }},
      {"iterable",
       [](V v, A) -> Result<bool> {
         return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr;
       }},
      {"sequence",
       [](V v, A) -> Result<bool> {
         return v.text() != nullptr || v.list() != nullptr || v.dict() != nullptr;
       }},
      {"lower",
       [](V v, A) -> Result<bool> { return v.text() != nullptr && Lower(*v.text()) == *v.text(); }},
      {"upper",
       [](V v, A) -> Result<bool> { return v.text() != nullptr && Upper(*v.text()) == *v.text(); }},
      {"odd", [](V v, A) { return LeavesNothing(v, 2, 1); }},
      {"even", [](V v, A) { return LeavesNothing(v, 2, 0); }},
      {"divisibleby", [](V v, A a) { return LeavesNothing(v, WholeAt(a, 0, "num", 0), 0); }},
      {"in",
       [](V v, A a) -> Result<bool> {
         ONNXD_ASSIGN_OR_RETURN(const Value* const other, Other(a));
         return IsWithin(v, *other, *a.budget);
       }},
      {"eq", Equal},
      {"equalto", Equal},
      {"==", Equal},
      {"sameas", Equal},
      {"ne", Unequal},
      {"!=", Unequal},
      {"lt", Compared<false, false>},
      {"lessthan", Compared<false, false>},
      {"<", Compared<false, false>},
      {"ge", Compared<false, true>},
      {">=", Compared<false, true>},
      {"gt", Compared<true, false>},
      {"greaterthan", Compared<true, false>},
      {">", Compared<true, false>},
      {"le", Compared<true, true>},
      {"<=", Compared<true, true>},
  };
  return *tests;
}

}  // namespace

bool HasTest(std::string_view name) { return Tests().contains(name); }

Result<bool> ApplyTest(const std::string& name, const Value& value, const Arguments& arguments) {
  const auto found = Tests().find(name);
  if (found == Tests().end())
    return Unimplemented(StrCat("the test '", name, "' is not there yet"));
  ONNXD_RETURN_IF_ERROR(Spend(arguments, value.size()));
  auto applied = found->second(value, arguments);
  if (!applied.ok()) return applied.status().WithContext(StrCat("test '", name, "'"));
  return applied;
}

}  // namespace onnxd
