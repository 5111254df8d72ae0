// The examples of
// https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html.
#include "server/sources/aws.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnxd {
namespace {

using testing::EndsWith;

const AwsCredentials kExample = {"AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                 ""};
const auto kThen = std::chrono::system_clock::from_time_t(1369353600);  // 2013-05-24

std::string Signed(FetchRequest request) {
  SignAws(kExample, "us-east-1", kThen, request);
  return request.headers["Authorization"];
}

TEST(Aws, SignsAPartOfAnObject) {
  EXPECT_EQ(
      Signed(
          {"https://examplebucket.s3.amazonaws.com/test.txt", "GET", {{"Range", "bytes=0-9"}}, ""}),
      "AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request,"
      "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,"
      "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
}

TEST(Aws, SignsAList) {
  EXPECT_THAT(
      Signed({"https://examplebucket.s3.amazonaws.com/?max-keys=2&prefix=J", "GET", {}, ""}),
      EndsWith("34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"));
}

TEST(Aws, WithoutCredentialsNothingIsSigned) {
  FetchRequest request{"https://b.s3.amazonaws.com/x", "GET", {}, ""};
  SignAws({}, "us-east-1", kThen, request);
  EXPECT_TRUE(request.headers.empty());
}

}  // namespace
}  // namespace onnxd
