#include "runtime/tensor/convert.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace onnxd {
namespace {

constexpr DataType kMinifloats[] = {DataType::kFloat8E4M3FN,   DataType::kFloat8E4M3FNUZ,
                                    DataType::kFloat8E5M2,     DataType::kFloat8E5M2FNUZ,
                                    DataType::kFloat4E2M1,     DataType::kFloat8E8M0};

TEST(Minifloat, EveryCodeSurvivesTheRoundTrip) {
  for (const DataType type : kMinifloats) {
    for (int code = 0; code < 1 << DataTypeBits(type); ++code) {
      const float value = MinifloatToFloat(type, static_cast<uint8_t>(code));
      if (std::isnan(value)) continue;
      MinifloatOptions exact;
      exact.saturate = !std::isinf(value);
      exact.rounding = Float8E8M0Rounding::kDown;  // its smallest value is a subnormal float
      EXPECT_EQ(FloatToMinifloat(type, value, exact), code) << DataTypeName(type);
    }
  }
}

TEST(Minifloat, KnownValues) {
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat8E4M3FN, 0x7e), 448.0f);
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat8E4M3FNUZ, 0x7f), 240.0f);
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat8E5M2, 0x7b), 57344.0f);
  EXPECT_TRUE(std::isinf(MinifloatToFloat(DataType::kFloat8E5M2, 0x7c)));
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat4E2M1, 7), 6.0f);
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat8E8M0, 127), 1.0f);
}

TEST(Minifloat, RoundsToTheNearestAndTiesToEven) {
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat4E2M1, FloatToMinifloat(DataType::kFloat4E2M1, 2.5f)),
            2.0f);
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat4E2M1, FloatToMinifloat(DataType::kFloat4E2M1, 3.5f)),
            4.0f);
  EXPECT_EQ(MinifloatToFloat(DataType::kFloat4E2M1, FloatToMinifloat(DataType::kFloat4E2M1, 0.3f)),
            0.5f);
}

TEST(Minifloat, OverflowSaturatesOrNot) {
  const MinifloatOptions open{false, Float8E8M0Rounding::kUp};
  EXPECT_EQ(FloatToMinifloat(DataType::kFloat8E4M3FN, 1e6f), 0x7e);
  EXPECT_EQ(FloatToMinifloat(DataType::kFloat8E4M3FN, -1e6f, open), 0xff);
  EXPECT_EQ(FloatToMinifloat(DataType::kFloat8E5M2, 1e6f, open), 0x7c);
  EXPECT_EQ(FloatToMinifloat(DataType::kFloat8E5M2FNUZ, -1e9f, open), 0x80);
}

TEST(ConvertElements, PackedIntegersKeepTheirSignAndNeighbours) {
  const Tensor bytes = Tensor::Of<int8_t>(Shape{5}, {-8, 7, -1, 0, 3});
  const auto packed = Converted(bytes, DataType::kInt4);
  ASSERT_TRUE(packed.ok());
  EXPECT_EQ(packed->bytes(), 3u);
  const auto back = Converted(*packed, DataType::kInt8);
  ASSERT_TRUE(back.ok());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(back->data<int8_t>()[i], bytes.data<int8_t>()[i]);
}

TEST(ConvertElements, FloatsOutOfRangeBecomeTheLimit) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor floats = Tensor::Of<float>(Shape{4}, {300.0f, -5.0f, nan, 3.9f});
  const auto bytes = Converted(floats, DataType::kUint8);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->data<uint8_t>()[0], 255);
  EXPECT_EQ(bytes->data<uint8_t>()[1], 0);
  EXPECT_EQ(bytes->data<uint8_t>()[2], 0);
  EXPECT_EQ(bytes->data<uint8_t>()[3], 3);
}

}  // namespace
}  // namespace onnxd
