#include <algorithm>
#include <charconv>
#include <cmath>
#include <functional>
#include <map>

#include "runtime/base/str_cat.h"
#include "runtime/text/unicode.h"
#include "server/templates/template_arguments.h"
#include "server/templates/template_functions.h"
#include "server/templates/template_methods.h"

namespace onnxd {
namespace {

using Value = TemplateValue;
using Arguments = TemplateArguments;

// "a.b.0"
TemplateResult PathOf(Value value, std::string_view path, const Arguments& arguments) {
  while (!path.empty()) {
    const size_t end = std::min(path.find('.'), path.size());
    const std::string name(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    int64_t place = 0;
    const auto [rest, error] = std::from_chars(name.data(), name.data() + name.size(), place);
    const bool is_number = error == std::errc() && rest == name.data() + name.size();
    ONNXD_ASSIGN_OR_RETURN(
        value, ItemOf(value, is_number ? Value(place) : Value(name), *arguments.budget));
  }
  return value;
}

using Filter = TemplateResult (*)(const Value& value, const Arguments& arguments);

TemplateResult Attributes(const TemplateList& list, const std::string& path,
                          const Arguments& arguments) {
  TemplateList out;
  for (const Value& one : list) {
    ONNXD_ASSIGN_OR_RETURN(out.emplace_back(), PathOf(one, path, arguments));
  }
  return out;
}

Result<TemplateList> Elements(const Value& value, const Arguments& arguments) {
  return ElementsOf(value, *arguments.budget);
}

TemplateResult Join(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(TemplateList list, Elements(value, arguments));
  if (const Value* const attribute = arguments.Find(1, "attribute")) {
    ONNXD_ASSIGN_OR_RETURN(const Value named, Attributes(list, attribute->Written(), arguments));
    list = *named.list();
  }
  const std::string separator = TextAt(arguments, 0, "d", "");
  std::string out;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string part = list[i].Written();
    ONNXD_RETURN_IF_ERROR(Spend(arguments, part.size() + separator.size()));
    out += (i == 0 ? "" : separator) + part;
  }
  return out;
}

TemplateResult Length(const Value& value, const Arguments&) {
  if (value.text() != nullptr) return static_cast<int64_t>(CountCharacters(*value.text()));
  if (value.list() != nullptr) return static_cast<int64_t>(value.list()->size());
  if (value.dict() != nullptr) return static_cast<int64_t>(value.dict()->entries().size());
  if (value.is_undefined()) return int64_t{0};
  return InvalidArgument(StrCat(value.KindName(), " has no length"));
}

TemplateResult ToJson(const Value& value, const Arguments& arguments) {
  std::string out;
  const int64_t indent = std::min<int64_t>(WholeAt(arguments, 0, "indent", -1), 16);
  ONNXD_RETURN_IF_ERROR(value.AppendJson(out, static_cast<int>(std::max<int64_t>(indent, -1))));
  ONNXD_RETURN_IF_ERROR(Spend(arguments, out.size()));
  return out;
}

TemplateResult Default(const Value& value, const Arguments& arguments) {
  const bool replaced =
      value.is_undefined() || (FlagAt(arguments, 1, "boolean") && !value.IsTrue());
  if (!replaced) return value;
  const Value* const otherwise = arguments.Find(0, "default_value");
  return otherwise == nullptr ? Value("") : *otherwise;
}

TemplateResult First(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  return list.empty() ? Value::MakeUndefined("the first of nothing") : list.front();
}

TemplateResult Last(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  return list.empty() ? Value::MakeUndefined("the last of nothing") : list.back();
}

TemplateResult Reverse(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(TemplateList list, Elements(value, arguments));
  std::reverse(list.begin(), list.end());
  if (value.text() == nullptr) return list;
  std::string out;
  for (const Value& one : list) out += *one.text();
  return out;
}

TemplateResult Unique(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  TemplateList out;
  for (const Value& one : list) {
    ONNXD_RETURN_IF_ERROR(Spend(arguments, out.size()));
    const bool known = std::any_of(out.begin(), out.end(),
                                   [&](const Value& other) { return AreEqual(one, other); });
    if (!known) out.push_back(one);
  }
  return out;
}

// Insertion into what is sorted: the order may fail, which std::sort cannot say.
Result<TemplateList> SortedBy(const TemplateList& list, const Arguments& arguments,
                              const std::function<TemplateResult(const Value&)>& key,
                              bool reverse) {
  std::vector<std::pair<Value, Value>> sorted;
  for (const Value& one : list) {
    ONNXD_ASSIGN_OR_RETURN(const Value own, key(one));
    size_t low = 0, high = sorted.size();
    while (low < high) {
      const size_t middle = (low + high) / 2;
      ONNXD_RETURN_IF_ERROR(Spend(arguments, 16));
      ONNXD_ASSIGN_OR_RETURN(const bool less, reverse ? IsLess(sorted[middle].first, own)
                                                      : IsLess(own, sorted[middle].first));
      if (less) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    ONNXD_RETURN_IF_ERROR(Spend(arguments, sorted.size()));
    sorted.insert(sorted.begin() + static_cast<std::ptrdiff_t>(low), {own, one});
  }
  TemplateList out;
  for (auto& [own, one] : sorted) out.push_back(std::move(one));
  return out;
}

Value Folded(const Value& value) {
  return value.text() == nullptr ? value : Value(Lower(*value.text()));
}

TemplateResult Sort(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  const std::string path = TextAt(arguments, 2, "attribute", "");
  const bool with_case = FlagAt(arguments, 1, "case_sensitive");
  const auto key = [&](const Value& one) -> TemplateResult {
    ONNXD_ASSIGN_OR_RETURN(const Value own, PathOf(one, path, arguments));
    return with_case ? own : Folded(own);
  };
  ONNXD_ASSIGN_OR_RETURN(TemplateList sorted,
                         SortedBy(list, arguments, key, FlagAt(arguments, 0, "reverse")));
  return sorted;
}

TemplateResult DictSort(const Value& value, const Arguments& arguments) {
  if (value.dict() == nullptr) return InvalidArgument("dictsort needs a mapping");
  const size_t place = TextAt(arguments, 1, "by", "key") == "value" ? 1 : 0;
  const bool with_case = FlagAt(arguments, 0, "case_sensitive");
  const auto key = [&](const Value& pair) -> TemplateResult {
    const Value& own = (*pair.list())[place];
    return with_case ? own : Folded(own);
  };
  ONNXD_ASSIGN_OR_RETURN(TemplateList sorted, SortedBy(PairsOf(*value.dict()), arguments, key,
                                                       FlagAt(arguments, 2, "reverse")));
  return sorted;
}

// The arguments behind the first `count`.
Arguments Rest(const Arguments& arguments, size_t count) {
  Arguments rest = arguments;
  count = std::min(count, rest.positional.size());
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

TemplateResult Map(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  if (const Value* const attribute = arguments.named.Find("attribute")) {
    ONNXD_ASSIGN_OR_RETURN(const Value named, Attributes(list, attribute->Written(), arguments));
    const Value* const otherwise = arguments.named.Find("default");
    if (otherwise == nullptr) return named;
    TemplateList out = *named.list();
    for (Value& one : out) one = one.is_undefined() ? *otherwise : one;
    return out;
  }
  const std::string filter = TextAt(arguments, 0, "filter", "");
  const Arguments rest = Rest(arguments, 1);
  TemplateList out;
  for (const Value& one : list) {
    ONNXD_ASSIGN_OR_RETURN(out.emplace_back(), ApplyFilter(filter, one, rest));
  }
  return out;
}

// select, reject, selectattr, rejectattr.
TemplateResult Select(const Value& value, const Arguments& arguments, bool by_attribute,
                      bool keeps) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  const size_t before = by_attribute ? 1 : 0;
  const std::string path = by_attribute ? TextAt(arguments, 0, "attribute", "") : "";
  const std::string test = TextAt(arguments, before, "test", "");
  const Arguments rest = Rest(arguments, before + 1);
  TemplateList out;
  for (const Value& one : list) {
    ONNXD_RETURN_IF_ERROR(Spend(arguments, 0));
    ONNXD_ASSIGN_OR_RETURN(const Value subject, PathOf(one, path, arguments));
    Result<bool> fits = subject.IsTrue();
    if (!test.empty()) fits = ApplyTest(test, subject, rest);
    if (!fits.ok()) return fits.status();
    if (*fits == keeps) out.push_back(one);
  }
  return out;
}

TemplateResult ToWhole(const Value& value, const Arguments& arguments) {
  if (const auto number = value.number(); number && std::abs(*number) < 9e18) {
    return static_cast<int64_t>(*number);
  }
  int64_t number = WholeAt(arguments, 0, "default", 0);
  if (value.text() != nullptr) {
    const std::string text = Stripped(*value.text(), kTemplateBlanks, true, true);
    double real = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), real);
    const bool reads = error == std::errc() && end == text.data() + text.size();
    if (reads && std::abs(real) < 9e18) number = static_cast<int64_t>(real);
  }
  return number;
}

TemplateResult ToReal(const Value& value, const Arguments& arguments) {
  if (const auto number = value.number()) return *number;
  double number = 0;
  if (const Value* const otherwise = arguments.Find(0, "default")) {
    number = otherwise->number().value_or(0);
  }
  if (value.text() != nullptr) {
    const std::string text = Stripped(*value.text(), kTemplateBlanks, true, true);
    (void)std::from_chars(text.data(), text.data() + text.size(), number);
  }
  return number;
}

TemplateResult Indent(const Value& value, const Arguments& arguments) {
  const int64_t width = std::clamp<int64_t>(WholeAt(arguments, 0, "width", 4), 0, 64);
  const std::string blanks(static_cast<size_t>(width), ' ');
  const bool first = FlagAt(arguments, 1, "first"), blank = FlagAt(arguments, 2, "blank");
  const std::string text = value.Written();
  std::string out = first ? blanks : "";
  for (size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    const bool empty_line = i + 1 < text.size() && text[i + 1] == '\n';
    if (text[i] == '\n' && i + 1 < text.size() && (blank || !empty_line)) out += blanks;
  }
  ONNXD_RETURN_IF_ERROR(Spend(arguments, out.size()));
  return out;
}

TemplateResult Round(const Value& value, const Arguments& arguments) {
  const auto number = value.number();
  if (!number) return InvalidArgument(StrCat("round of ", value.KindName()));
  const double scale = std::pow(10.0, static_cast<double>(WholeAt(arguments, 0, "precision", 0)));
  return std::nearbyint(*number * scale) / scale;
}

TemplateResult Extreme(const Value& value, const Arguments& arguments, bool largest) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  if (list.empty()) return Value::MakeUndefined("the extreme of nothing");
  Value best = list[0];
  for (const Value& one : list) {
    ONNXD_ASSIGN_OR_RETURN(const bool less, largest ? IsLess(best, one) : IsLess(one, best));
    if (less) best = one;
  }
  return best;
}

TemplateResult Sum(const Value& value, const Arguments& arguments) {
  ONNXD_ASSIGN_OR_RETURN(const TemplateList list, Elements(value, arguments));
  const std::string path = TextAt(arguments, 0, "attribute", "");
  Value sum = int64_t{0};
  for (const Value& one : list) {
    ONNXD_ASSIGN_OR_RETURN(const Value own, PathOf(one, path, arguments));
    ONNXD_ASSIGN_OR_RETURN(sum, Calculate("+", sum, own, *arguments.budget));
  }
  return sum;
}

TemplateResult AsText(const Value& value, const Arguments&) { return value.Written(); }

// A filter that is a text's method.
template <const char* kName>
TemplateResult AsMethod(const Value& value, const Arguments& arguments) {
  return (*TemplateMethodOf(value.Written(), kName)->function())(arguments);
}
constexpr char kStrip[] = "strip", kUpper[] = "upper", kLower[] = "lower", kTitle[] = "title";
constexpr char kCapitalize[] = "capitalize", kReplace[] = "replace";

const std::map<std::string_view, Filter>& Filters() {
  static const auto* const filters = new std::map<std::string_view, Filter>{
      {"trim", AsMethod<kStrip>},
      {"upper", AsMethod<kUpper>},
      {"lower", AsMethod<kLower>},
      {"title", AsMethod<kTitle>},
      {"capitalize", AsMethod<kCapitalize>},
      {"replace", AsMethod<kReplace>},
      {"string", AsText},
      {"safe", AsText},
      {"join", Join},
      {"length", Length},
      {"count", Length},
      {"tojson", ToJson},
      {"default", Default},
      {"d", Default},
      {"first", First},
      {"last", Last},
      {"reverse", Reverse},
      {"unique", Unique},
      {"sort", Sort},
      {"dictsort", DictSort},
      {"map", Map},
      {"int", ToWhole},
      {"float", ToReal},
      {"indent", Indent},
      {"round", Round},
      {"sum", Sum},
      {"list",
       [](const Value& value, const Arguments& arguments) -> TemplateResult {
         ONNXD_ASSIGN_OR_RETURN(TemplateList list, Elements(value, arguments));
         return list;
       }},
      {"items",
       [](const Value& value, const Arguments&) -> TemplateResult {
         if (value.is_undefined()) return TemplateList();
         if (value.dict() == nullptr) return InvalidArgument("items needs a mapping");
         return PairsOf(*value.dict());
       }},
      {"abs",
       [](const Value& value, const Arguments&) -> TemplateResult {
         if (const auto number = value.whole()) return *number < 0 ? -*number : *number;
         if (const auto number = value.number()) return std::abs(*number);
         return InvalidArgument(StrCat("abs of ", value.KindName()));
       }},
      {"select",
       [](const Value& value, const Arguments& a) { return Select(value, a, false, true); }},
      {"reject",
       [](const Value& value, const Arguments& a) { return Select(value, a, false, false); }},
      {"selectattr",
       [](const Value& value, const Arguments& a) { return Select(value, a, true, true); }},
      {"rejectattr",
       [](const Value& value, const Arguments& a) { return Select(value, a, true, false); }},
      {"max", [](const Value& value, const Arguments& a) { return Extreme(value, a, true); }},
      {"min", [](const Value& value, const Arguments& a) { return Extreme(value, a, false); }},
  };
  return *filters;
}

}  // namespace

bool HasFilter(std::string_view name) { return Filters().contains(name); }

TemplateResult ApplyFilter(const std::string& name, const Value& value,
                           const Arguments& arguments) {
  const auto found = Filters().find(name);
  if (found == Filters().end())
    return Unimplemented(StrCat("the filter '", name, "' is not there yet"));
  ONNXD_RETURN_IF_ERROR(Spend(arguments, value.size()));
  auto applied = found->second(value, arguments);
  if (!applied.ok()) return applied.status().WithContext(StrCat("filter '", name, "'"));
  return applied;
}

}  // namespace onnxd
