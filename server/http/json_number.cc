#include "server/http/json_number.h"

#include <locale.h>
#include <stdlib.h>

#include <charconv>
#include <cmath>

namespace onnxd {
namespace {

// Of which simdjson counts the digits rightly, whatever they begin with.
constexpr size_t kFewCharacters = 20;

}  // namespace

bool ReadDouble(simdjson::ondemand::value json, double& to) {
  const std::string_view token = json.raw_json_token();  // up to the next token
  double value;
  if (json.get_double().get(value) != simdjson::SUCCESS) return false;
  if (token.size() > kFewCharacters) {
    // Unlike from_chars it tells what is next to zero from what is too large.
    static const locale_t kPointIsAPoint = newlocale(LC_ALL_MASK, "C", nullptr);
    value = strtod_l(token.data(), nullptr, kPointIsAPoint);
    if (!std::isfinite(value)) return false;
  }
  to = value;
  return true;
}

bool IsBeyondDoubles(std::string_view token) {
  double value = 0;
  const char* const end = token.data() + token.size();
  const auto [stop, error] = std::from_chars(token.data(), end, value);
  if (error != std::errc::result_out_of_range) return false;
  return std::string_view(stop, static_cast<size_t>(end - stop)).find_first_not_of(" \t\r\n") ==
         std::string_view::npos;
}

}  // namespace onnxd
