#include "server/net/trusted_proxies.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

TrustedProxies Of(const std::string& list) { return *TrustedProxies::Parse(list); }

TEST(TrustedProxies, AreAddressesAndNetworks) {
  const TrustedProxies some = Of("10.0.0.0/8, 192.0.2.7,fd00::/9,unix");
  for (const char* trusted : {"10.1.2.3", "192.0.2.7", "fd7f::1", "unix", "::ffff:10.1.1.1"}) {
    EXPECT_TRUE(some.Contains(trusted)) << trusted;
  }
  for (const char* stranger : {"11.0.0.1", "192.0.2.8", "fd80::1", "::1", "", "nonsense"}) {
    EXPECT_FALSE(some.Contains(stranger)) << stranger;
  }
  EXPECT_TRUE(Of("0.0.0.0/0").Contains("203.0.113.9"));
  EXPECT_FALSE(Of("0.0.0.0/0").Contains("2001:db8::1"));
  EXPECT_FALSE(Of("").Contains("127.0.0.1"));
  EXPECT_FALSE(Of("127.0.0.1").Contains("unix"));
}

TEST(TrustedProxies, RefuseWhatIsNone) {
  for (const char* bad : {"10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/", "host", "10.0.0.1,", "::/129",
                          "1.2.3", "10.0.0.0/8x"}) {
    const auto parsed = TrustedProxies::Parse(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_NE(parsed.status().message().find("server.trusted_proxies"), std::string_view::npos);
  }
}

TEST(TrustedProxies, TellWhoAsked) {
  const TrustedProxies some = Of("10.0.0.0/8");
  EXPECT_EQ(some.ClientOf("10.0.0.1", "198.51.100.4"), "198.51.100.4");
  // What stands before was said by the client itself.
  EXPECT_EQ(some.ClientOf("10.0.0.1", "192.0.2.66, 198.51.100.4"), "198.51.100.4");
  EXPECT_EQ(some.ClientOf("10.0.0.1", "198.51.100.4,10.0.0.9 , 10.0.0.8"), "198.51.100.4");
  EXPECT_EQ(some.ClientOf("10.0.0.1", "10.0.0.9"), "10.0.0.9");
  EXPECT_EQ(some.ClientOf("10.0.0.1", "2001:DB8::7"), "2001:db8::7");
  EXPECT_EQ(some.ClientOf("192.0.2.1", "198.51.100.4"), "192.0.2.1");  // nobody asked it
  for (const char* bad : {"", ",", "host", "unknown", "198.51.100.4,", "\"[2001:db8::1]:80\""}) {
    EXPECT_EQ(some.ClientOf("10.0.0.1", bad), "10.0.0.1") << bad;
  }
}

}  // namespace
}  // namespace onnxd
