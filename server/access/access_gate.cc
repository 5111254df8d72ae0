#include "server/access/access_gate.h"

#include <openssl/crypto.h>

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

std::string WhyAdminClosed(const ServerOptions& options) {
  if (options.access.admin == "off") return "access.admin is off";
  if (!options.access.key_file.empty() || IsLoopback(options.server.bind)) return "";
  return StrCat("server.bind is ", options.server.bind,
                ", which other machines reach, and there are no keys (access.key_file)");
}

bool Same(const ApiKey::Hash& a, const ApiKey::Hash& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

AccessGate::AccessGate(const ServerOptions& options, Keys keys)
    : has_keys_(!options.access.key_file.empty()), why_admin_closed_(WhyAdminClosed(options)) {
  SetKeys(std::move(keys));
}

Result<AccessGate::Keys> AccessGate::ReadKeys(const ServerOptions& options) {
  const std::string& path = options.access.key_file;
  if (path.empty()) return Keys{};
  const auto text = ReadKeyFile(path);
  if (!text.ok()) return text.status().WithContext("access.key_file");
  return ParseKeyFile(*text, path);
}

void AccessGate::SetKeys(Keys keys) {
  auto known = std::make_shared<std::vector<Known>>();
  std::lock_guard lock(mutex_);
  for (ApiKey& key : keys) {
    std::shared_ptr<KeyUse> use;
    if (keys_ != nullptr) {
      for (const Known& before : *keys_) {
        if (before.key->name == key.name) use = before.use;
      }
    }
    if (use == nullptr) use = std::make_shared<KeyUse>();
    known->push_back({std::make_shared<const ApiKey>(std::move(key)), std::move(use)});
  }
  keys_ = std::move(known);
}

Result<std::shared_ptr<const AccessGate::Known>> AccessGate::Find(
    Role needed, std::string_view key, std::string_view certificate) const {
  if (needed == Role::kNobody) return std::shared_ptr<const Known>();
  if (needed == Role::kAdmin && !why_admin_closed_.empty()) {
    return PermissionDenied(
        StrCat("calls that change the server are refused: ", why_admin_closed_));
  }
  if (!has_keys_) return std::shared_ptr<const Known>();
  if (key.empty() && certificate.empty()) {
    return Unauthenticated("this needs a key: Authorization: Bearer KEY, or X-API-Key: KEY");
  }
  std::shared_ptr<const std::vector<Known>> keys;
  {
    std::lock_guard lock(mutex_);
    keys = keys_;
  }
  const ApiKey::Hash hash = HashOfKey(key);
  const auto found = std::find_if(keys->begin(), keys->end(), [&](const Known& known) {
    if (key.empty()) return known.key->is_certificate && known.key->name == certificate;
    return !known.key->is_certificate && Same(known.key->hash, hash);
  });
  if (found == keys->end()) {
    return Unauthenticated(key.empty() ? "this needs a key, or a certificate that is known"
                                       : "the key is not known");
  }
  const ApiKey& known = *found->key;
  // In seconds: nanoseconds do not reach beyond the year 2262.
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  if (known.expires && now >= *known.expires) return Unauthenticated("the key has expired");
  if (known.role < needed) {
    return PermissionDenied(StrCat("this needs the role ", RoleName(needed), ", and the key has ",
                                   RoleName(known.role)));
  }
  return std::shared_ptr<const Known>(keys, &*found);
}

Status AccessGate::Check(Role needed, std::string_view key, std::string_view certificate) const {
  return Find(needed, key, certificate).status();
}

Result<std::shared_ptr<const Grant>> AccessGate::Admit(Role needed, std::string_view key,
                                                       std::string_view certificate) const {
  static const auto everything = std::make_shared<const Grant>(nullptr, nullptr);
  ONNXD_ASSIGN_OR_RETURN(const auto found, Find(needed, key, certificate));
  if (found == nullptr) return everything;
  ONNXD_ASSIGN_OR_RETURN(auto place, found->use->Enter(found->key->rate, found->key->concurrency,
                                                       std::chrono::steady_clock::now()));
  return std::make_shared<const Grant>(found->key, std::move(place));
}

std::string_view KeyIn(std::string_view authorization, std::string_view api_key) {
  constexpr std::string_view kBearer = "bearer ";
  const bool bearer =
      authorization.size() > kBearer.size() &&
      std::equal(kBearer.begin(), kBearer.end(), authorization.begin(),
                 [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b - 'A' + 'a' : b); });
  if (!bearer) return api_key;
  authorization.remove_prefix(kBearer.size());
  const size_t begin = authorization.find_first_not_of(' ');
  return begin == std::string_view::npos ? api_key : authorization.substr(begin);
}

}  // namespace onnxd
