// <0x00> to <0xFF>: how vocabularies write the tokens of single bytes.
#pragma once

#include <string>
#include <string_view>

namespace onnxd {

// Requires byte < 256.
std::string ByteToken(unsigned byte);
// -1: the token is of no byte.
int ByteOfToken(std::string_view token);

}  // namespace onnxd
