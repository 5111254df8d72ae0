// onnxd keys create, list, revoke: the file of API keys.
#include <algorithm>
#include <cstdio>
#include <sstream>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "server/access/api_key.h"
#include "tools/command.h"

namespace onnxd {
namespace {

constexpr unsigned kMode = 0600;

struct KeyFile {
  std::string text;
  std::vector<ApiKey> keys;
};

Result<KeyFile> Read(const std::string& path) {
  KeyFile file;
  ONNXD_ASSIGN_OR_RETURN(file.text, ReadKeyFile(path));
  ONNXD_ASSIGN_OR_RETURN(file.keys, ParseKeyFile(file.text, path));
  return file;
}

// The text without the line of that key.
std::string Without(const std::string& text, const std::string& name) {
  std::string rest;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(" \t");
    const bool is_it = begin != std::string::npos && line.compare(begin, name.size(), name) == 0 &&
                       line.find_first_of(" \t", begin) == begin + name.size();
    if (!is_it) rest += StrCat(line, "\n");
  }
  return rest;
}

Result<std::string> Create(const KeysFlags& flags) {
  ONNXD_RETURN_IF_ERROR(CheckKeyName(flags.name));
  auto file = Read(flags.file);
  if (file.status().code() == StatusCode::kNotFound) file = KeyFile{};
  ONNXD_RETURN_IF_ERROR(file.status());
  std::string text;
  if (!flags.certificate) {
    ONNXD_ASSIGN_OR_RETURN(text, NewApiKey());
  }
  std::string lines = file->text;
  if (!lines.empty() && lines.back() != '\n') lines += '\n';
  ApiKey key{flags.name, *RoleNamed(flags.role), HashOfKey(text), flags.certificate};
  if (!flags.expires.empty()) {
    key.expires = ParseTime(flags.expires);
    if (!key.expires)
      return InvalidArgument("--expires is a day of UTC, 2027-01-31, or 2027-01-31T12:00:00Z");
  }
  key.models = SplitList(flags.models, ',');
  key.rate = flags.rate;
  key.concurrency = flags.concurrency;
  lines += KeyLine(key);
  // The name may be there already.
  ONNXD_RETURN_IF_ERROR(ParseKeyFile(lines, flags.file).status());
  ONNXD_RETURN_IF_ERROR(ReplaceFile(flags.file, lines, kMode));
  return text;
}

Status Revoke(const KeysFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(const KeyFile file, Read(flags.file));
  const bool known = std::any_of(file.keys.begin(), file.keys.end(),
                                 [&](const ApiKey& key) { return key.name == flags.name; });
  if (!known) return NotFound(StrCat(flags.file, " has no key '", flags.name, "'"));
  return ReplaceFile(flags.file, Without(file.text, flags.name), kMode);
}

}  // namespace

int CreateKey(const KeysFlags& flags) {
  const auto key = Create(flags);
  if (!key.ok()) return Fail(key.status());
  if (flags.certificate) return kExitOk;
  std::fprintf(stderr, "The key of '%s'; it is not stored, and not shown again:\n",
               flags.name.c_str());
  std::printf("%s\n", key->c_str());
  return kExitOk;
}

int ListKeys(const KeysFlags& flags) {
  const auto file = Read(flags.file);
  if (!file.ok()) return Fail(file.status());
  for (const ApiKey& key : file->keys) {
    // As the file has it, without the hash.
    const std::string line = KeyLine(key);
    const size_t hash = line.find(' ', line.find(' ') + 1);
    const size_t end = hash + 1 + (key.is_certificate ? 0 : 2 * key.hash.size());
    std::printf("%s%s", line.substr(0, hash + (key.is_certificate ? 1 : 0)).c_str(),
                line.substr(end).c_str());
  }
  return kExitOk;
}

int RevokeKey(const KeysFlags& flags) {
  const Status revoked = Revoke(flags);
  return revoked.ok() ? kExitOk : Fail(revoked);
}

}  // namespace onnxd
