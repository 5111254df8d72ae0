#include "server/grpc/grpc_framing.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/str_cat.h"
#include "server/net/inflate.h"

namespace onnxd {

std::array<char, kGrpcPrefixBytes> GrpcPrefix(size_t message_bytes) {
  std::array<char, kGrpcPrefixBytes> prefix{};
  for (size_t i = 1; i < prefix.size(); ++i) {
    prefix[i] = static_cast<char>(message_bytes >> (8 * (prefix.size() - 1 - i)) & 0xff);
  }
  return prefix;
}

std::string FrameGrpcMessage(std::string_view message) {
  const auto prefix = GrpcPrefix(message.size());
  std::string framed(prefix.begin(), prefix.end());
  return framed.append(message);
}

namespace {

// Requires a whole prefix.
size_t AnnouncedBytes(std::string_view bytes) {
  size_t length = 0;
  for (size_t i = 1; i < kGrpcPrefixBytes; ++i) {
    length = length << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return length;
}

// Source: https://github.com/grpc/grpc/blob/master/doc/compression.md
Result<std::string> Decoded(char flag, std::string_view payload, const GrpcDecoding& decoding) {
  if (flag == 0) return std::string(payload);
  if (flag != 1) return Internal("the message has an unknown flag");
  if (decoding.encoding != "gzip") {
    return Unimplemented(StrCat("messages compressed with '", decoding.encoding.substr(0, 16),
                                "' are not supported; identity and gzip are"));
  }
  return Inflate(payload, Compression::kGzip, decoding.limit, decoding.admit);
}

}  // namespace

Result<std::string> UnframeGrpcMessage(std::string_view body, const GrpcDecoding& decoding) {
  if (body.size() < kGrpcPrefixBytes) return Internal("the request holds no message");
  const size_t length = AnnouncedBytes(body);
  if (length != body.size() - kGrpcPrefixBytes) {
    return Internal(StrCat("the message announces ", length, " bytes, ",
                           body.size() - kGrpcPrefixBytes, " came"));
  }
  return Decoded(body[0], body.substr(kGrpcPrefixBytes), decoding);
}

Result<std::optional<std::string>> TakeGrpcMessage(std::string& bytes,
                                                   const GrpcDecoding& decoding) {
  if (bytes.size() < kGrpcPrefixBytes) return std::optional<std::string>();
  const size_t length = AnnouncedBytes(bytes);
  if (length > static_cast<size_t>(decoding.limit)) {
    return ResourceExhausted(
        StrCat("the message is larger than the limit of ", decoding.limit, " bytes"));
  }
  if (bytes.size() < kGrpcPrefixBytes + length) return std::optional<std::string>();
  ONNXD_ASSIGN_OR_RETURN(
      std::string message,
      Decoded(bytes[0], std::string_view(bytes).substr(kGrpcPrefixBytes, length), decoding));
  bytes.erase(0, kGrpcPrefixBytes + length);
  return std::optional<std::string>(std::move(message));
}

std::optional<std::chrono::nanoseconds> ParseGrpcTimeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) return std::nullopt;
  int64_t value = 0;
  for (const char c : text.substr(0, text.size() - 1)) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  using namespace std::chrono;
  switch (text.back()) {
    // Capped at a day, so that adding it to the clock cannot overflow.
    case 'H':
      return value > 24 ? hours(24) : hours(value);
    case 'M':
      return value > 1440 ? minutes(1440) : minutes(value);
    case 'S':
      return value > 86400 ? seconds(86400) : seconds(value);
    case 'm':
      return milliseconds(std::min<int64_t>(value, 86400000));
    case 'u':
      return microseconds(value);
    case 'n':
      return nanoseconds(value);
    default:
      return std::nullopt;
  }
}

std::string EncodeGrpcMessage(std::string_view text) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text.substr(0, 4096)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte <= 0x7e && c != '%') {
      out += c;
    } else {
      out += '%';
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    }
  }
  return out;
}

std::string DecodeGrpcMessage(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* hex = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(hex, hex + 2, byte, 16).ptr == hex + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace onnxd
