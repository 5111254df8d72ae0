#include <gtest/gtest.h>

#include "server/config/server_options.h"

namespace onnxd {
namespace {

std::string ErrorOf(const std::string& text) {
  ServerOptions options;
  const Status status = ApplyConfigText(text, "onnxd.yaml", options);
  return status.ok() ? "OK" : std::string(status.message());
}

TEST(Config, FileThenEnvironmentThenFlags) {
  ServerOptions options;
  ASSERT_TRUE(
      ApplyConfigText("server:\n  http_port: 9000\n  grpc_port: 9001\n", "f", options).ok());
  ASSERT_TRUE(ApplyEnvironment({{"ONNXD_SERVER_HTTP_PORT", "9100"}, {"HOME", "/"}}, options).ok());
  EXPECT_EQ(options.server.http_port, 9100);
  EXPECT_EQ(options.server.grpc_port, 9001);
  EXPECT_FALSE(ApplyEnvironment({{"ONNXD_SERVER_HTTP_PROT", "1"}}, options).ok());
}

TEST(Config, NamesFileLineAndTheNearestKey) {
  EXPECT_EQ(ErrorOf("server:\n  htp_port: 1\n"),
            "onnxd.yaml:2:3: unknown key 'server.htp_port'; did you mean 'server.http_port'?");
  EXPECT_EQ(ErrorOf("sever:\n  bind: x\n"),
            "onnxd.yaml:1:1: unknown section 'sever'; did you mean 'server'?");
}

TEST(Config, RefusesWhatItCannotMean) {
  const std::pair<const char*, const char*> cases[] = {
      {"server:\n  http_port: 70000\n", "from 0 to 65535"},
      {"server:\n  http_port: 010\n", "'010' is not a whole number"},
      {"server:\n  http_port: 1e3\n", "is not a whole number"},
      {"server:\n  http_port: -1\n", "is not a whole number"},
      {"server:\n  http_port: 1\n  http_port: 2\n", "stands twice"},
      {"server: {}\nserver: {}\n", "stands twice"},
      {"server:\n  bind: [a]\n", "must be one value"},
      {"log:\n  level: loud\n", "is not one of"},
      {"a: &x 1\n", "anchor"},
      {"server: *x\n", "anchor"},
      {"server: !!python/object:os.system {}\n", "anchor"},
      {"server: {}\n---\nlog: {}\n", "second document"},
      {"server: [", "onnxd.yaml:"},
      {"- a\n", "must be a map"}};
  for (const auto& [text, wanted] : cases) {
    EXPECT_NE(ErrorOf(text).find(wanted), std::string::npos) << text << " -> " << ErrorOf(text);
  }
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "[";
  EXPECT_NE(ErrorOf(deep), "OK");
}

// The annotated file in config/ lists every key with its default, and nothing else.
TEST(Config, TheReferenceFileAgreesWithTheStruct) {
  ServerOptions from_file;
  const Status status = ApplyConfigFile(ONNXD_SOURCE_DIR "/config/onnxd.yaml", from_file);
  ASSERT_TRUE(status.ok()) << status.ToString();
  const ServerOptions defaults;
  for (const OptionKey& key : OptionKeys()) {
    if (key.section == "models") continue;  // there the file names the embedded models
    EXPECT_EQ(key.get(from_file), key.get(defaults)) << key.section << "." << key.key;
  }
}

}  // namespace
}  // namespace onnxd
