// Credentials and signatures of Amazon Web Services.
#pragma once

#include <chrono>
#include <string>

#include "server/sources/fetch.h"

namespace onnxd {

struct AwsCredentials {
  std::string access_key, secret_key, session_token;
  // Nothing: they do not end.
  std::chrono::system_clock::time_point expires = std::chrono::system_clock::time_point::max();
  bool given() const { return !access_key.empty(); }
};

// The first that there are of: AWS_ACCESS_KEY_ID; AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN;
// the profile AWS_PROFILE of ~/.aws/credentials and ~/.aws/config; AWS_CONTAINER_CREDENTIALS_*; the
// machine's own (IMDSv2), unless AWS_EC2_METADATA_DISABLED is true. None: access without them.
Result<AwsCredentials> FindAwsCredentials(const Fetcher& fetcher);

// AWS_REGION, AWS_DEFAULT_REGION, the profile's, else us-east-1.
std::string AwsRegion();

// Adds the headers of AWS Signature Version 4
// (https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html) of a request
// without a body, whose query is encoded and in order.
void SignAws(const AwsCredentials& credentials, const std::string& region,
             std::chrono::system_clock::time_point now, FetchRequest& request);

}  // namespace onnxd
