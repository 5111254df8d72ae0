// What is fuzzed: each takes any bytes, and ends the process where they do what they must not.
#pragma once

#include <string_view>

namespace onnxd {

void FuzzModel(std::string_view bytes);
void FuzzHttp(std::string_view bytes);
void FuzzJson(std::string_view bytes);
void FuzzBinary(std::string_view bytes);
void FuzzGrpc(std::string_view bytes);
void FuzzScan(std::string_view bytes);
void FuzzTokenizer(std::string_view bytes);

using FuzzTarget = void (*)(std::string_view);
// Null: there is none of that name (model, http, json, binary, grpc, scan, tokenizer).
FuzzTarget FuzzTargetNamed(std::string_view name);

}  // namespace onnxd
