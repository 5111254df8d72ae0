// Letter case of UTF-8 text, code point by code point in the C library's Unicode tables.
#pragma once

#include <string>

namespace onnxd {

// Bytes that are no UTF-8 stay as they are.
std::string Utf8Lower(const std::string& text);
std::string Utf8Upper(const std::string& text);

}  // namespace onnxd
