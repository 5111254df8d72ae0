#include "runtime/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "runtime/tensor/float16.h"
#include "runtime/tensor/value.h"

namespace onnxd {
namespace {

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_TRUE((Shape{2, 0, 3}).Validate().ok());
  EXPECT_FALSE((Shape{2, -1}).Validate().ok());
  EXPECT_FALSE((Shape{int64_t{1} << 40, int64_t{1} << 40}).Validate().ok());
  EXPECT_FALSE((Shape{0, int64_t{1} << 62, int64_t{1} << 62}).Validate().ok());
  EXPECT_FALSE(Shape(std::vector<int64_t>(33, 1)).Validate().ok());
}

TEST(Tensor, PacksSmallTypesAndAlignsMemory) {
  EXPECT_EQ(*TensorBytes(DataType::kInt4, 5), 3);
  EXPECT_EQ(*TensorBytes(DataType::kUint2, 5), 2);
  EXPECT_EQ(*TensorBytes(DataType::kFloat, 5), 20);
  const auto tensor = Tensor::Create(DataType::kFloat, Shape{3, 5});
  ASSERT_TRUE(tensor.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor->raw()) % kTensorAlignment, 0u);
}

TEST(Float16, EveryBitPatternSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = HalfBitsToFloat(static_cast<uint16_t>(bits));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(HalfBitsToFloat(FloatToHalfBits(value))));
    } else {
      EXPECT_EQ(FloatToHalfBits(value), bits);
    }
  }
}

TEST(Float16, RoundsToNearestEven) {
  EXPECT_EQ(FloatToHalfBits(1.0f + 0x1p-11f), FloatToHalfBits(1.0f));
  EXPECT_EQ(FloatToHalfBits(1.0f + 3 * 0x1p-11f), FloatToHalfBits(1.0f) + 2);
  EXPECT_EQ(FloatToHalfBits(65520.0f), 0x7c00);
  EXPECT_EQ(FloatToHalfBits(65519.0f), 0x7bff);
  EXPECT_EQ(FloatToHalfBits(0x1p-25f), 0);
  EXPECT_EQ(FloatToHalfBits(0x1.8p-25f), 1);
  EXPECT_EQ(FloatToBfloat16Bits(1.00390625f), 0x3f80);  // a tie goes to even
}

TEST(ValueType, DescribesItself) {
  EXPECT_EQ(ToString(ValueType::TensorOf(
                DataType::kFloat, SymbolicShape{Dimension::Symbol("batch"), 3, Dimension()})),
            "float[batch, 3, ?]");
  EXPECT_EQ(ToString(ValueType::SequenceOf(
                ValueType::MapOf(DataType::kInt64, ValueType::TensorOf(DataType::kFloat)))),
            "seq(map(int64, float[...]))");
}

}  // namespace
}  // namespace onnxd
