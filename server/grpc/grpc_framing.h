// The small formats of gRPC over HTTP/2: length-prefixed messages, timeouts, percent-encoded text.
#pragma once

#include <array>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace onnxd {

inline constexpr size_t kGrpcPrefixBytes = 5;  // one flag, four bytes of length, big-endian

// The prefix of a message that is not compressed.
std::array<char, kGrpcPrefixBytes> GrpcPrefix(size_t message_bytes);
std::string FrameGrpcMessage(std::string_view message);

// What a client's messages are compressed with, and how much they may hold.
struct GrpcDecoding {
  std::string_view encoding;                  // of grpc-encoding; empty: identity
  int64_t limit;                              // bytes of a message
  const std::function<bool(int64_t)>& admit;  // of Inflate
};

// The one message of a unary request. kInternal when the prefix and the bytes disagree,
// kUnimplemented for encodings other than identity and gzip, else as Inflate.
Result<std::string> UnframeGrpcMessage(std::string_view body, const GrpcDecoding& decoding);

// Takes the first message off the front of a stream's bytes; nullopt while it is not whole.
// kResourceExhausted as soon as its prefix announces more than the limit.
Result<std::optional<std::string>> TakeGrpcMessage(std::string& bytes,
                                                   const GrpcDecoding& decoding);

// "100m" -> 100 ms. Up to eight digits and a unit of H, M, S, m, u, n; nullopt otherwise.
std::optional<std::chrono::nanoseconds> ParseGrpcTimeout(std::string_view text);

// A grpc-message value: bytes outside printable ASCII, and '%', as %XX.
std::string EncodeGrpcMessage(std::string_view text);
// The way back; what is no %XX stays as it is.
std::string DecodeGrpcMessage(std::string_view text);

}  // namespace onnxd
