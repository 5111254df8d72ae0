#include "server/access/access_gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnxd {
namespace {

using testing::HasSubstr;

ServerOptions Bound(const std::string& address, const std::string& key_file = "") {
  ServerOptions options;
  options.server.bind = address;
  options.access.key_file = key_file;
  return options;
}

ApiKey Key(const std::string& name, Role role, const std::string& text) {
  ApiKey key;
  key.name = name;
  key.role = role;
  key.hash = HashOfKey(text);
  return key;
}

TEST(AccessGate, WithoutKeysThisMachineMayDoAll) {
  for (const char* address : {"127.0.0.1", "::1", "localhost"}) {
    const AccessGate gate(Bound(address), {});
    for (const Role role : {Role::kNobody, Role::kPredict, Role::kRead, Role::kAdmin}) {
      EXPECT_TRUE(gate.Admit(role, "").ok()) << address;
    }
  }
}

TEST(AccessGate, WithoutKeysOtherMachinesChangeNothingAndAreToldWhy) {
  for (const char* address : {"0.0.0.0", "::", "192.0.2.1"}) {
    const AccessGate gate(Bound(address), {});
    EXPECT_TRUE(gate.Admit(Role::kPredict, "").ok());
    EXPECT_TRUE(gate.Admit(Role::kRead, "").ok());
    const Status refused = gate.Admit(Role::kAdmin, "any").status();
    EXPECT_EQ(refused.code(), StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(address));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("access.key_file"));
  }
}

TEST(AccessGate, AKeyMayDoWhatItsRoleAndThoseBeforeItMay) {
  const std::pair<Role, std::string> keys[] = {
      {Role::kPredict, "p"}, {Role::kRead, "r"}, {Role::kAdmin, "a"}};
  const AccessGate gate(
      Bound("0.0.0.0", "keys"),
      {Key("1", Role::kPredict, "p"), Key("2", Role::kRead, "r"), Key("3", Role::kAdmin, "a")});
  for (const auto& [role, text] : keys) {
    for (const Role needed : {Role::kPredict, Role::kRead, Role::kAdmin}) {
      EXPECT_EQ(gate.Admit(needed, text).status().code(),
                needed <= role ? StatusCode::kOk : StatusCode::kPermissionDenied)
          << text;
    }
  }
}

TEST(AccessGate, WithKeysOnlyHealthNeedsNone) {
  AccessGate gate(Bound("127.0.0.1", "keys"), {Key("1", Role::kAdmin, "a")});
  EXPECT_TRUE(gate.Admit(Role::kNobody, "").ok());
  for (const char* text : {"", "b", "A", "a "}) {
    EXPECT_EQ(gate.Admit(Role::kPredict, text).status().code(), StatusCode::kUnauthenticated)
        << text;
  }
  gate.SetKeys({});  // all are revoked
  EXPECT_EQ(gate.Admit(Role::kPredict, "a").status().code(), StatusCode::kUnauthenticated);
}

TEST(AccessGate, AdminOffIsForEverybody) {
  ServerOptions options = Bound("127.0.0.1", "keys");
  options.access.admin = "off";
  const AccessGate gate(options, {Key("1", Role::kAdmin, "a")});
  EXPECT_EQ(gate.Admit(Role::kAdmin, "a").status().code(), StatusCode::kPermissionDenied);
  EXPECT_TRUE(gate.Admit(Role::kRead, "a").ok());
}

TEST(AccessGate, AdminOnNeedsKeysWhereOthersReachIt) {
  ServerOptions options = Bound("0.0.0.0");
  options.access.admin = "on";
  EXPECT_EQ(CheckOptions(options).code(), StatusCode::kInvalidArgument);
  options.access.key_file = "keys";
  EXPECT_TRUE(CheckOptions(options).ok());
}

TEST(AccessGate, TakesTheKeyOfEitherHeader) {
  EXPECT_EQ(KeyIn("Bearer k", ""), "k");
  EXPECT_EQ(KeyIn("bearer   k", "other"), "k");
  EXPECT_EQ(KeyIn("", "k"), "k");
  EXPECT_EQ(KeyIn("Basic abc", "k"), "k");
  EXPECT_EQ(KeyIn("Bearer ", ""), "");
  EXPECT_EQ(KeyIn("Bearerk", ""), "");
}

TEST(ApiKey, IsRandomAndKnownByItsHash) {
  const std::string one = *NewApiKey(), other = *NewApiKey();
  EXPECT_NE(one, other);
  EXPECT_EQ(one.size(), 6u + 64);
  // FIPS 180-2, appendix B.1.
  EXPECT_EQ(KeyLine({"n", Role::kRead, HashOfKey("abc")}),
            "n read ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\n");
}

TEST(ApiKey, AFileHasOneALine) {
  const std::string line = KeyLine({"ops-1", Role::kAdmin, HashOfKey("a")});
  const auto keys = ParseKeyFile("# who\r\n\n  " + line + KeyLine({"b", Role::kPredict, {}}), "f");
  ASSERT_TRUE(keys.ok()) << keys.status().ToString();
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].name, "ops-1");
  EXPECT_EQ((*keys)[0].role, Role::kAdmin);
  EXPECT_EQ((*keys)[0].hash, HashOfKey("a"));
  EXPECT_TRUE(ParseKeyFile("", "f")->empty());
}

TEST(ApiKey, AFaultyLineIsNamedAndItsSecretsAreNot) {
  const std::string hash(64, 'a');
  const std::pair<std::string, std::string> faults[] = {
      {"n admin", "NAME ROLE HASH"},
      {"n root " + hash, "role"},
      {"n nobody " + hash, "role"},
      {"n/m admin " + hash, "name"},
      {"n admin onnxd_secret", "64 hexadecimal digits"},
      {"n admin " + hash + "\nn read " + hash, "twice"},
  };
  for (const auto& [text, reason] : faults) {
    const Status status = ParseKeyFile(text, "f").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(reason));
    EXPECT_THAT(message, HasSubstr("f:"));
    EXPECT_THAT(message, testing::Not(HasSubstr("secret")));
  }
}

TEST(AccessGate, AKeyHasItsTime) {
  using namespace std::chrono;
  const auto now = floor<seconds>(system_clock::now());
  for (const auto& [expires, code] :
       {std::pair(now - 1s, StatusCode::kUnauthenticated), std::pair(now + 60s, StatusCode::kOk)}) {
    ApiKey key = Key("1", Role::kAdmin, "a");
    key.expires = expires;
    EXPECT_EQ(
        AccessGate(Bound("127.0.0.1", "keys"), {key}).Admit(Role::kPredict, "a").status().code(),
        code);
  }
}

TEST(AccessGate, AKeyIsForItsModels) {
  ApiKey key = Key("1", Role::kPredict, "a");
  key.models = {"iris", "digits_*"};
  const AccessGate gate(Bound("127.0.0.1", "keys"), {key});
  const auto grant = *gate.Admit(Role::kPredict, "a");
  EXPECT_FALSE(grant->for_all_models());
  for (const char* name : {"iris", "digits_", "digits_cnn"}) {
    EXPECT_TRUE(grant->CheckModel(name).ok()) << name;
  }
  for (const char* name : {"", "iris2", "digits", "x_digits_cnn"}) {
    EXPECT_EQ(grant->CheckModel(name).code(), StatusCode::kPermissionDenied) << name;
  }
}

TEST(AccessGate, RequestsAtOnceCountUntilTheyEnd) {
  ApiKey key = Key("1", Role::kPredict, "a");
  key.concurrency = 2;
  AccessGate gate(Bound("127.0.0.1", "keys"), {key});
  const auto first = *gate.Admit(Role::kPredict, "a");
  auto second = *gate.Admit(Role::kPredict, "a");
  EXPECT_EQ(gate.Admit(Role::kPredict, "a").status().code(), StatusCode::kResourceExhausted);
  gate.SetKeys({key});  // read again: what runs still counts
  EXPECT_EQ(gate.Admit(Role::kPredict, "a").status().code(), StatusCode::kResourceExhausted);
  second.reset();
  EXPECT_TRUE(gate.Admit(Role::kPredict, "a").ok());
}

TEST(KeyUse, GivesASecondsRequestsAtOnceAndThenAtTheRate) {
  using namespace std::chrono_literals;
  const auto use = std::make_shared<KeyUse>();
  KeyUse::Time now(1000s);
  const auto taken = [&] {
    int count = 0;
    while (count < 100 && use->Enter(10, 0, now).ok()) ++count;
    return count;
  };
  EXPECT_EQ(taken(), 10);
  now += 250ms;
  EXPECT_EQ(taken(), 2);
  now += 100s;
  EXPECT_EQ(taken(), 10);
}

TEST(ApiKey, PatternsMatchWholeNames) {
  for (const auto& [name, pattern] : {std::pair("abc", "*"),
                                      {"abc", "a*c"},
                                      {"abc", "abc*"},
                                      {"", "*"},
                                      {"aXbXc", "a*b*c"},
                                      {"aab", "*ab"},
                                      {"abc", "**"}}) {
    EXPECT_TRUE(MatchesPattern(name, pattern)) << name << " " << pattern;
  }
  for (const auto& [name, pattern] : {std::pair("abc", ""),
                                      {"abc", "ab"},
                                      {"abc", "a*b"},
                                      {"", "a"},
                                      {"ab", "*a*c"},
                                      {"ABC", "abc"}}) {
    EXPECT_FALSE(MatchesPattern(name, pattern)) << name << " " << pattern;
  }
  EXPECT_FALSE(MatchesPattern(std::string(10'000, 'a'), "*a*a*a*a*a*a*a*a*a*a*b"));  // soon
}

TEST(ApiKey, LimitsStandBehindTheHash) {
  ApiKey key = Key("1", Role::kPredict, "a");
  key.expires = ParseTime("2027-01-31T12:00:00Z");
  key.models = {"a", "b*"};
  key.rate = 7;
  key.concurrency = 3;
  const auto read = ParseKeyFile(KeyLine(key), "keys");
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(KeyLine((*read)[0]), KeyLine(key));
  EXPECT_EQ(ParseTime("2027-01-31"), ParseTime("2027-01-31T00:00:00Z"));
  std::string line = KeyLine(Key("1", Role::kPredict, "a"));
  line.pop_back();
  for (const char* wrong : {"expires=soon", "expires=2027-02-31", "expires=2027-1-1", "models=",
                            "rate=0", "rate=1.5", "concurrency=-1", "colour=red", "rate"}) {
    EXPECT_FALSE(ParseKeyFile(line + " " + wrong, "keys").ok()) << wrong;
  }
}

}  // namespace
}  // namespace onnxd
