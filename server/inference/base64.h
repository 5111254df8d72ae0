// Base64. Source: RFC 4648, 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace onnxd {

std::string EncodeBase64(std::string_view bytes);
// Nothing for text that is none, or lacks its padding.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace onnxd
