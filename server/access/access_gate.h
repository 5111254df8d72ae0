// AccessGate: who may do what. The same for REST and gRPC.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/access/api_key.h"
#include "server/access/grant.h"
#include "server/access/key_use.h"
#include "server/config/server_options.h"

namespace onnxd {

// Any thread.
class AccessGate {
 public:
  using Keys = std::vector<ApiKey>;

  // Without keys, whatever `keys` holds, where access.key_file is empty.
  AccessGate(const ServerOptions& options, Keys keys);

  // The keys that access.key_file holds; none where it is empty. Errors as ReadKeyFile and
  // ParseKeyFile.
  static Result<Keys> ReadKeys(const ServerOptions& options);

  // From now on.
  void SetKeys(Keys keys);

  // Whether a call that needs the role may be made with this text of a key, which is empty where
  // the client sent none; then the common name of the certificate it showed, which was verified,
  // counts, and may be empty, too. kUnauthenticated: no key, or one that is not known or has
  // expired; kPermissionDenied: its role is not enough, or the call is closed to everybody, and
  // why; kResourceExhausted: the key has used up its requests.
  Result<std::shared_ptr<const Grant>> Admit(Role needed, std::string_view key,
                                             std::string_view certificate = {}) const;

  // Whether callers need a key at all.
  bool has_keys() const { return has_keys_; }
  // The same but for kResourceExhausted, and without using up anything.
  Status Check(Role needed, std::string_view key, std::string_view certificate = {}) const;

  // Why calls that change the server are closed to everybody; empty when they are not.
  const std::string& why_admin_closed() const { return why_admin_closed_; }

 private:
  const bool has_keys_;
  const std::string why_admin_closed_;
  mutable std::mutex mutex_;
  // A key with how much it has used; that stays when keys are read again, by name.
  struct Known {
    std::shared_ptr<const ApiKey> key;
    std::shared_ptr<KeyUse> use;
  };
  // Null: everybody may.
  Result<std::shared_ptr<const Known>> Find(Role needed, std::string_view key,
                                            std::string_view certificate) const;

  std::shared_ptr<const std::vector<Known>> keys_;  // guarded by mutex_
};

// The key in the headers of a request, of which either may be empty: `Authorization: Bearer KEY`,
// or X-API-Key.
std::string_view KeyIn(std::string_view authorization, std::string_view api_key);

}  // namespace onnxd
