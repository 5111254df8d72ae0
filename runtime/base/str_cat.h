// StrCat("node '", name, "' has ", n, " inputs"): text for messages, without streams or formats.
#pragma once

#include <charconv>
#include <concepts>
#include <string>
#include <string_view>
#include <type_traits>

namespace onnxd {

template <typename T>
void StrAppendPiece(std::string& out, const T& piece) {
  if constexpr (std::is_same_v<T, bool>) {
    out += piece ? "true" : "false";
  } else if constexpr (std::is_same_v<T, char>) {
    out += piece;
  } else if constexpr (std::is_arithmetic_v<T>) {
    char buffer[64];
    const auto end = std::to_chars(buffer, buffer + sizeof(buffer), piece).ptr;
    out.append(buffer, end);
  } else {
    out += std::string_view(piece);
  }
}

template <typename... Pieces>
std::string StrCat(const Pieces&... pieces) {
  std::string out;
  (StrAppendPiece(out, pieces), ...);
  return out;
}

// "a, b, c" of any range whose elements StrCat accepts.
template <typename Range>
std::string StrJoin(const Range& range, std::string_view separator) {
  std::string out;
  bool first = true;
  for (const auto& piece : range) {
    if (!first) out += separator;
    first = false;
    StrAppendPiece(out, piece);
  }
  return out;
}

}  // namespace onnxd
