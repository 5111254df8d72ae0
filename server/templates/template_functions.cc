#include "server/templates/template_functions.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/text/unicode.h"
#include "server/templates/template_arguments.h"
#include "server/templates/template_methods.h"

namespace onnxd {
namespace {

using Value = TemplateValue;
using Arguments = TemplateArguments;

constexpr int64_t kMostElements = 1'000'000;

// Bytes of each character.
std::vector<std::string> CharactersOf(const std::string& text) {
  std::vector<std::string> characters;
  for (size_t at = 0; at < text.size();) {
    const size_t bytes = CodePointAt(text, at).bytes;
    characters.push_back(text.substr(at, bytes));
    at += bytes;
  }
  return characters;
}

std::optional<Value> EntryOf(const Value& value, const std::string& name) {
  const TemplateDict* const dict = value.dict() != nullptr ? value.dict() : value.names();
  const Value* const found = dict == nullptr ? nullptr : dict->Find(name);
  if (found == nullptr) return std::nullopt;
  return *found;
}

Status Undefined(const Value& value) {
  return InvalidArgument(StrCat("'", value.undefined_name(), "' is undefined"));
}

TemplateResult CalculateWhole(std::string_view sign, int64_t a, int64_t b) {
  int64_t out = 0;
  if (sign == "+"   ? __builtin_add_overflow(a, b, &out)
      : sign == "-" ? __builtin_sub_overflow(a, b, &out)
                    : sign == "*" && __builtin_mul_overflow(a, b, &out)) {
    return InvalidArgument("a number is too large");
  }
  if (sign == "+" || sign == "-" || sign == "*") return out;
  if (b == -1) return sign == "%" ? Value(int64_t{0}) : CalculateWhole("-", 0, a);
  const int64_t rest = a % b;
  const bool floors = rest != 0 && (rest < 0) != (b < 0);
  return sign == "%" ? rest + (floors ? b : 0) : a / b - (floors ? 1 : 0);
}

TemplateResult CalculateReal(std::string_view sign, double a, double b) {
  if (sign == "+") return a + b;
  if (sign == "-") return a - b;
  if (sign == "*") return a * b;
  if (sign == "/") return a / b;
  if (sign == "**") return std::pow(a, b);
  const double quotient = std::floor(a / b);
  return sign == "//" ? quotient : a - quotient * b;
}

TemplateResult Repeated(const Value& value, int64_t times, TemplateBudget& budget) {
  times = std::clamp<int64_t>(times, 0, kMostElements);
  const size_t each = value.text() != nullptr ? value.text()->size() : value.list()->size() * 32;
  ONNXD_RETURN_IF_ERROR(budget.Spend(each * static_cast<size_t>(times)));
  std::string text;
  TemplateList list;
  for (int64_t i = 0; i < times; ++i) {
    if (value.text() != nullptr) text += *value.text();
    if (value.list() != nullptr)
      list.insert(list.end(), value.list()->begin(), value.list()->end());
  }
  return value.text() != nullptr ? Value(std::move(text)) : Value(std::move(list));
}

TemplateResult Range(const Arguments& arguments) {
  const size_t count = arguments.positional.size();
  const int64_t begin = count > 1 ? WholeAt(arguments, 0, "", 0) : 0;
  const int64_t end = WholeAt(arguments, count > 1 ? 1 : 0, "", 0);
  const int64_t step = WholeAt(arguments, 2, "", 1);
  if (count == 0 || step == 0) return InvalidArgument("range needs whole numbers, the step not 0");
  TemplateList list;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(list.size()) == kMostElements) {
      return InvalidArgument(StrCat("a range of more than ", kMostElements, " numbers"));
    }
    list.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  ONNXD_RETURN_IF_ERROR(Spend(arguments, list.size() * 32));
  return list;
}

TemplateResult Now(const Arguments& arguments) {
  const std::string format = TextAt(arguments, 0, "format", "");
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  std::string out(1024, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &parts));
  return out;
}

// Where element `place` of so many is, counted from the end below 0.
std::optional<size_t> PlaceOf(int64_t place, size_t count) {
  if (place < 0) place += static_cast<int64_t>(count);
  if (place < 0 || place >= static_cast<int64_t>(count)) return std::nullopt;
  return static_cast<size_t>(place);
}

}  // namespace

TemplateResult Calculate(std::string_view sign, const Value& a, const Value& b,
                         TemplateBudget& budget) {
  if (sign == "~") {
    std::string text = a.Written() + b.Written();
    ONNXD_RETURN_IF_ERROR(budget.Spend(text.size()));
    return text;
  }
  for (const Value* const one : {&a, &b}) {
    if (one->is_undefined()) return Undefined(*one);
  }
  if (sign == "+" && a.text() != nullptr && b.text() != nullptr) {
    ONNXD_RETURN_IF_ERROR(budget.Spend(a.text()->size() + b.text()->size()));
    return *a.text() + *b.text();
  }
  if (sign == "+" && a.list() != nullptr && b.list() != nullptr) {
    ONNXD_RETURN_IF_ERROR(budget.Spend((a.list()->size() + b.list()->size()) * 32));
    TemplateList list = *a.list();
    list.insert(list.end(), b.list()->begin(), b.list()->end());
    return list;
  }
  const bool repeats = a.text() != nullptr || a.list() != nullptr;
  if (sign == "*" && repeats && b.whole()) return Repeated(a, *b.whole(), budget);
  const auto x = a.number(), y = b.number();
  if (!x || !y) {
    return InvalidArgument(StrCat("'", sign, "' between ", a.KindName(), " and ", b.KindName()));
  }
  if (*y == 0 && (sign == "/" || sign == "//" || sign == "%")) {
    return InvalidArgument("a division by zero");
  }
  const bool whole = a.whole() && b.whole() && sign != "/" && sign != "**";
  return whole ? CalculateWhole(sign, *a.whole(), *b.whole()) : CalculateReal(sign, *x, *y);
}

Result<bool> IsWithin(const Value& a, const Value& b, TemplateBudget& budget) {
  ONNXD_RETURN_IF_ERROR(budget.Spend(b.size()));
  if (b.text() != nullptr) {
    if (a.text() == nullptr)
      return InvalidArgument(StrCat("'in' between ", a.KindName(), " and a text"));
    return b.text()->find(*a.text()) != std::string::npos;
  }
  if (b.dict() != nullptr) return a.text() != nullptr && b.dict()->Find(*a.text()) != nullptr;
  if (b.list() == nullptr) {
    if (b.is_undefined()) return false;
    return InvalidArgument(StrCat("'in' and ", b.KindName()));
  }
  return std::any_of(b.list()->begin(), b.list()->end(),
                     [&](const Value& one) { return AreEqual(a, one); });
}

Result<TemplateList> ElementsOf(const Value& value, TemplateBudget& budget) {
  TemplateList list;
  if (value.list() != nullptr) {
    list = *value.list();
  } else if (value.dict() != nullptr) {
    for (const auto& entry : value.dict()->entries()) list.emplace_back(entry.first);
  } else if (value.text() != nullptr) {
    for (std::string& character : CharactersOf(*value.text()))
      list.emplace_back(std::move(character));
  } else if (!value.is_undefined()) {
    return InvalidArgument(StrCat(value.KindName(), " has no elements"));
  }
  ONNXD_RETURN_IF_ERROR(budget.Spend(list.size() * 32));
  return list;
}

TemplateResult AttributeOf(const Value& value, const std::string& name) {
  if (value.is_undefined()) return Undefined(value);
  if (auto method = TemplateMethodOf(value, name)) return *std::move(method);
  return EntryOf(value, name).value_or(Value::MakeUndefined(name));
}

TemplateResult ItemOf(const Value& value, const Value& place, TemplateBudget& budget) {
  if (value.is_undefined()) return Undefined(value);
  if (value.list() == nullptr) ONNXD_RETURN_IF_ERROR(budget.Spend(value.size()));
  if (const std::string* const name = place.text()) {
    if (auto entry = EntryOf(value, *name)) return *std::move(entry);
    return TemplateMethodOf(value, *name).value_or(Value::MakeUndefined(*name));
  }
  const auto index = place.whole();
  if (index && value.list() != nullptr) {
    const auto found = PlaceOf(*index, value.list()->size());
    if (found) return (*value.list())[*found];
  } else if (index && value.text() != nullptr) {
    const auto characters = CharactersOf(*value.text());
    if (const auto found = PlaceOf(*index, characters.size())) return characters[*found];
  }
  return Value::MakeUndefined(place.Written());
}

TemplateResult SliceOf(const Value& value, const Value& begin, const Value& end, const Value& step,
                       TemplateBudget& budget) {
  if (value.is_undefined()) return Undefined(value);
  if (value.list() == nullptr && value.text() == nullptr) {
    return InvalidArgument(StrCat("a slice of ", value.KindName()));
  }
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, ElementsOf(value, budget));
  const auto count = static_cast<int64_t>(list.size());
  const int64_t stride = step.whole().value_or(1);
  if (stride == 0) return InvalidArgument("a slice with a step of 0");
  const auto bound = [&](const Value& given, int64_t otherwise) {
    const auto place = given.whole();
    if (!place) return otherwise;
    const int64_t from_begin = *place < 0 ? std::max(*place, -count - 1) + count : *place;
    return stride > 0 ? std::clamp<int64_t>(from_begin, 0, count)
                      : std::clamp<int64_t>(from_begin, -1, count - 1);
  };
  const int64_t first = bound(begin, stride > 0 ? 0 : count - 1);
  const int64_t last = bound(end, stride > 0 ? count : -1);
  TemplateList out;
  for (int64_t i = first; stride > 0 ? i < last : i > last;) {
    out.push_back(list[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, stride, &i)) break;
  }
  if (value.list() != nullptr) return out;
  std::string text;
  for (const Value& one : out) text += *one.text();
  return text;
}

const TemplateDict& TemplateGlobals() {
  static const auto* const globals = [] {
    auto* const made = new TemplateDict;
    made->Append("range", TemplateFunction(Range));
    made->Append("strftime_now", TemplateFunction(Now));
    made->Append("namespace", TemplateFunction([](const Arguments& arguments) -> TemplateResult {
                   return arguments.budget->KeepNamespace(arguments.named);
                 }));
    made->Append("dict", TemplateFunction([](const Arguments& arguments) -> TemplateResult {
                   return TemplateDict(arguments.named);
                 }));
    made->Append("raise_exception",
                 TemplateFunction([](const Arguments& arguments) -> TemplateResult {
                   return InvalidArgument(TextAt(arguments, 0, "message", ""));
                 }));
    return made;
  }();
  return *globals;
}

}  // namespace onnxd
