#include "server/templates/template_functions.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>
#include <map>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

using Value = TemplateValue;
using Arguments = TemplateArguments;

constexpr std::string_view kBlanks = " \t\n\r\f\v";
constexpr int64_t kMostElements = 1'000'000;

std::string TextAt(const Arguments& arguments, size_t place, std::string_view name,
                   std::string_view otherwise) {
  const Value* const value = arguments.Find(place, name);
  return value == nullptr || value->is_none() ? std::string(otherwise) : value->Written();
}

int64_t WholeAt(const Arguments& arguments, size_t place, std::string_view name,
                int64_t otherwise) {
  const Value* const value = arguments.Find(place, name);
  return value == nullptr ? otherwise : value->whole().value_or(otherwise);
}

bool FlagAt(const Arguments& arguments, size_t place, std::string_view name) {
  const Value* const value = arguments.Find(place, name);
  return value != nullptr && value->IsTrue();
}

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

std::string Stripped(std::string_view text, std::string_view characters, bool left, bool right) {
  if (left) text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
  if (right) text = text.substr(0, text.find_last_not_of(characters) + 1);
  return std::string(text);
}

std::string Replaced(std::string_view text, std::string_view from, std::string_view to,
                     int64_t most) {
  std::string out;
  size_t at = 0;
  for (; most != 0 && !from.empty(); --most) {
    const size_t found = text.find(from, at);
    if (found == text.npos) break;
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

TemplateList Split(std::string_view text, const Value* separator, int64_t most) {
  TemplateList parts;
  if (separator == nullptr || separator->is_none()) {
    for (;; --most) {
      const size_t begin = text.find_first_not_of(kBlanks);
      if (begin == text.npos) return parts;
      text.remove_prefix(begin);
      const size_t end = most == 0 ? text.npos : text.find_first_of(kBlanks);
      parts.emplace_back(std::string(text.substr(0, end)));
      if (end == text.npos) return parts;
      text.remove_prefix(end);
    }
  }
  const std::string sign = separator->Written();
  for (; most != 0; --most) {
    const size_t end = sign.empty() ? text.npos : text.find(sign);
    if (end == text.npos) break;
    parts.emplace_back(std::string(text.substr(0, end)));
    text.remove_prefix(end + sign.size());
  }
  parts.emplace_back(std::string(text));
  return parts;
}

std::string Titled(const std::string& text, bool first_alone) {
  std::string out;
  bool begins = true;
  for (size_t at = 0; at < text.size();) {
    const auto [value, bytes] = CodePointAt(text, at);
    AppendCodePoint(begins ? Upper(value) : Lower(value), out);
    begins = !first_alone && !IsLetter(value);
    at += bytes;
  }
  return out;
}

TemplateList Pairs(const TemplateDict& dict) {
  TemplateList pairs;
  for (const auto& [name, value] : dict.entries()) pairs.push_back(TemplateList{name, value});
  return pairs;
}

Status Spend(const Arguments& arguments, size_t bytes) {
  return arguments.budget == nullptr ? Status::Ok() : arguments.budget->Spend(bytes);
}

Value Method(const Value& holder, TemplateFunction function) {
  return {std::move(function), holder.depth()};
}

// Nothing: a text has no such method.
std::optional<Value> TextMethod(const Value& holder, const std::string& name) {
  const auto with = [&](auto function) -> std::optional<Value> {
    return Method(holder, [holder, function](const Arguments& arguments) -> TemplateResult {
      ONNXD_RETURN_IF_ERROR(Spend(arguments, holder.text()->size()));
      return function(*holder.text(), arguments);
    });
  };
  using Text = const std::string&;
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const bool left = name != "rstrip", right = name != "lstrip";
    return with([left, right](Text text, const Arguments& arguments) -> TemplateResult {
      return Stripped(text, TextAt(arguments, 0, "chars", kBlanks), left, right);
    });
  }
  if (name == "split") {
    return with([](Text text, const Arguments& arguments) -> TemplateResult {
      return Split(text, arguments.Find(0, "sep"), WholeAt(arguments, 1, "maxsplit", -1));
    });
  }
  if (name == "splitlines") {
    return with([](Text text, const Arguments&) -> TemplateResult {
      TemplateList lines;
      for (std::string_view rest = text; !rest.empty();) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        lines.emplace_back(std::string(rest.substr(0, end)));
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
      return lines;
    });
  }
  if (name == "startswith" || name == "endswith") {
    const bool begin = name == "startswith";
    return with([begin](Text text, const Arguments& arguments) -> TemplateResult {
      const Value* const wanted = arguments.Find(0, "prefix");
      if (wanted == nullptr) return InvalidArgument("startswith and endswith need a text");
      const auto fits = [&](const Value& one) {
        return one.text() != nullptr &&
               (begin ? text.starts_with(*one.text()) : text.ends_with(*one.text()));
      };
      const TemplateList* const several = wanted->list();
      return several == nullptr ? fits(*wanted)
                                : std::any_of(several->begin(), several->end(), fits);
    });
  }
  if (name == "upper")
    return with([](Text text, const Arguments&) -> TemplateResult { return Upper(text); });
  if (name == "lower")
    return with([](Text text, const Arguments&) -> TemplateResult { return Lower(text); });
  if (name == "title")
    return with([](Text text, const Arguments&) -> TemplateResult { return Titled(text, false); });
  if (name == "capitalize") {
    return with([](Text text, const Arguments&) -> TemplateResult { return Titled(text, true); });
  }
  if (name == "replace") {
    return with([](Text text, const Arguments& arguments) -> TemplateResult {
      std::string out =
          Replaced(text, TextAt(arguments, 0, "old", ""), TextAt(arguments, 1, "new", ""),
                   WholeAt(arguments, 2, "count", -1));
      ONNXD_RETURN_IF_ERROR(Spend(arguments, out.size()));
      return out;
    });
  }
  if (name == "removeprefix" || name == "removesuffix") {
    const bool prefix = name == "removeprefix";
    return with([prefix](Text text, const Arguments& arguments) -> TemplateResult {
      const std::string part = TextAt(arguments, 0, "part", "");
      if (prefix) return text.starts_with(part) ? text.substr(part.size()) : text;
      return text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
    });
  }
  if (name == "find" || name == "count") {
    const bool finds = name == "find";
    return with([finds](Text text, const Arguments& arguments) -> TemplateResult {
      const std::string part = TextAt(arguments, 0, "sub", "");
      const size_t first = text.find(part);
      if (finds) {
        return first == text.npos
                   ? int64_t{-1}
                   : static_cast<int64_t>(CountCharacters(std::string_view(text).substr(0, first)));
      }
      int64_t count = 0;
      for (size_t at = first; at != text.npos && !part.empty();
           at = text.find(part, at + part.size())) {
        ++count;
      }
      return count;
    });
  }
  if (name == "join") {
    return with([](Text text, const Arguments& arguments) -> TemplateResult {
      const Value* const parts = arguments.Find(0, "iterable");
      if (parts == nullptr) return InvalidArgument("join needs a list");
      Arguments separator;
      separator.positional = {text};
      separator.budget = arguments.budget;
      return ApplyFilter("join", *parts, separator);
    });
  }
  if (name == "isdigit" || name == "isalpha" || name == "isspace") {
    const char kind = name[2];
    return with([kind](Text text, const Arguments&) -> TemplateResult {
      for (size_t at = 0; at < text.size();) {
        const auto [value, bytes] = CodePointAt(text, at);
        const bool fits = kind == 'd'   ? IsNumber(value)
                          : kind == 'a' ? IsLetter(value)
                                        : IsWhitespace(value);
        if (!fits) return false;
        at += bytes;
      }
      return !text.empty();
    });
  }
  return std::nullopt;
}

std::optional<Value> DictMethod(const Value& holder, const std::string& name) {
  if (name == "items") {
    return Method(holder,
                  [holder](const Arguments&) -> TemplateResult { return Pairs(*holder.dict()); });
  }
  if (name == "keys" || name == "values") {
    const bool keys = name == "keys";
    return Method(holder, [holder, keys](const Arguments&) -> TemplateResult {
      TemplateList list;
      for (const auto& [key, value] : holder.dict()->entries())
        list.push_back(keys ? Value(key) : value);
      return list;
    });
  }
  if (name == "get") {
    return Method(holder, [holder](const Arguments& arguments) -> TemplateResult {
      const Value* const found = holder.dict()->Find(TextAt(arguments, 0, "key", ""));
      const Value* const otherwise = arguments.Find(1, "default");
      return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value();
    });
  }
  return std::nullopt;
}

std::optional<Value> MethodOf(const Value& value, const std::string& name) {
  if (value.text() != nullptr) return TextMethod(value, name);
  if (value.dict() != nullptr) return DictMethod(value, name);
  return std::nullopt;
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
  ONNXD_ASSIGN_OR_RETURN(TemplateList sorted, SortedBy(Pairs(*value.dict()), arguments, key,
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
    const std::string text = Stripped(*value.text(), kBlanks, true, true);
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
    const std::string text = Stripped(*value.text(), kBlanks, true, true);
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
  return (*TextMethod(Value(value.Written()), kName)->function())(arguments);
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
         return Pairs(*value.dict());
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
  if (auto method = MethodOf(value, name)) return *std::move(method);
  return EntryOf(value, name).value_or(Value::MakeUndefined(name));
}

TemplateResult ItemOf(const Value& value, const Value& place, TemplateBudget& budget) {
  if (value.is_undefined()) return Undefined(value);
  if (value.list() == nullptr) ONNXD_RETURN_IF_ERROR(budget.Spend(value.size()));
  if (const std::string* const name = place.text()) {
    if (auto entry = EntryOf(value, *name)) return *std::move(entry);
    return MethodOf(value, *name).value_or(Value::MakeUndefined(*name));
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
