#include "server/grpc/grpc_framing.h"

#include <gtest/gtest.h>

#include "proto/open_inference.pb.h"
#include "server/grpc/message_scan.h"
#include "server/grpc/tensor_messages.h"

namespace onnxd {
namespace {

using namespace std::chrono_literals;

TEST(GrpcFraming, RoundTripsAndRefusesDisagreement) {
  EXPECT_EQ(*UnframeGrpcMessage(FrameGrpcMessage("abc"), ""), "abc");
  EXPECT_EQ(*UnframeGrpcMessage(FrameGrpcMessage(""), ""), "");
  EXPECT_FALSE(UnframeGrpcMessage("", "").ok());
  EXPECT_FALSE(UnframeGrpcMessage(std::string_view("\0\0\0\0", 4), "").ok());
  EXPECT_FALSE(UnframeGrpcMessage(std::string_view("\0\xff\xff\xff\xff", 5), "").ok());
  EXPECT_FALSE(UnframeGrpcMessage(FrameGrpcMessage("abc") + "d", "").ok());
  EXPECT_EQ(UnframeGrpcMessage(std::string_view("\1\0\0\0\0", 5), "gzip").status().code(),
            StatusCode::kUnimplemented);
  EXPECT_FALSE(UnframeGrpcMessage(std::string_view("\2\0\0\0\0", 5), "").ok());
}

TEST(GrpcFraming, ReadsTimeouts) {
  EXPECT_EQ(ParseGrpcTimeout("100m"), 100ms);
  EXPECT_EQ(ParseGrpcTimeout("7u"), 7us);
  EXPECT_EQ(ParseGrpcTimeout("99999999H"), 24h);
  for (const char* bad : {"", "m", "100", "-1m", "1x", "123456789m", "1 m"}) {
    EXPECT_FALSE(ParseGrpcTimeout(bad).has_value()) << bad;
  }
}

TEST(GrpcFraming, EscapesMessages) {
  EXPECT_EQ(EncodeGrpcMessage("a%b\n\xc3\xa9"), "a%25b%0A%C3%A9");
}

TEST(MessageScan, RefusesAmplification) {
  inference::ModelInferRequest good;
  good.set_model_name("m");
  good.add_inputs()->mutable_contents()->add_fp32_contents(1);
  EXPECT_TRUE(ScanInferRequest(good.SerializeAsString()).ok());
  for (const char* field : {"\x2a\x00", "\x32\x00", "\x3a\x00", "\x22\x00"}) {
    std::string many;
    for (int i = 0; i < 1000000; ++i) many += std::string(field, 2);
    EXPECT_EQ(ScanInferRequest(many).code(), StatusCode::kResourceExhausted);
  }
  inference::InferTensorContents contents;
  for (int i = 0; i < (1 << 20) + 1; ++i) contents.add_bytes_contents("");
  inference::ModelInferRequest strings;
  *strings.add_inputs()->mutable_contents() = contents;
  EXPECT_EQ(ScanInferRequest(strings.SerializeAsString()).code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(ScanInferRequest("\x2a\x7f").ok());
  EXPECT_FALSE(ScanInferRequest(std::string(20, '\xff')).ok());
}

TEST(TensorMessages, ReadTypedAndRawAlikeAndRefuseDisagreement) {
  inference::ModelInferRequest typed;
  auto* input = typed.add_inputs();
  input->set_name("x");
  input->set_datatype("INT8");
  input->add_shape(2);
  input->mutable_contents()->add_int_contents(-5);
  input->mutable_contents()->add_int_contents(7);
  inference::ModelInferRequest raw = typed;
  raw.mutable_inputs(0)->clear_contents();
  raw.add_raw_input_contents("\xfb\x07");
  for (const auto& request : {typed, raw}) {
    const auto inputs = InputsOf(request);
    ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
    EXPECT_EQ((*inputs)[0].value.tensor().data<int8_t>()[0], -5);
  }
  auto both = typed;
  both.add_raw_input_contents("\xfb\x07");
  EXPECT_FALSE(InputsOf(both).ok());
  auto range = typed;
  range.mutable_inputs(0)->mutable_contents()->set_int_contents(0, 300);
  EXPECT_NE(InputsOf(range).status().message().find("out of range"), std::string_view::npos);
  auto negative = typed;
  negative.mutable_inputs(0)->set_shape(0, -2);
  EXPECT_FALSE(InputsOf(negative).ok());
  auto count = raw;
  count.add_raw_input_contents("");
  EXPECT_FALSE(InputsOf(count).ok());
}

}  // namespace
}  // namespace onnxd
