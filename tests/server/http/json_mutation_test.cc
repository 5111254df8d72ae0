// Bodies that differ from good ones by some bytes: whatever is taken is JSON, and nothing is read
// beyond what may be (under AddressSanitizer). ONNXD_MUTATIONS sets how many; 100,000 otherwise.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "server/http/infer_body.h"
#include "server/http/json_tensor.h"

namespace onnxd {
namespace {

constexpr const char* kSeeds[] = {
    R"({"input":[[5.1,3.5,-1.4e0,2]],"model":"m","version":1})",
    R"({"inputs":{"x":[[1,2],[3,4]],"y":["a","\u00e9\n"]}})",
    R"({"id":"q","inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2.5,NaN,4]}],)"
    R"("outputs":[{"name":"y","parameters":{"binary_data":true,"classification":2}}]})",
    R"({"inputs":[{"data":[["a"],["b"]],"datatype":"BYTES","shape":[2,1],"name":"s"},)"
    R"({"name":"b","shape":[3],"datatype":"BOOL","parameters":{"binary_data_size":3}}],)"
    R"("parameters":{"timeout":5,"priority":1,"any":{"thing":[1,{"b":[]}]}}})abc)",
    R"({"inputs":[{"name":"i","shape":[2],"datatype":"INT8","data":[-128,127]}]})"};

std::string Mutated(std::mt19937& random) {
  constexpr std::string_view kTokens[] = {
      "[",   "]",   "{", "}",    ",", ":", "\"",  "\\",   "\\u",  "0",  "-",  "1e9",
      "NaN", "Inf", " ", "null", "e", ".", "tru", "\xff", "\xc3", "\n", "[[", "\"data\""};
  std::string text = kSeeds[random() % std::size(kSeeds)];
  const size_t changes = random() % 4;
  for (size_t i = 0; i < changes && !text.empty(); ++i) {
    const size_t at = random() % text.size(), length = random() % 8;
    switch (random() % 5) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(random() % text.size(), random() % 40));
        break;
      case 3:
        text.resize(at);
        break;
      default:
        text.insert(at, kTokens[random() % std::size(kTokens)]);
    }
  }
  return text;
}

// Reads it as every consumer does. Whether all of it was taken as JSON.
bool ReadBody(const HttpBody& body, std::mt19937& random) {
  constexpr DataType kTypes[] = {DataType::kFloat,  DataType::kDouble, DataType::kInt8,
                                 DataType::kUint64, DataType::kBool,   DataType::kString,
                                 DataType::kFloat16};
  const ValueType type = ValueType::TensorOf(kTypes[random() % std::size(kTypes)]);
  JsonTensorOptions options;
  options.non_finite_tokens = random() % 2 == 0;
  (void)ReadJsonObject(body, [&](std::string_view, JsonValue value) {
    return TensorFromNested(value, type, "x", 1, options).status();
  });
  (void)ReadJsonObject(body, [&](std::string_view, JsonValue value) {
    return TensorFromData(value, type.element, Shape{2, 2}, "x", 100, options).status();
  });
  return ReadJsonObject(body,
                        [&](std::string_view, JsonValue value) { return CheckIgnored(value, 32); })
      .ok();
}

void ReadInfer(const HttpBody& body, std::mt19937& random) {
  ModelVersion version;
  HttpRequest request;
  request.body = body;
  if (random() % 2 == 0) {
    request.headers.emplace_back(kHeaderLength, std::to_string(random() % (body.bytes.size() + 2)));
  }
  (void)ReadInferBody(version, {}, SharedMemory(false), request);
}

TEST(JsonMutations, AreReadWithinTheirBytesOrRefused) {
  const char* const wanted = std::getenv("ONNXD_MUTATIONS");
  const int64_t count = wanted == nullptr ? 100'000 : std::atoll(wanted);
  std::mt19937 random(static_cast<unsigned>(count));
  int64_t taken = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string text = Mutated(random);
    // Without and with bytes behind it that may be read; no more than these are there.
    const size_t padding = random() % 2 == 0 ? 0 : HttpBody::kPadding;
    const std::unique_ptr<char[]> bytes(new char[text.size() + padding]);
    std::memcpy(bytes.get(), text.data(), text.size());
    for (size_t j = 0; j < padding; ++j) bytes[text.size() + j] = static_cast<char>(random());
    const HttpBody body{{bytes.get(), text.size()}, nullptr, padding};
    ReadInfer(body, random);
    if (!ReadBody(body, random)) continue;
    ++taken;
    ASSERT_TRUE(nlohmann::json::accept(text)) << text;
  }
  EXPECT_GT(taken, count / 10);
}

}  // namespace
}  // namespace onnxd
