#include "server/templates/template_value.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr size_t kMostDepth = 64;

// repr() of a float: the shortest that reads back, with a point or an exponent.
std::string WrittenReal(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> digits;
  const double size = std::abs(value);
  const bool plain = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = plain ? std::chars_format::fixed : std::chars_format::scientific;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value, format);
  std::string text(digits.data(), end.ptr);
  if (plain && text.find('.') == text.npos) text += ".0";
  return text;
}

// repr() of a text.
void AppendQuoted(std::string& out, const std::string& text) {
  const bool has_single = text.find('\'') != text.npos, has_double = text.find('"') != text.npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  for (const char c : text) {
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else {
      if (c == '\\' || c == quote) out += '\\';
      out += c;
    }
  }
  out += quote;
}

// As json.dumps(ensure_ascii=False) writes it.
void AppendJsonText(std::string& out, const std::string& text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (const size_t found = kEscaped.find(c); found != kEscaped.npos) {
      out += '\\';
      out += kLetters[found];
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

TemplateValue Converted(const simdjson::dom::element& element) {
  using Type = simdjson::dom::element_type;
  switch (element.type()) {
    case Type::ARRAY: {
      TemplateList list;
      for (const auto one : simdjson::dom::array(element)) list.push_back(Converted(one));
      return list;
    }
    case Type::OBJECT: {
      TemplateDict dict;
      for (const auto& [key, value] : simdjson::dom::object(element)) {
        dict.Append(std::string(key), Converted(value));
      }
      return dict;
    }
    case Type::INT64:
      return int64_t(element);
    case Type::UINT64:
      return static_cast<double>(uint64_t(element));
    case Type::DOUBLE:
      return double(element);
    case Type::STRING:
      return std::string(std::string_view(element));
    case Type::BOOL:
      return bool(element);
    case Type::NULL_VALUE:
      break;
  }
  return {};
}

}  // namespace

const TemplateValue* TemplateDict::Find(std::string_view name) const {
  for (const auto& entry : entries_) {
    if (entry.first == name) return &entry.second;
  }
  return nullptr;
}

void TemplateDict::Set(std::string name, TemplateValue value) {
  for (auto& entry : entries_) {
    if (entry.first != name) continue;
    entry.second = std::move(value);
    return;
  }
  Append(std::move(name), std::move(value));
}

void TemplateDict::Append(std::string name, TemplateValue value) {
  entries_.emplace_back(std::move(name), std::move(value));
}

Status TemplateBudget::EnterMacro() {
  constexpr int kMostMacros = 16;
  if (macros_ == kMostMacros) return InvalidArgument("macros call each other too deeply");
  ++macros_;
  return Status::Ok();
}

TemplateBudget::~TemplateBudget() {
  for (const auto& names : namespaces_) *names = {};
}

std::shared_ptr<TemplateDict> TemplateBudget::KeepNamespace(TemplateDict names) {
  return namespaces_.emplace_back(std::make_shared<TemplateDict>(std::move(names)));
}

Status TemplateBudget::Spend(size_t bytes) {
  bytes_ -= static_cast<int64_t>(std::min(bytes, size_t{1} << 40));
  if (--steps_ >= 0 && bytes_ >= 0) return Status::Ok();
  return ResourceExhausted(steps_ < 0 ? "the template takes too many steps"
                                      : "the template makes too much text");
}

const TemplateValue* TemplateArguments::Find(size_t place, std::string_view name) const {
  return place < positional.size() ? &positional[place] : named.Find(name);
}

TemplateValue::TemplateValue(TemplateList list) {
  for (const TemplateValue& one : list) depth_ = std::max(depth_, one.depth_);
  ++depth_;
  value_ = std::make_shared<const TemplateList>(std::move(list));
}

TemplateValue::TemplateValue(TemplateDict dict) {
  for (const auto& entry : dict.entries()) depth_ = std::max(depth_, entry.second.depth_);
  ++depth_;
  value_ = std::make_shared<const TemplateDict>(std::move(dict));
}

size_t TemplateValue::size() const {
  if (text() != nullptr) return text()->size();
  if (list() != nullptr) return list()->size();
  return dict() != nullptr ? dict()->entries().size() : 0;
}

std::optional<double> TemplateValue::number() const {
  if (const double* const value = real()) return *value;
  if (const auto value = whole()) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<int64_t> TemplateValue::whole() const {
  if (const int64_t* const value = integer()) return *value;
  if (const bool* const value = boolean()) return *value ? 1 : 0;
  return std::nullopt;
}

bool TemplateValue::IsTrue() const {
  if (const auto value = number()) return *value != 0;
  if (const auto* const value = text()) return !value->empty();
  if (const auto* const value = list()) return !value->empty();
  if (const auto* const value = dict()) return !value->entries().empty();
  return !is_undefined() && !is_none();
}

const char* TemplateValue::KindName() const {
  constexpr std::array<const char*, 10> kNames = {"nothing that is defined",
                                                  "none",
                                                  "a truth value",
                                                  "a whole number",
                                                  "a number",
                                                  "a text",
                                                  "a list",
                                                  "a mapping",
                                                  "a namespace",
                                                  "a function"};
  return kNames[value_.index()];
}

std::string TemplateValue::Written() const {
  if (const auto* const value = text()) return *value;
  std::string out;
  if (!is_undefined()) AppendRepresentation(out);
  return out;
}

void TemplateValue::AppendRepresentation(std::string& out) const {
  if (const bool* const value = boolean()) {
    out += *value ? "True" : "False";
  } else if (const int64_t* const whole_number = integer()) {
    out += StrCat(*whole_number);
  } else if (const double* const number = real()) {
    out += WrittenReal(*number);
  } else if (const auto* const characters = text()) {
    AppendQuoted(out, *characters);
  } else if (const auto* const values = list()) {
    out += '[';
    for (size_t i = 0; i < values->size(); ++i) {
      if (i > 0) out += ", ";
      (*values)[i].AppendRepresentation(out);
    }
    out += ']';
  } else if (const auto* const entries = dict()) {
    out += '{';
    for (const auto& [name, value] : entries->entries()) {
      if (out.back() != '{') out += ", ";
      AppendQuoted(out, name);
      out += ": ";
      value.AppendRepresentation(out);
    }
    out += '}';
  } else {
    out += is_none() ? "None" : is_undefined() ? "Undefined" : StrCat("<", KindName(), ">");
  }
}

Status TemplateValue::AppendJson(std::string& out, int indent, int depth) const {
  const auto new_line = [&](int level) {
    if (indent >= 0) out += "\n" + std::string(static_cast<size_t>(indent * level), ' ');
  };
  const char* const separator = indent >= 0 ? "," : ", ";
  if (const bool* const value = boolean()) {
    out += *value ? "true" : "false";
  } else if (is_none()) {
    out += "null";
  } else if (integer() != nullptr || real() != nullptr) {
    const double* const number = real();
    out += number != nullptr && std::isnan(*number) ? "NaN" : Written();
  } else if (const auto* const characters = text()) {
    AppendJsonText(out, *characters);
  } else if (const auto* const values = list()) {
    out += '[';
    for (size_t i = 0; i < values->size(); ++i) {
      if (i > 0) out += separator;
      new_line(depth + 1);
      ONNXD_RETURN_IF_ERROR((*values)[i].AppendJson(out, indent, depth + 1));
    }
    if (!values->empty()) new_line(depth);
    out += ']';
  } else if (const auto* const entries = dict()) {
    out += '{';
    bool first = true;
    for (const auto& [name, value] : entries->entries()) {
      if (!std::exchange(first, false)) out += separator;
      new_line(depth + 1);
      AppendJsonText(out, name);
      out += ": ";
      ONNXD_RETURN_IF_ERROR(value.AppendJson(out, indent, depth + 1));
    }
    if (!first) new_line(depth);
    out += '}';
  } else {
    return InvalidArgument(StrCat(KindName(), " has no JSON form"));
  }
  return Status::Ok();
}

bool AreEqual(const TemplateValue& a, const TemplateValue& b) {
  if (const auto x = a.number()) {
    const auto y = b.number();
    return y && *x == *y;
  }
  if (a.text() != nullptr) return b.text() != nullptr && *a.text() == *b.text();
  if (a.list() != nullptr) {
    return b.list() != nullptr && std::equal(a.list()->begin(), a.list()->end(), b.list()->begin(),
                                             b.list()->end(), AreEqual);
  }
  if (a.dict() != nullptr) {
    if (b.dict() == nullptr || a.dict()->entries().size() != b.dict()->entries().size()) {
      return false;
    }
    const auto& entries = a.dict()->entries();
    return std::all_of(entries.begin(), entries.end(), [&](const auto& entry) {
      const TemplateValue* const other = b.dict()->Find(entry.first);
      return other != nullptr && AreEqual(entry.second, *other);
    });
  }
  if (a.names() != nullptr) return a.names() == b.names();
  if (a.function() != nullptr) return a.function() == b.function();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

Result<bool> IsLess(const TemplateValue& a, const TemplateValue& b) {
  const auto x = a.number(), y = b.number();
  if (x && y) return *x < *y;
  if (a.text() != nullptr && b.text() != nullptr) return *a.text() < *b.text();
  if (a.list() != nullptr && b.list() != nullptr) {
    const size_t count = std::min(a.list()->size(), b.list()->size());
    for (size_t i = 0; i < count; ++i) {
      const TemplateValue &one = (*a.list())[i], &other = (*b.list())[i];
      if (!AreEqual(one, other)) return IsLess(one, other);
    }
    return a.list()->size() < b.list()->size();
  }
  return InvalidArgument(StrCat(a.KindName(), " and ", b.KindName(), " have no order"));
}

TemplateResult TemplateValueOfJson(std::string_view json) {
  simdjson::dom::parser parser;
  if (parser.allocate(json.size() + 1, kMostDepth) != simdjson::SUCCESS) {
    return ResourceExhausted("no memory for the JSON");
  }
  simdjson::dom::element root;
  const auto error = parser.parse(json.data(), json.size()).get(root);
  if (error == simdjson::SUCCESS) return Converted(root);
  return InvalidArgument(StrCat("malformed JSON: ", simdjson::error_message(error)));
}

}  // namespace onnxd
