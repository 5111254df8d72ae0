// Whose word on the address of a client counts.
#pragma once

#include <boost/asio/ip/address.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// Any thread.
class TrustedProxies {
 public:
  // Addresses and networks, "10.0.0.0/8,192.0.2.7,fd00::/8,unix", where unix means the clients of
  // unix sockets; empty: nobody. kInvalidArgument names what is none.
  static Result<TrustedProxies> Parse(const std::string& list);

  bool Contains(const std::string& address) const;
  // The client of a request that came from `peer` with this X-Forwarded-For: the last address there
  // that is no trusted proxy itself, as each proxy appends whom it was asked by. `peer` where it is
  // not trusted, or where that is no list of addresses.
  std::string ClientOf(const std::string& peer, std::string_view forwarded_for) const;

 private:
  struct Network {
    boost::asio::ip::address_v6 address;  // IPv4 mapped into it
    int bits;                             // of it that count
  };
  std::vector<Network> networks_;
  bool unix_ = false;
};

}  // namespace onnxd
