// Initializers that are conversions of others.
#include "runtime/graph/initializer.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

Tensor Halves(std::vector<uint16_t> bits) {
  Tensor tensor = *Tensor::Create(DataType::kBfloat16, Shape{static_cast<int64_t>(bits.size())});
  std::copy(bits.begin(), bits.end(), static_cast<uint16_t*>(tensor.mutable_raw()));
  return tensor;
}

Initializer Doubled(const Initializer& source, int& conversions) {
  return Initializer(DataType::kInt32, source,
                     [&conversions](const void* from, void* to, int64_t count) {
                       ++conversions;
                       for (int64_t i = 0; i < count; ++i) {
                         static_cast<int32_t*>(to)[i] = 2 * static_cast<const uint16_t*>(from)[i];
                       }
                     });
}

TEST(Initializer, IsConvertedWhenItsElementsAreAskedFor) {
  int conversions = 0;
  const Initializer source(Halves({3, 5, 7}));
  const Initializer wide = Doubled(source, conversions);
  EXPECT_EQ(wide.type(), DataType::kInt32);
  EXPECT_EQ(wide.shape(), source.shape());
  EXPECT_FALSE(wide.in_memory());
  EXPECT_EQ(wide.converted_from().type(), DataType::kBfloat16);
  ASSERT_TRUE(wide.Load().ok());
  EXPECT_EQ(conversions, 0) << "loading reads what it was converted from";
  for (int i = 0; i < 2; ++i) {
    const auto elements = wide.Materialize();
    ASSERT_TRUE(elements.ok()) << elements.status().ToString();
    EXPECT_EQ(elements->data<int32_t>()[2], 14);
  }
  EXPECT_EQ(conversions, 1);
  EXPECT_TRUE(wide.in_memory());
  EXPECT_FALSE(wide.converted_from().defined());
}

TEST(Initializer, ConvertsForAFormAndKeepsTheFormAlone) {
  int conversions = 0;
  Initializer wide = Doubled(Initializer(Halves({3})), conversions);
  const auto form = wide.InForm("first", [](const Tensor& plain) -> Result<Tensor> {
    EXPECT_EQ(plain.data<int32_t>()[0], 6);
    return plain;
  });
  ASSERT_TRUE(form.ok());
  EXPECT_EQ(conversions, 1);
  EXPECT_FALSE(wide.in_memory());
  wide.Release();
  EXPECT_TRUE(wide.released());
  EXPECT_EQ(wide.Materialize().status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace onnxd
