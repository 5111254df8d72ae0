#include <gtest/gtest.h>

#include <cmath>

#include "server/http/json_tensor.h"
#include "server/http/url.h"
#include "server/inference/binary_tensor.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

std::string Nested(const std::string& json, const ValueType& type) {
  const auto document = JsonDocument::Parse(json, 64);
  if (!document.ok()) return std::string(document.status().message());
  const auto tensor =
      TensorFromNested((*document)->root(), type, "x", static_cast<int64_t>(json.size()));
  if (!tensor.ok()) return std::string(tensor.status().message());
  std::string out = Describe(tensor->type(), tensor->shape());
  EXPECT_TRUE(AppendNested(out, Value(*tensor)).ok());
  return out;
}

ValueType Matrix(DataType type) {
  return ValueType::TensorOf(type, SymbolicShape{Dimension(), Dimension()});
}

TEST(JsonTensor, ReadsNestedArrays) {
  EXPECT_EQ(Nested("[[1,2.5],[-3,4e1]]", Matrix(DataType::kFloat)), "float[2, 2][[1,2.5],[-3,40]]");
  EXPECT_EQ(Nested("[1,2]", Matrix(DataType::kFloat)), "float[1, 2][[1,2]]");  // batch added
  EXPECT_EQ(Nested("[[1.0,2]]", Matrix(DataType::kInt8)), "int8[1, 2][[1,2]]");
  EXPECT_EQ(Nested("[[true,0]]", Matrix(DataType::kBool)), "bool[1, 2][[true,false]]");
  EXPECT_EQ(Nested("[[\"a\",\"\\u00e9\"]]", Matrix(DataType::kString)),
            "string[1, 2][[\"a\",\"\xc3\xa9\"]]");
  EXPECT_EQ(Nested("[[18446744073709551615]]", Matrix(DataType::kUint64)),
            "uint64[1, 1][[18446744073709551615]]");
}

TEST(JsonTensor, RefusesWhatWouldChangeTheNumber) {
  const auto fails = [](const std::string& json, DataType type, const char* why) {
    const std::string got = Nested(json, Matrix(type));
    EXPECT_NE(got.find(why), std::string::npos) << json << " -> " << got;
  };
  fails("[[1.5]]", DataType::kInt32, "element 0 is 1.5, expected int32");
  fails("[[3000000000]]", DataType::kInt32, "out of range");
  fails("[[-1]]", DataType::kUint8, "out of range");
  fails("[[9223372036854775808]]", DataType::kInt64, "out of range");
  fails("[[1e39]]", DataType::kFloat, "out of range");
  fails("[[1e400]]", DataType::kDouble, "malformed JSON");
  fails("[[NaN]]", DataType::kFloat, "malformed JSON");
  fails("[[Infinity]]", DataType::kFloat, "malformed JSON");
  fails("[[true]]", DataType::kInt8, "a boolean");
  fails("[[\"5\"]]", DataType::kInt8, "a string");
  fails("[[null]]", DataType::kFloat, "null");
  fails("[[1,2],[3]]", DataType::kFloat, "ragged");
  fails("[[1,2],3]", DataType::kFloat, "unevenly");
  fails("[[[1]]]", DataType::kFloat, "3 levels of nesting");
  fails("1", DataType::kFloat, "0 levels of nesting");
  fails("", DataType::kFloat, "empty");
  fails("[[1]] x", DataType::kFloat, "malformed JSON");
  fails("\xef\xbb\xbf[[1]]", DataType::kFloat, "byte order mark");
  std::string deep(70, '[');
  fails(deep + std::string(70, ']'), DataType::kFloat, "nested deeper than 64");
  fails(std::string(1000000, '['), DataType::kFloat, "JSON");
}

TEST(JsonTensor, TakesNoMemoryForWhatTheTextCannotHold) {
  // The first row suggests 1000 x 1000 x 1000 elements in a few kilobytes.
  std::string row = "[", plane = "[";
  for (int i = 0; i < 1000; ++i) row += i == 0 ? "0" : ",0";
  row += "]";
  plane += row;
  for (int i = 1; i < 1000; ++i) plane += ",0";
  plane += "]";
  std::string json = "[" + plane;
  for (int i = 1; i < 1000; ++i) json += ",0";
  json += "]";
  const auto document = JsonDocument::Parse(json, 64);
  ASSERT_TRUE(document.ok());
  const auto tensor = TensorFromNested((*document)->root(), ValueType::TensorOf(DataType::kFloat),
                                       "x", static_cast<int64_t>(json.size()));
  ASSERT_FALSE(tensor.ok());
  EXPECT_NE(tensor.status().message().find("more elements than the request can hold"),
            std::string_view::npos);
}

TEST(JsonDocument, RefusesRepeatedKeysAnywhere) {
  EXPECT_FALSE(JsonDocument::Parse(R"({"a":1,"a":2})", 64).ok());
  EXPECT_FALSE(JsonDocument::Parse(R"([1,{"b":{"a":1,"a":2}}])", 64).ok());
  EXPECT_TRUE(JsonDocument::Parse(R"([{"a":1},{"a":2}])", 64).ok());
}

TEST(JsonWriter, WritesTheShortestNumberAndNeverInvalidJson) {
  std::string out;
  ASSERT_TRUE(AppendFlat(out, Tensor::Of<float>(Shape{4}, {0.1f, -0.0f, NAN, INFINITY})).ok());
  EXPECT_EQ(out, "[0.1,-0,null,null]");
  std::string text;
  AppendJsonString(text, "a\"\\\n\x01\xff\xc3\xa9");
  EXPECT_EQ(text, "\"a\\\"\\\\\\u000a\\u0001\xef\xbf\xbd\xc3\xa9\"");
  std::string strings;
  EXPECT_FALSE(AppendFlat(strings, Tensor::Of<std::string>(Shape{1}, {"\xff"})).ok());
  EXPECT_FALSE(IsUtf8("\xc0\x80"));
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));
}

TEST(Url, DecodesOnceAndRefusesTricks) {
  EXPECT_EQ(*PathSegments("/v2/models/a%20b/infer?x=/"),
            (std::vector<std::string>{"v2", "models", "a b", "infer"}));
  EXPECT_EQ(*PathSegments("/a%252e"), (std::vector<std::string>{"a%2e"}));
  EXPECT_TRUE(PathSegments("/")->empty());
  for (const char* bad : {"", "x", "*", "//", "/a//b", "/.", "/%2e%2e", "/a/%2f", "/%00", "/%0d%0a",
                          "/%u002e", "/%", "/%4", "/a%5cb", "http://h/x"}) {
    EXPECT_FALSE(PathSegments(bad).ok()) << bad;
  }
}

TEST(BinaryTensor, ChecksSizesBeforeItCopies) {
  const auto strings = TensorFromBytes(std::string_view("\x02\0\0\0ab\0\0\0\0", 10), nullptr,
                                       DataType::kString, Shape{2}, "s");
  ASSERT_TRUE(strings.ok()) << strings.status().ToString();
  EXPECT_EQ(strings->data<std::string>()[0], "ab");
  std::string back;
  AppendTensorBytes(back, *strings);
  EXPECT_EQ(back, std::string("\x02\0\0\0ab\0\0\0\0", 10));
  const std::string_view huge("\xff\xff\xff\xff", 4);
  EXPECT_FALSE(TensorFromBytes(huge, nullptr, DataType::kString, Shape{1}, "s").ok());
  EXPECT_FALSE(TensorFromBytes(huge, nullptr, DataType::kString, Shape{1 << 30}, "s").ok());
  EXPECT_FALSE(TensorFromBytes("ab", nullptr, DataType::kString, Shape{1}, "s").ok());
  EXPECT_FALSE(TensorFromBytes("abc", nullptr, DataType::kFloat, Shape{1}, "s").ok());
  EXPECT_FALSE(TensorFromBytes("\x02", nullptr, DataType::kBool, Shape{1}, "s").ok());
  EXPECT_FALSE(
      TensorFromBytes("", nullptr, DataType::kFloat, Shape{int64_t{1} << 32, int64_t{1} << 32}, "s")
          .ok());
}

}  // namespace
}  // namespace onnxd
