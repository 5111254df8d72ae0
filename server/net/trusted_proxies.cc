#include "server/net/trusted_proxies.h"

#include <algorithm>
#include <charconv>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

namespace ip = boost::asio::ip;

constexpr int kAddressBits = 128;
constexpr int kMappedBits = 96;  // before an IPv4 address in an IPv6 one (RFC 4291, 2.5.5.2)

ip::address_v6 InIpv6(const ip::address& address) {
  return address.is_v4() ? ip::make_address_v6(ip::v4_mapped, address.to_v4()) : address.to_v6();
}

std::string_view Trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// The parts of a list separated by commas.
std::vector<std::string_view> Parts(std::string_view list) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(Trim(list.substr(begin, end - begin)));
    begin = end + 1;
  }
  return parts;
}

bool SameBits(const ip::address_v6& a, const ip::address_v6& b, int bits) {
  const auto left = a.to_bytes(), right = b.to_bytes();
  for (size_t i = 0; bits > 0; ++i, bits -= 8) {
    const int shift = bits >= 8 ? 0 : 8 - bits;
    if (left[i] >> shift != right[i] >> shift) return false;
  }
  return true;
}

}  // namespace

Result<TrustedProxies> TrustedProxies::Parse(const std::string& list) {
  TrustedProxies proxies;
  if (list.empty()) return proxies;
  for (const std::string_view part : Parts(list)) {
    if (part == "unix") {
      proxies.unix_ = true;
      continue;
    }
    const size_t slash = std::min(part.find('/'), part.size());
    boost::system::error_code error;
    const ip::address address = ip::make_address(std::string(part.substr(0, slash)), error);
    const int most = address.is_v4() ? 32 : kAddressBits;
    int bits = most;
    if (!error && slash < part.size()) {
      const std::string_view digits = part.substr(slash + 1);
      const auto [end, failed] =
          std::from_chars(digits.data(), digits.data() + digits.size(), bits);
      if (failed != std::errc() || end != digits.data() + digits.size()) bits = -1;
    }
    if (error || bits < 0 || bits > most) {
      return InvalidArgument(StrCat("'server.trusted_proxies': '", part.substr(0, 64),
                                    "' is no address or network like 10.0.0.0/8"));
    }
    proxies.networks_.push_back({InIpv6(address), bits + (address.is_v4() ? kMappedBits : 0)});
  }
  return proxies;
}

bool TrustedProxies::Contains(const std::string& address) const {
  if (address == "unix") return unix_;
  if (networks_.empty()) return false;
  boost::system::error_code error;
  const ip::address parsed = ip::make_address(address, error);
  if (error) return false;
  const ip::address_v6 wide = InIpv6(parsed);
  return std::any_of(networks_.begin(), networks_.end(), [&](const Network& network) {
    return SameBits(wide, network.address, network.bits);
  });
}

std::string TrustedProxies::ClientOf(const std::string& peer,
                                     std::string_view forwarded_for) const {
  if (forwarded_for.empty() || !Contains(peer)) return peer;
  const auto hops = Parts(forwarded_for);
  std::string client = peer;
  for (auto hop = hops.rbegin(); hop != hops.rend(); ++hop) {
    boost::system::error_code error;
    const ip::address address = ip::make_address(std::string(*hop), error);
    if (error) return peer;
    client = address.to_string();
    if (!Contains(client)) break;
  }
  return client;
}

}  // namespace onnxd
