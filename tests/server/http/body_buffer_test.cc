#include "server/http/body_buffer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "server/inference/binary_tensor.h"

namespace onnxd {
namespace {

void Write(BodyBuffer& body, std::string_view text) {
  std::memcpy(body.Rest().data(), text.data(), text.size());
  body.Add(text.size());
}

TEST(BodyBuffer, TakesWhatCameInPieces) {
  BodyBuffer body;
  ASSERT_TRUE(body.Allocate(5, 0));
  Write(body, "ab");
  EXPECT_EQ(body.left(), 3u);
  Write(body, "cde");
  EXPECT_EQ(body.Take().bytes, "abcde");
  EXPECT_EQ(body.left(), 0u);
}

TEST(BodyBuffer, OfNothingHoldsNothing) {
  BodyBuffer body;
  ASSERT_TRUE(body.Allocate(0, 0));
  const HttpBody taken = body.Take();
  EXPECT_TRUE(taken.bytes.empty());
  EXPECT_EQ(taken.owner, nullptr);
}

TEST(BodyBuffer, TensorsBehindTextAreUsedWhereTheyWereRead) {
  const std::string text(100, 'j');
  const float numbers[] = {1, 2};
  BodyBuffer body;
  ASSERT_TRUE(body.Allocate(text.size() + sizeof(numbers), text.size()));
  Write(body, text);
  Write(body, {reinterpret_cast<const char*>(numbers), sizeof(numbers)});
  HttpBody taken = body.Take();
  const std::string_view behind = taken.bytes.substr(text.size());
  const auto tensor = TensorFromBytes(behind, taken.owner, DataType::kFloat, Shape{2}, "x");
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(tensor->raw(), behind.data());
  taken.owner.reset();
  EXPECT_EQ(tensor->data<float>()[1], 2);
  // Others are copied.
  const auto one =
      TensorFromBytes(behind.substr(4), tensor->owner(), DataType::kFloat, Shape{1}, "x");
  ASSERT_TRUE(one.ok());
  EXPECT_NE(one->raw(), behind.data() + 4);
  EXPECT_EQ(one->data<float>()[0], 2);
}

TEST(BodyBuffer, RefusesWhatNoMemoryHolds) {
  BodyBuffer body;
  EXPECT_FALSE(body.Allocate(SIZE_MAX, 1));
  EXPECT_EQ(body.left(), 0u);
}

}  // namespace
}  // namespace onnxd
