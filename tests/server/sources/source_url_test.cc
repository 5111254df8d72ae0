#include "server/sources/source_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnxd {
namespace {

using testing::HasSubstr;
using Kind = SourceUrl::Kind;

TEST(SourceUrl, ReadsEachKind) {
  const auto s3 = *ParseSourceUrl("s3://my-bucket/prod/models/");
  EXPECT_EQ(s3.kind, Kind::kS3);
  EXPECT_EQ(s3.bucket, "my-bucket");
  EXPECT_EQ(s3.path, "prod/models");
  EXPECT_EQ(ParseSourceUrl("gs://b")->path, "");
  EXPECT_EQ(ParseSourceUrl("az://container/p")->kind, Kind::kAzure);
  const auto hub = *ParseSourceUrl("hf://org/net@v1.0/onnx/model.onnx");
  EXPECT_EQ(hub.bucket, "org/net");
  EXPECT_EQ(hub.revision, "v1.0");
  EXPECT_EQ(hub.path, "onnx/model.onnx");
  EXPECT_EQ(ParseSourceUrl("hf://org/net")->revision, "main");
  EXPECT_EQ(ParseSourceUrl("hf://org/net/model.onnx")->path, "model.onnx");
  const std::string sha(64, 'A');
  const auto web = *ParseSourceUrl("https://host:8443/a/net.onnx?x=1#sha256=" + sha);
  EXPECT_EQ(web.path, "https://host:8443/a/net.onnx?x=1");
  EXPECT_EQ(web.sha256, std::string(64, 'a'));
}

TEST(SourceUrl, SaysWhatIsMissing) {
  const std::pair<const char*, const char*> cases[] = {
      {"ftp://h/x", "none of s3, gs"},       {"s3:///x", "a bucket's name"},
      {"s3://b?x/y", "a bucket's name"},     {"hf://org", "expected hf://"},
      {"hf://org/@v", "expected hf://"},     {"hf://org/net@/x", "expected hf://"},
      {"https://host", "expected https://"}, {"https:///x", "expected https://"},
      {"http://u:p@h/x", "a password"},      {"https://h/x#sha256=12", "64 hexadecimal digits"},
      {"s3://b/\x01", "control characters"}};
  for (const auto& [text, reason] : cases) {
    const auto url = ParseSourceUrl(text);
    ASSERT_FALSE(url.ok()) << text;
    EXPECT_THAT(std::string(url.status().message()), HasSubstr(reason));
  }
}

TEST(SourceUrl, EncodesAndDecodes) {
  EXPECT_EQ(EncodeUrl("a b/ü+~", true), "a%20b/%C3%BC%2B~");
  EXPECT_EQ(EncodeUrl("a/b", false), "a%2Fb");
  EXPECT_EQ(DecodeUrl("a%20b%2Fc+d%zz%4"), "a b/c d%zz%4");
}

}  // namespace
}  // namespace onnxd
