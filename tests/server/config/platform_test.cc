#include "server/config/platform.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

TEST(Platform, SaysNothingWithoutItsVariables) {
  ServerOptions options;
  ASSERT_TRUE(ApplyPlatform({{"PATH", "/bin"}, {"AIP_HTTP_PORT", ""}}, options).ok());
  EXPECT_EQ(options.server.bind, "127.0.0.1");
  EXPECT_EQ(options.server.http_port, 8000);
}

TEST(Platform, SageMakerHasAPortAndAFolder) {
  ServerOptions options;
  ASSERT_TRUE(ApplyPlatform({{"SAGEMAKER_BIND_TO_PORT", "8080"}}, options).ok());
  EXPECT_EQ(options.server.http_port, 8080);
  EXPECT_EQ(options.server.bind, "0.0.0.0");
  EXPECT_EQ(options.models.repository, "/opt/ml/model");
}

TEST(Platform, VertexAiHasAPortAndPaths) {
  ServerOptions options;
  ASSERT_TRUE(
      ApplyPlatform(
          {{"AIP_HTTP_PORT", "8081"}, {"AIP_PREDICT_ROUTE", "/p"}, {"AIP_HEALTH_ROUTE", "/h"}},
          options)
          .ok());
  EXPECT_EQ(options.server.http_port, 8081);
  EXPECT_EQ(options.server.predict_route, "/p");
  EXPECT_EQ(options.server.health_route, "/h");
}

TEST(Platform, AzureMlHasAFolder) {
  ServerOptions options;
  ASSERT_TRUE(ApplyPlatform({{"AZUREML_MODEL_DIR", "/var/models"}}, options).ok());
  EXPECT_EQ(options.models.repository, "/var/models");
}

TEST(Platform, ItsVariablesAreCheckedAsTheKeysAre) {
  ServerOptions options;
  const Status status = ApplyPlatform({{"AIP_HTTP_PORT", "many"}}, options);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("AIP_HTTP_PORT"), std::string_view::npos);
}

}  // namespace
}  // namespace onnxd
