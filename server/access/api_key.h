// API keys: random texts that clients send, and the file that knows their hashes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "server/access/role.h"

namespace onnxd {

struct ApiKey {
  using Hash = std::array<uint8_t, 32>;  // SHA-256 of the text
  std::string name;
  Role role = Role::kPredict;
  Hash hash{};
};

// 256 random bits as text: "onnxd_" and 64 hexadecimal digits. kUnavailable without randomness.
Result<std::string> NewApiKey();
ApiKey::Hash HashOfKey(std::string_view text);

// kInvalidArgument unless it is 1 to 64 letters, digits, '-', '_' or '.'.
Status CheckKeyName(std::string_view name);

// A text of lines NAME ROLE HASH, the hash in 64 hexadecimal digits. Empty lines and those that
// begin with '#' say nothing; white space around words and Windows' line ends do not count. Each
// name stands there once. kInvalidArgument names the line.
Result<std::vector<ApiKey>> ParseKeyFile(const std::string& text, const std::string& name);
std::string KeyLine(const ApiKey& key);

// The file's text. kNotFound; kInvalidArgument when everybody may read it or others may write it,
// when it belongs neither to root nor to the user of this process, is no regular file, or is larger
// than 1 MB. Symbolic links are followed: Kubernetes mounts secrets as such.
Result<std::string> ReadKeyFile(const std::string& path);

}  // namespace onnxd
