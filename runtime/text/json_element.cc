#include "runtime/text/json_element.h"

#include <algorithm>

namespace onnxd {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Whole numbers that need more than 64 bits as real ones, which simdjson reads.
std::string WithoutLongNumbers(std::string_view json) {
  constexpr size_t kMostDigits = 18;
  std::string out;
  bool in_text = false;
  for (size_t at = 0; at < json.size(); ++at) {
    out += json[at];
    if (in_text && json[at] == '\\' && at + 1 < json.size()) {
      out += json[++at];
      continue;
    }
    if (json[at] == '"') in_text = !in_text;
    const bool begins = !in_text && IsDigit(json[at]) && (at == 0 || !IsDigit(json[at - 1]));
    if (!begins) continue;
    const std::string_view rest = json.substr(at);
    const auto digits =
        static_cast<size_t>(std::find_if_not(rest.begin(), rest.end(), IsDigit) - rest.begin());
    const char before = at == 0 ? ' ' : json[at - 1];
    const char behind = digits < rest.size() ? rest[digits] : ' ';
    const bool is_whole = before != '.' && before != 'e' && before != 'E' && before != '+' &&
                          behind != '.' && behind != 'e' && behind != 'E';
    out.append(rest.substr(1, digits - 1));
    if (is_whole && digits > kMostDigits) out += "e0";
    at += digits - 1;
  }
  return out;
}

}  // namespace

Status JsonObject::Parse(std::string_view json, std::string_view name) {
  auto error = parser_.parse(json.data(), json.size()).get(root_);
  if (error != simdjson::SUCCESS) {
    // transformers writes model_max_length: 1000000000000000019884624838656 where there is none.
    const std::string changed = WithoutLongNumbers(json);
    if (changed.size() > json.size()) {
      error = parser_.parse(changed.data(), changed.size()).get(root_);
    }
  }
  if (error == simdjson::SUCCESS && root_.is_object()) return Status::Ok();
  return InvalidArgument(StrCat(name, " is no JSON object"));
}

}  // namespace onnxd
