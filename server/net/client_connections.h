// How many connections each client has. Guarded by its owner.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "server/config/server_options.h"
#include "server/net/trusted_proxies.h"

namespace onnxd {

class ClientConnections {
 public:
  void Enter(const std::string& client) { ++counts_[client]; }
  void Leave(const std::string& client) {
    const auto found = counts_.find(client);
    if (found != counts_.end() && --found->second == 0) counts_.erase(found);
  }
  int64_t Of(const std::string& client) const {
    const auto found = counts_.find(client);
    return found == counts_.end() ? 0 : found->second;
  }
  // Whether the client may have no more. Trusted proxies and unix sockets may have any number.
  bool HasMost(const std::string& client, const ServerOptions::Limits& limits,
               const TrustedProxies& proxies) const {
    const int64_t half = std::max<int64_t>(limits.connections / 2, 1);
    const int64_t most = limits.connections_per_client > 0 ? limits.connections_per_client : half;
    return Of(client) >= most && client != "unix" && !proxies.Contains(client);
  }

 private:
  std::unordered_map<std::string, int64_t> counts_;
};

}  // namespace onnxd
