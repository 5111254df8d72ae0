#include <gtest/gtest.h>

#include <cmath>

#include "server/http/json_tensor.h"
#include "server/http/url.h"
#include "server/inference/binary_tensor.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

// The tensor of {"x": json}, or why there is none.
Result<Tensor> Read(const std::string& json, const ValueType& type,
                    const JsonTensorOptions& options = {}) {
  const std::string text = "{\"x\":" + json + "}";
  Tensor tensor;
  ONNXD_RETURN_IF_ERROR(ReadJsonObject({text, nullptr}, [&](std::string_view, JsonValue value) {
    ONNXD_ASSIGN_OR_RETURN(tensor, TensorFromNested(value, type, "x", 1, options));
    return Status::Ok();
  }));
  return tensor;
}

std::string Nested(const std::string& json, const ValueType& type) {
  const auto tensor = Read(json, type);
  if (!tensor.ok()) return std::string(tensor.status().message());
  std::string out = Describe(tensor->type(), tensor->shape());
  NonFiniteNumbers non_finite;
  EXPECT_TRUE(AppendNested(out, Value(*tensor), non_finite).ok());
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
  fails("[[1e400]]", DataType::kDouble, "element 0 is a number out of range");
  fails("[[NaN]]", DataType::kFloat, "malformed JSON");
  fails("[[Infinity]]", DataType::kFloat, "malformed JSON");
  for (const char* text : {"[[1 2]]", "[[1.5 2.5]]", "[[01]]", "[[1.]]", "[[1.5x]]", "[[-]]",
                           "[[.5]]", "[[+1]]", "[[1.5,]]", "[[1.5]", "[[1.5", "[[1.5}]"}) {
    fails(text, DataType::kFloat, "malformed JSON");
  }
  fails("[[true]]", DataType::kInt8, "a boolean");
  fails("[[\"5\"]]", DataType::kInt8, "a string");
  fails("[[null]]", DataType::kFloat, "null");
  fails("[[1,2],[3]]", DataType::kFloat, "ragged");
  fails("[[1,2],3]", DataType::kFloat, "unevenly");
  fails("[[[1]]]", DataType::kFloat, "3 levels of nesting");
  fails("1", DataType::kFloat, "0 levels of nesting");
  fails("[[1]] x", DataType::kFloat, "malformed JSON");
  std::string deep(70, '[');
  fails(deep + std::string(70, ']'), DataType::kFloat, "nested deeper than 32");
  fails(std::string(1000, '['), DataType::kFloat, "nested deeper than 32");
}

TEST(JsonTensor, NestingIsEvenWhereverItEnds) {
  EXPECT_EQ(Nested("[[],[]]", Matrix(DataType::kFloat)), "float[2, 0][[],[]]");
  EXPECT_EQ(Nested("[]", Matrix(DataType::kFloat)), "float[1, 0][[]]");
  for (const char* uneven : {"[[1],[]]", "[[],[1]]", "[[[1]],[[1,2]]]", "[1,[2]]", "[[1],[[2]]]"}) {
    EXPECT_FALSE(Read(uneven, ValueType::TensorOf(DataType::kFloat)).ok()) << uneven;
  }
  JsonTensorOptions shallow;
  shallow.max_depth = 2;
  EXPECT_TRUE(Read("[[1]]", Matrix(DataType::kFloat), shallow).ok());
  EXPECT_FALSE(Read("[[[1]]]", ValueType::TensorOf(DataType::kFloat), shallow).ok());
}

TEST(JsonTensor, TakesMoreElementsThanItMadeRoomFor) {
  std::string json = "[[0";
  for (int i = 1; i < 1000; ++i) json += "," + std::to_string(i);
  for (const DataType type : {DataType::kFloat, DataType::kInt64, DataType::kBfloat16}) {
    const auto tensor = Read(json + "]]", Matrix(type));
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    EXPECT_EQ(tensor->shape(), (Shape{1, 1000}));
  }
  const auto numbers = Read(json + "]]", Matrix(DataType::kInt64));
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(numbers->data<int64_t>()[i], i);
  std::string texts = "[[\"\"";
  for (int i = 1; i < 100; ++i) texts += ",\"t" + std::to_string(i) + "\"";
  const auto strings = Read(texts + "]]", Matrix(DataType::kString));
  ASSERT_TRUE(strings.ok());
  EXPECT_EQ(strings->data<std::string>()[99], "t99");
}

Result<Tensor> Data(const std::string& json, DataType type, const Shape& shape, bool tokens) {
  JsonTensorOptions options;
  options.non_finite_tokens = tokens;
  const std::string text = "{\"data\":" + json + "}";
  Tensor tensor;
  ONNXD_RETURN_IF_ERROR(ReadJsonObject({text, nullptr}, [&](std::string_view, JsonValue value) {
    ONNXD_ASSIGN_OR_RETURN(tensor, TensorFromData(value, type, shape, "x", 100, options));
    return Status::Ok();
  }));
  return tensor;
}

TEST(JsonTensor, TakesTheTokensOfPythonWhereToldTo) {
  const std::string json = "[NaN, Infinity ,-Infinity,Inf,-Inf,1]";
  EXPECT_FALSE(Data(json, DataType::kFloat, Shape{6}, false).ok());
  for (const DataType type : {DataType::kFloat, DataType::kDouble, DataType::kFloat16}) {
    const auto tensor = Data(json, type, Shape{6}, true);
    ASSERT_TRUE(tensor.ok()) << tensor.status().message();
    std::string out;
    NonFiniteNumbers non_finite{NonFinite::kToken};
    EXPECT_TRUE(AppendFlat(out, *tensor, non_finite).ok());
    EXPECT_EQ(out, "[NaN,Infinity,-Infinity,Infinity,-Infinity,1]");
    EXPECT_EQ(non_finite.count, 5);
  }
  const auto floats = Data(json, DataType::kFloat, Shape{6}, true);
  EXPECT_TRUE(std::isnan(floats->data<float>()[0]));
  EXPECT_EQ(floats->data<float>()[1], INFINITY);
  EXPECT_EQ(floats->data<float>()[2], -INFINITY);
  for (const char* bad : {"[nan]", "[NaNs]", "[+Inf]", "[\"NaN\"]", "[- Inf]", "[Nan]"}) {
    EXPECT_FALSE(Data(bad, DataType::kFloat, Shape{1}, true).ok()) << bad;
  }
  EXPECT_FALSE(Data("[NaN]", DataType::kInt32, Shape{1}, true).ok());
  EXPECT_FALSE(Data("[NaN]", DataType::kString, Shape{1}, true).ok());
}

TEST(JsonTensor, RowsKeepTheirAxis) {
  const auto read = [](const std::string& text, const ValueType& type) {
    JsonTensorOptions options;
    options.by_row = true;
    const auto owned = std::make_shared<std::string>(text);
    Result<Tensor> tensor = InvalidArgument("");
    (void)ReadJsonObject({*owned, owned}, [&](std::string_view, JsonValue value) {
      tensor = TensorFromNested(value, type, "x", 4, options);
      return tensor.status();
    });
    return tensor.ok() ? tensor->shape().ToString() : std::string(tensor.status().message());
  };
  const ValueType rows = ValueType::TensorOf(DataType::kFloat, SymbolicShape(2));
  EXPECT_EQ(read("{\"v\":[[1,2],[3,4],[5,6]]}", rows), "[3, 2]");
  EXPECT_EQ(read("{\"v\":[1,2,3]}", rows), "[3, 1]");
  EXPECT_EQ(read("{\"v\":[1,2,3]}", ValueType::TensorOf(DataType::kFloat, SymbolicShape(1))),
            "[3]");
  EXPECT_EQ(read("{\"v\":[[[1]]]}", rows),
            "input 'x' has 3 levels of nesting, expected float[?, ?]");
  EXPECT_EQ(read("{\"v\":1}", ValueType::TensorOf(DataType::kFloat, SymbolicShape(1))),
            "input 'x' has 0 levels of nesting, expected float[?]");
}

TEST(JsonTensor, TakesNoMemoryForWhatTheTextCannotHold) {
  const auto tensor = Data("[1]", DataType::kFloat, Shape{1 << 20, 1 << 10}, false);
  ASSERT_FALSE(tensor.ok());
  EXPECT_NE(tensor.status().message().find("more elements than the request can hold"),
            std::string_view::npos);
  EXPECT_FALSE(Data("[1,2,3]", DataType::kFloat, Shape{2}, false).ok());
  EXPECT_FALSE(Data("[1]", DataType::kFloat, Shape{2}, false).ok());
}

Status ReadAll(std::string_view text, int64_t depth = 64) {
  // Behind it stands what would go on with it.
  const std::string padded = std::string(text) + std::string(HttpBody::kPadding, ',');
  const HttpBody body{std::string_view(padded).substr(0, text.size()), nullptr, HttpBody::kPadding};
  return ReadJsonObject(
      body, [&](std::string_view, JsonValue value) { return CheckIgnored(value, depth); });
}

TEST(JsonDocument, RefusesRepeatedKeysAnywhere) {
  EXPECT_FALSE(ReadAll(R"({"a":1,"a":2})").ok());
  EXPECT_FALSE(ReadAll(R"({"a":1,"\u0061":2})").ok());
  EXPECT_FALSE(ReadAll(R"({"x":[1,{"b":{"a":1,"a":2}}]})").ok());
  EXPECT_TRUE(ReadAll(R"({"x":[{"a":1},{"a":2}]})").ok());
  std::string many = "{";
  for (int i = 0; i < 100; ++i) many += "\"" + std::to_string(i) + "\":0,";
  EXPECT_TRUE(ReadAll(many + "\"x\":0}").ok());
  EXPECT_FALSE(ReadAll(many + "\"3\":0}").ok());
  EXPECT_FALSE(ReadAll(many + "\"77\":0}").ok());
}

TEST(JsonDocument, RefusesWhatIsNoJson) {
  const std::string good = R"({"a":[1,-2.5e3,"x\n\u00e9",true,false,null,{"b":{}},[]],"c":"d"})";
  EXPECT_TRUE(ReadAll(good).ok()) << ReadAll(good).message();
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ReadAll(good.substr(0, length)).ok()) << good.substr(0, length);
  }
  for (const char* bad : {"{} x",
                          "{}{}",
                          "{},",
                          "[1]",
                          "null",
                          "1",
                          "\"x\"",
                          "\xef\xbb\xbf{}",
                          "{\"a\":tru}",
                          "{\"a\":nul}",
                          "{\"a\":01}",
                          "{\"a\":1.}",
                          "{\"a\":+1}",
                          "{\"a\":[1 2]}",
                          "{\"a\":[1}}",
                          "{\"a\":[1,]}",
                          "{\"a\":1,}",
                          "{\"a\" 1}",
                          "{a:1}",
                          "{'a':1}",
                          "{\"a\":\"\\x\"}",
                          "{\"a\":\"\n\"}",
                          "{\"a\":\"\xff\"}",
                          "{\"a\":\"\\ud800\"}",
                          "{\"a\":1e400}",
                          "{\"a\":NaN}",
                          "{/**/}",
                          "{\"a\":{\"b\":1]}"}) {
    EXPECT_FALSE(ReadAll(bad).ok()) << bad;
  }
  EXPECT_TRUE(ReadAll(R"({"a":[[1]]})", 2).ok());
  EXPECT_FALSE(ReadAll(R"({"a":[[1]]})", 1).ok());
  EXPECT_FALSE(ReadAll("{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}").ok());
}

TEST(JsonDocument, FindsAFieldAgain) {
  const std::string text = R"({"a":[1,2],"b":{"c":3},"d":4})";
  const auto document = JsonDocument::Parse({text, nullptr});
  ASSERT_TRUE(document.ok());
  for (int round = 0; round < 3; ++round) {
    auto root = (*document)->Root();
    ASSERT_TRUE(root.ok());
    ASSERT_TRUE(ForEachField(*root, [](std::string_view, JsonValue) { return Status::Ok(); }).ok());
    ASSERT_TRUE((*document)->CheckEnd().ok());
    auto found = FieldAt(*root, 2);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(int64_t(found->get_int64()), 4);
  }
}

TEST(JsonWriter, WritesTheShortestNumberAndNeverInvalidJson) {
  std::string out;
  NonFiniteNumbers non_finite;
  const Tensor numbers = Tensor::Of<float>(Shape{4}, {0.1f, -0.0f, NAN, INFINITY});
  ASSERT_TRUE(AppendFlat(out, numbers, non_finite).ok());
  EXPECT_EQ(non_finite.count, 2);
  EXPECT_EQ(out, "[0.1,-0.0,null,null]");
  std::string text;
  AppendJsonString(text, "a\"\\\n\x01\xff\xc3\xa9");
  EXPECT_EQ(text, "\"a\\\"\\\\\\u000a\\u0001\xef\xbf\xbd\xc3\xa9\"");
  std::string strings;
  EXPECT_FALSE(AppendFlat(strings, Tensor::Of<std::string>(Shape{1}, {"\xff"}), non_finite).ok());
  NonFiniteNumbers refused{NonFinite::kError};
  EXPECT_EQ(AppendFlat(strings, numbers, refused).code(), StatusCode::kInternal);
  EXPECT_EQ(AppendNested(strings, Value(numbers), refused).code(), StatusCode::kInternal);
  EXPECT_TRUE(AppendFlat(strings, Tensor::Of<float>(Shape{1}, {1}), refused).ok());
  EXPECT_FALSE(IsUtf8("\xc0\x80"));
  EXPECT_FALSE(IsUtf8("\xed\xa0\x80"));
  EXPECT_FALSE(IsUtf8("\xf4\x90\x80\x80"));
}

TEST(Url, DecodesOnceAndRefusesTricks) {
  EXPECT_EQ(*PathSegments("/v2/models/a%20b/infer?x=/"),
            (std::vector<std::string>{"v2", "models", "a b", "infer"}));
  EXPECT_EQ(*PathSegments("/a%252e"), (std::vector<std::string>{"a%2e"}));
  EXPECT_TRUE(PathSegments("/")->empty());
  EXPECT_EQ(*PathSegments("http://host:80/a/b?c"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(PathSegments("https://host")->empty());
  EXPECT_EQ(*PathSegments("/v1/models/a:b:predict"),
            (std::vector<std::string>{"v1", "models", "a:b", ":predict"}));
  for (const char* whole : {"/v1/models/a:b", "/v1/models/:predict", "/v2/models/a:predict"}) {
    EXPECT_EQ(PathSegments(whole)->size(), 3u) << whole;
  }
  for (const char* bad : {"", "x", "*", "//", "/a//b", "/.", "/%2e%2e", "/a/%2f", "/%00", "/%0d%0a",
                          "/%u002e", "/%", "/%4", "/a%5cb", "ftp://h/x", "http:/x"}) {
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
