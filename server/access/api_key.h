// API keys: random texts that clients send, and the file that knows their hashes, or certificates
// that they show.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
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
  bool is_certificate = false;  // with `name` as its common name; there is no hash
  // Of the wall clock; nullopt: never.
  std::optional<std::chrono::sys_seconds> expires{};
  // Patterns of models' names, in which '*' stands for any text; empty: all models.
  std::vector<std::string> models{};
  int64_t rate = 0;         // requests a second, as many at once after a second of none; 0: any
  int64_t concurrency = 0;  // requests at once; 0: any
};

// 256 random bits as text: "onnxd_" and 64 hexadecimal digits. kUnavailable without randomness.
Result<std::string> NewApiKey();
ApiKey::Hash HashOfKey(std::string_view text);

// kInvalidArgument unless it is 1 to 64 letters, digits, '-', '_' or '.'.
Status CheckKeyName(std::string_view name);

// A text of lines NAME ROLE HASH, the hash in 64 hexadecimal digits or the word "certificate", and
// after these what limits the key: expires=2027-01-31 or 2027-01-31T12:00:00Z, models=NAME,PREFIX*,
// rate=N, concurrency=N. Empty lines and those that begin with '#' say nothing; white space around
// words and Windows' line ends do not count. Each name stands there once. kInvalidArgument names
// the line.
Result<std::vector<ApiKey>> ParseKeyFile(const std::string& text, const std::string& name);
std::string KeyLine(const ApiKey& key);

// "2027-01-31", its beginning, or "2027-01-31T12:00:00Z", both of UTC.
std::optional<std::chrono::sys_seconds> ParseTime(const std::string& text);
std::string TimeText(std::chrono::sys_seconds time);

// Whether `name` is what `pattern` says, in which '*' stands for any text.
bool MatchesPattern(std::string_view name, std::string_view pattern);

// The file's text. kNotFound; kInvalidArgument when everybody may read it or others may write it,
// when it belongs neither to root nor to the user of this process, is no regular file, or is larger
// than 1 MB. Symbolic links are followed: Kubernetes mounts secrets as such.
Result<std::string> ReadKeyFile(const std::string& path);

}  // namespace onnxd
