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
  auto shared = std::make_shared<const Keys>(std::move(keys));
  std::lock_guard lock(mutex_);
  keys_ = std::move(shared);
}

Status AccessGate::Admit(Role needed, std::string_view key) const {
  if (needed == Role::kNobody) return Status::Ok();
  if (needed == Role::kAdmin && !why_admin_closed_.empty()) {
    return PermissionDenied(
        StrCat("calls that change the server are refused: ", why_admin_closed_));
  }
  if (!has_keys_) return Status::Ok();
  if (key.empty()) {
    return Unauthenticated("this needs a key: Authorization: Bearer KEY, or X-API-Key: KEY");
  }
  std::shared_ptr<const Keys> keys;
  {
    std::lock_guard lock(mutex_);
    keys = keys_;
  }
  const ApiKey::Hash hash = HashOfKey(key);
  const auto found = std::find_if(keys->begin(), keys->end(),
                                  [&](const ApiKey& known) { return Same(known.hash, hash); });
  if (found == keys->end()) return Unauthenticated("the key is not known");
  if (found->role < needed) {
    return PermissionDenied(StrCat("this needs the role ", RoleName(needed), ", and the key has ",
                                   RoleName(found->role)));
  }
  return Status::Ok();
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
