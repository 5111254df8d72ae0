// The small formats of gRPC over HTTP/2: length-prefixed messages, timeouts, percent-encoded text.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace onnxd {

inline constexpr size_t kGrpcPrefixBytes = 5;  // one flag, four bytes of length, big-endian

std::string FrameGrpcMessage(std::string_view message);

// The one message of a unary request. kInternal when the prefix and the bytes disagree,
// kUnimplemented when it is compressed.
Result<std::string> UnframeGrpcMessage(std::string_view body, std::string_view encoding);

// "100m" -> 100 ms. Up to eight digits and a unit of H, M, S, m, u, n; nullopt otherwise.
std::optional<std::chrono::nanoseconds> ParseGrpcTimeout(std::string_view text);

// A grpc-message value: bytes outside printable ASCII, and '%', as %XX.
std::string EncodeGrpcMessage(std::string_view text);

}  // namespace onnxd
