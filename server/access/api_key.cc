#include "server/access/api_key.h"

#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <set>
#include <span>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr std::string_view kPrefix = "onnxd_";
constexpr uint64_t kMaxFileBytes = 1 << 20;
constexpr size_t kMaxNameBytes = 64;

std::string HexOf(std::span<const uint8_t> bytes) {
  std::string text;
  for (const uint8_t byte : bytes) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

constexpr std::string_view kCertificate = "certificate";

bool ParseHash(std::string_view text, ApiKey::Hash& hash) {
  if (text.size() != 2 * hash.size()) return false;
  for (size_t i = 0; i < hash.size(); ++i) {
    const int high = DigitOf(text[2 * i]), low = DigitOf(text[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    hash[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

bool ParseNumber(const std::string& text, int64_t& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() && number > 0 &&
         number <= 1'000'000'000;
}

// "expires=...", "models=...", "rate=...", "concurrency=...".
Status ParseLimit(const std::string& word, ApiKey& key) {
  const size_t cut = word.find('=');
  const std::string name = word.substr(0, cut);
  const std::string value = cut == std::string::npos ? "" : word.substr(cut + 1);
  bool fits = false;
  if (name == "expires") {
    key.expires = ParseTime(value);
    fits = key.expires.has_value();
  } else if (name == "models") {
    key.models = SplitList(value, ',');
    fits = !key.models.empty();
  } else if (name == "rate") {
    fits = ParseNumber(value, key.rate);
  } else if (name == "concurrency") {
    fits = ParseNumber(value, key.concurrency);
  }
  if (fits) return Status::Ok();
  return InvalidArgument(
      "after the hash come expires=2027-01-31, models=NAME,PREFIX*, rate=N, concurrency=N");
}

Result<ApiKey> ParseLine(const std::vector<std::string>& words) {
  if (words.size() < 3) return InvalidArgument("a line is NAME ROLE HASH");
  ApiKey key;
  key.name = words[0];
  ONNXD_RETURN_IF_ERROR(CheckKeyName(key.name));
  const auto role = RoleNamed(words[1]);
  if (!role) return InvalidArgument("a key's role is predict, read or admin");
  key.role = *role;
  key.is_certificate = words[2] == kCertificate;
  // Not in the message: it might be a key itself.
  if (!key.is_certificate && !ParseHash(words[2], key.hash)) {
    return InvalidArgument("the hash is not 64 hexadecimal digits (onnxd keys create writes it)");
  }
  for (size_t i = 3; i < words.size(); ++i) ONNXD_RETURN_IF_ERROR(ParseLimit(words[i], key));
  return key;
}

}  // namespace

Status CheckKeyName(std::string_view name) {
  const bool fits = !name.empty() && name.size() <= kMaxNameBytes &&
                    std::all_of(name.begin(), name.end(), [](unsigned char c) {
                      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                             (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
                    });
  if (fits) return Status::Ok();
  return InvalidArgument("a key's name is 1 to 64 letters, digits, '-', '_' or '.'");
}

Result<std::string> NewApiKey() {
  std::array<uint8_t, 32> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return Unavailable("the system gives no random numbers");
  }
  return StrCat(kPrefix, HexOf(bytes));
}

ApiKey::Hash HashOfKey(std::string_view text) {
  ApiKey::Hash hash;
  SHA256(reinterpret_cast<const uint8_t*>(text.data()), text.size(), hash.data());
  return hash;
}

Result<std::vector<ApiKey>> ParseKeyFile(const std::string& text, const std::string& name) {
  std::vector<ApiKey> keys;
  std::set<std::string> names;
  std::istringstream lines(text);
  std::string line;
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream stream(line);
    std::vector<std::string> words;
    for (std::string word; stream >> word;) words.push_back(word);
    if (words.empty() || words[0][0] == '#') continue;
    auto key = ParseLine(words);
    if (key.ok() && !names.insert(key->name).second) {
      key = InvalidArgument(StrCat("key '", key->name, "' stands there twice"));
    }
    if (!key.ok()) return key.status().WithContext(StrCat(name, ":", number));
    keys.push_back(*std::move(key));
  }
  return keys;
}

std::string KeyLine(const ApiKey& key) {
  std::string line = StrCat(key.name, " ", RoleName(key.role), " ",
                            key.is_certificate ? std::string(kCertificate) : HexOf(key.hash));
  if (key.expires) line += StrCat(" expires=", TimeText(*key.expires));
  if (!key.models.empty()) line += StrCat(" models=", StrJoin(key.models, ","));
  if (key.rate > 0) line += StrCat(" rate=", key.rate);
  if (key.concurrency > 0) line += StrCat(" concurrency=", key.concurrency);
  return line + "\n";
}

std::optional<std::chrono::sys_seconds> ParseTime(const std::string& text) {
  std::tm time{};
  const bool whole = text.size() > 10;
  const char* end = strptime(text.c_str(), whole ? "%Y-%m-%dT%H:%M:%SZ" : "%Y-%m-%d", &time);
  if (end == nullptr || *end != '\0' || text.size() < 10) return std::nullopt;
  const std::chrono::sys_seconds parsed(std::chrono::seconds(timegm(&time)));
  // A 31st of February is none.
  if (TimeText(parsed).substr(0, text.size()) != text) return std::nullopt;
  return parsed;
}

std::string TimeText(std::chrono::sys_seconds time) {
  const std::time_t seconds = time.time_since_epoch().count();
  std::tm parts{};
  char text[32];
  gmtime_r(&seconds, &parts);
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

bool MatchesPattern(std::string_view name, std::string_view pattern) {
  // Where the last '*' was, and what it has taken: at most all of both is looked at again.
  size_t star = std::string_view::npos, taken = 0, at = 0, i = 0;
  while (at < name.size()) {
    if (i < pattern.size() && pattern[i] == '*') {
      star = i++;
      taken = at;
    } else if (i < pattern.size() && pattern[i] == name[at]) {
      ++i;
      ++at;
    } else if (star != std::string_view::npos) {
      i = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', i) == std::string_view::npos;
}

Result<std::string> ReadKeyFile(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return NotFound(StrCat("cannot read ", path));
  if (!S_ISREG(status.st_mode)) return InvalidArgument(StrCat(path, " is not a regular file"));
  if (status.st_mode & (S_IROTH | S_IWOTH | S_IWGRP)) {
    return InvalidArgument(StrCat(path,
                                  " may be read or written by others than its owner and readers of "
                                  "its group; chmod 640 makes it right"));
  }
  if (status.st_uid != 0 && status.st_uid != geteuid()) {
    return InvalidArgument(StrCat(path, " belongs neither to root nor to the user of onnxd"));
  }
  auto text = ReadFile(path, kMaxFileBytes);
  if (text.status().code() == StatusCode::kResourceExhausted) {
    return InvalidArgument(std::string(text.status().message()));
  }
  return text;
}

}  // namespace onnxd
