#include "runtime/text/byte_tokens.h"

namespace onnxd {
namespace {

constexpr std::string_view kDigits = "0123456789ABCDEF";

}  // namespace

std::string ByteToken(unsigned byte) {
  return std::string("<0x") + kDigits[byte >> 4] + kDigits[byte & 15] + ">";
}

int ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return -1;
  const size_t high = kDigits.find(token[3]), low = kDigits.find(token[4]);
  if (high == std::string_view::npos || low == std::string_view::npos) return -1;
  return static_cast<int>(high * 16 + low);
}

}  // namespace onnxd
