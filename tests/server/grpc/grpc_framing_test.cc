#include "server/grpc/grpc_framing.h"

#include <gtest/gtest.h>

#include "proto/open_inference.pb.h"
#include "server/grpc/message_scan.h"
#include "server/grpc/tensor_messages.h"
#include "server/net/inflate.h"

namespace onnxd {
namespace {

using namespace std::chrono_literals;

const SharedMemory kNoMemory(false);
const std::function<bool(int64_t)> kAdmitAll = [](int64_t) { return true; };

Result<std::string> Unframe(std::string_view body, std::string_view encoding = "") {
  return UnframeGrpcMessage(body, {encoding, 1000, kAdmitAll});
}

std::string Compressed(std::string_view text) {
  std::string framed = FrameGrpcMessage(Deflate(text, Compression::kGzip));
  framed[0] = 1;
  return framed;
}

TEST(GrpcFraming, RoundTripsAndRefusesDisagreement) {
  EXPECT_EQ(*Unframe(FrameGrpcMessage("abc")), "abc");
  EXPECT_EQ(*Unframe(FrameGrpcMessage("")), "");
  EXPECT_FALSE(Unframe("").ok());
  EXPECT_FALSE(Unframe(std::string_view("\0\0\0\0", 4)).ok());
  EXPECT_FALSE(Unframe(std::string_view("\0\xff\xff\xff\xff", 5)).ok());
  EXPECT_FALSE(Unframe(FrameGrpcMessage("abc") + "d").ok());
  EXPECT_FALSE(Unframe(std::string_view("\2\0\0\0\0", 5)).ok());
}

TEST(GrpcFraming, InflatesGzipUnderTheLimit) {
  EXPECT_EQ(*Unframe(Compressed("abc"), "gzip"), "abc");
  EXPECT_EQ(*Unframe(Compressed(std::string(1000, 'a')), "gzip"), std::string(1000, 'a'));
  EXPECT_EQ(Unframe(Compressed(std::string(1001, 'a')), "gzip").status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(Unframe(Compressed("abc"), "snappy").status().code(), StatusCode::kUnimplemented);
  std::string malformed = FrameGrpcMessage("abc");
  malformed[0] = 1;
  EXPECT_EQ(Unframe(malformed, "gzip").status().code(), StatusCode::kInvalidArgument);
  const std::function<bool(int64_t)> refuse = [](int64_t) { return false; };
  EXPECT_EQ(UnframeGrpcMessage(Compressed("abc"), {"gzip", 1000, refuse}).status().code(),
            StatusCode::kUnavailable);
}

TEST(GrpcFraming, TakesMessagesOffAStream) {
  std::string bytes = FrameGrpcMessage("one") + Compressed("two") + FrameGrpcMessage("three");
  const std::string rest = bytes.substr(bytes.size() - 2);
  bytes.resize(bytes.size() - 2);
  const GrpcDecoding decoding{"gzip", 1000, kAdmitAll};
  EXPECT_EQ(**TakeGrpcMessage(bytes, decoding), "one");
  EXPECT_EQ(**TakeGrpcMessage(bytes, decoding), "two");
  EXPECT_EQ(*TakeGrpcMessage(bytes, decoding), std::nullopt);
  bytes += rest;
  EXPECT_EQ(**TakeGrpcMessage(bytes, decoding), "three");
  EXPECT_EQ(*TakeGrpcMessage(bytes, decoding), std::nullopt);
  bytes = std::string("\0\x7f\xff\xff\xff", 5);
  EXPECT_EQ(TakeGrpcMessage(bytes, decoding).status().code(), StatusCode::kResourceExhausted);
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
  EXPECT_EQ(DecodeGrpcMessage("a%25b%0A%C3%A9"), "a%b\n\xc3\xa9");
  EXPECT_EQ(DecodeGrpcMessage("%, %4, %zz, %4g, 100%"), "%, %4, %zz, %4g, 100%");
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
    const auto inputs = InputsOf(request, kNoMemory);
    ASSERT_TRUE(inputs.ok()) << inputs.status().ToString();
    EXPECT_EQ((*inputs)[0].value.tensor().data<int8_t>()[0], -5);
  }
  auto both = typed;
  both.add_raw_input_contents("\xfb\x07");
  EXPECT_FALSE(InputsOf(both, kNoMemory).ok());
  auto range = typed;
  range.mutable_inputs(0)->mutable_contents()->set_int_contents(0, 300);
  EXPECT_NE(InputsOf(range, kNoMemory).status().message().find("out of range"),
            std::string_view::npos);
  auto negative = typed;
  negative.mutable_inputs(0)->set_shape(0, -2);
  EXPECT_FALSE(InputsOf(negative, kNoMemory).ok());
  auto count = raw;
  count.add_raw_input_contents("");
  EXPECT_FALSE(InputsOf(count, kNoMemory).ok());
}

}  // namespace
}  // namespace onnxd
