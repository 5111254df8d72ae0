// Methods of texts and mappings, as Python has them: strip, lstrip, rstrip, split, splitlines,
// startswith, endswith, upper, lower, title, capitalize, replace, removeprefix, removesuffix, find,
// count, join, isdigit, isalpha, isspace; items, keys, values, get.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/templates/template_value.h"

namespace onnxd {

inline constexpr std::string_view kTemplateBlanks = " \t\n\r\f\v";

// A function that holds the value; nothing where the value has no such method.
std::optional<TemplateValue> TemplateMethodOf(const TemplateValue& value, const std::string& name);

// [name, value] of each entry.
TemplateList PairsOf(const TemplateDict& dict);

// Without these characters at its ends.
std::string Stripped(std::string_view text, std::string_view characters, bool left, bool right);

}  // namespace onnxd
