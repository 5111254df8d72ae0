#include "server/templates/template_methods.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/text/unicode.h"
#include "server/templates/template_arguments.h"
#include "server/templates/template_functions.h"

namespace onnxd {
namespace {

using Value = TemplateValue;
using Arguments = TemplateArguments;

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
      const size_t begin = text.find_first_not_of(kTemplateBlanks);
      if (begin == text.npos) return parts;
      text.remove_prefix(begin);
      const size_t end = most == 0 ? text.npos : text.find_first_of(kTemplateBlanks);
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
      return Stripped(text, TextAt(arguments, 0, "chars", kTemplateBlanks), left, right);
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
                  [holder](const Arguments&) -> TemplateResult { return PairsOf(*holder.dict()); });
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

}  // namespace

std::optional<TemplateValue> TemplateMethodOf(const TemplateValue& value, const std::string& name) {
  if (value.text() != nullptr) return TextMethod(value, name);
  if (value.dict() != nullptr) return DictMethod(value, name);
  return std::nullopt;
}

TemplateList PairsOf(const TemplateDict& dict) {
  TemplateList pairs;
  for (const auto& [name, value] : dict.entries()) pairs.push_back(TemplateList{name, value});
  return pairs;
}

std::string Stripped(std::string_view text, std::string_view characters, bool left, bool right) {
  if (left) text.remove_prefix(std::min(text.find_first_not_of(characters), text.size()));
  if (right) text = text.substr(0, text.find_last_not_of(characters) + 1);
  return std::string(text);
}

}  // namespace onnxd
