#include "server/config/option_key.h"

#include <charconv>

#include "runtime/base/split_list.h"

namespace onnxd {

Result<int64_t> ParseNumber(const std::string& text, int64_t low, int64_t high) {
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool leading_zero = text.size() > 1 && text[0] == '0';
  if (error != std::errc() || stop != text.data() + text.size() || leading_zero || value < low ||
      value > high) {
    return InvalidArgument(
        StrCat("'", text.substr(0, 64), "' is not a whole number from ", low, " to ", high));
  }
  return value;
}

Result<std::vector<int64_t>> ParseAscending(const std::string& text, int64_t low, int64_t high) {
  std::vector<int64_t> numbers;
  for (const std::string& part : SplitList(text, ',')) {
    ONNXD_ASSIGN_OR_RETURN(const int64_t number, ParseNumber(part, low, high));
    if (!numbers.empty() && number <= numbers.back()) {
      return InvalidArgument(StrCat("'", text.substr(0, 64), "' is not in ascending order"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

}  // namespace onnxd
