#include "server/grpc/infer_response.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/open_inference.pb.h"

namespace onnxd {
namespace {

const SharedMemory kNoMemory(false);

InferenceResponse ResultOf(std::vector<NamedValue> outputs) {
  InferenceResponse result;
  result.model = "m";
  result.version = "7";
  result.id = "request";
  result.outputs = std::move(outputs);
  return result;
}

Result<std::string> Write(const InferenceResponse& result,
                          const std::vector<OutputForm>& forms = {}) {
  NonFiniteNumbers non_finite{NonFinite::kNull};
  return WriteInferResponse(result, forms, kNoMemory, non_finite);
}

inference::ModelInferResponse Parsed(const std::string& bytes) {
  inference::ModelInferResponse response;
  EXPECT_TRUE(response.ParseFromString(bytes));
  return response;
}

TEST(InferResponse, IsWhatProtobufReads) {
  const auto numbers = Tensor::Of<float>(Shape{2, 300}, std::vector<float>(600, 1.5F));
  const auto bytes =
      Write(ResultOf({{"numbers", numbers},
                      {"scalar", Tensor::Scalar<int64_t>(-1)},
                      {"text", Tensor::Of<std::string>(Shape{2}, {"a", ""})},
                      {"none", Tensor::Of<float>(Shape{0, 4}, std::initializer_list<float>{})}}));
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  const auto response = Parsed(*bytes);
  EXPECT_EQ(response.model_name(), "m");
  EXPECT_EQ(response.model_version(), "7");
  EXPECT_EQ(response.id(), "request");
  ASSERT_EQ(response.outputs_size(), 4);
  ASSERT_EQ(response.raw_output_contents_size(), 4);
  EXPECT_EQ(response.outputs(0).name(), "numbers");
  EXPECT_EQ(response.outputs(0).datatype(), "FP32");
  ASSERT_EQ(response.outputs(0).shape_size(), 2);
  EXPECT_EQ(response.outputs(0).shape(1), 300);
  EXPECT_EQ(response.raw_output_contents(0),
            std::string(static_cast<const char*>(numbers.raw()), numbers.bytes()));
  EXPECT_EQ(response.outputs(1).shape_size(), 0);
  EXPECT_EQ(response.raw_output_contents(1), std::string(8, '\xff'));
  EXPECT_EQ(response.outputs(2).datatype(), "BYTES");
  EXPECT_EQ(response.raw_output_contents(2), std::string("\1\0\0\0a\0\0\0\0", 9));
  EXPECT_EQ(response.outputs(3).shape(0), 0);
  EXPECT_EQ(response.raw_output_contents(3), "");
}

TEST(InferResponse, WritesClassesWhereTheyAreAskedFor) {
  OutputForm classes;
  classes.classification = 1;
  const auto bytes =
      Write(ResultOf({{"p", Tensor::Of<float>(Shape{1, 3}, {0.25F, 0.5F, 0.125F})}}), {classes});
  ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
  const auto response = Parsed(*bytes);
  EXPECT_EQ(response.outputs(0).datatype(), "BYTES");
  EXPECT_NE(response.raw_output_contents(0).find(":1"), std::string::npos);
}

TEST(InferResponse, RefusesWhatTheProtocolCannotCarry) {
  const auto complex =
      Write(ResultOf({{"z", Tensor::Wrap(DataType::kComplex64, Shape{0}, nullptr, nullptr)}}));
  EXPECT_EQ(complex.status().code(), StatusCode::kUnimplemented);
  OutputForm shared;
  shared.shared_memory = SharedMemoryRange{"region", 0, 4};
  EXPECT_FALSE(Write(ResultOf({{"x", Tensor::Scalar<float>(1)}}), {shared}).ok());
}

// Its elements are never read.
TEST(InferResponse, RefusesMoreBytesThanAMessageMayHave) {
  const auto huge = Tensor::Wrap(DataType::kUint8, Shape{int64_t{1} << 31}, nullptr, nullptr);
  const auto bytes = Write(ResultOf({{"huge", huge}}));
  EXPECT_EQ(bytes.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(bytes.status().message().find("2147483648 bytes"), std::string_view::npos);
}

TEST(InferResponse, IsTheOnlyOneInItsStreamAnswer) {
  const auto bytes = Write(ResultOf({{"x", Tensor::Scalar<float>(1)}}));
  ASSERT_TRUE(bytes.ok());
  inference::ModelStreamInferResponse answer;
  ASSERT_TRUE(answer.ParseFromString(WriteStreamAnswer(*bytes)));
  EXPECT_EQ(answer.error_message(), "");
  EXPECT_EQ(answer.infer_response().outputs_size(), 1);
  EXPECT_TRUE(answer.infer_response().parameters().at("triton_final_response").bool_param());
}

TEST(InferResponse, SaysInAStreamWhyThereIsNone) {
  inference::ModelStreamInferResponse answer;
  ASSERT_TRUE(answer.ParseFromString(WriteStreamError("no such model", "request")));
  EXPECT_EQ(answer.error_message(), "no such model");
  EXPECT_EQ(answer.infer_response().id(), "request");
}

}  // namespace
}  // namespace onnxd
