// Digests and signatures that object stores ask for.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/status.h"

namespace onnxd {

// What an object's bytes must come to, in hexadecimal digits.
struct Checksum {
  enum class Kind { kNone, kMd5, kSha256 };
  Kind kind = Kind::kNone;
  std::string hex;
  bool operator==(const Checksum&) const = default;
};

std::string Hex(std::string_view bytes);

std::string Sha256(std::string_view bytes);  // 32 bytes
std::string HmacSha256(std::string_view key, std::string_view bytes);

// kInvalidArgument where `pem` is no private key.
Result<std::string> SignRsaSha256(const std::string& pem, std::string_view bytes);

// kDataLoss when the file's contents are others, kUnavailable when it cannot be read.
Status CheckFile(const std::string& path, const Checksum& checksum);

}  // namespace onnxd
