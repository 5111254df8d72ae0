#include "runtime/tensor/shared_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/graph/initializer.h"

namespace onnxd {
namespace {

Tensor Filled(int64_t count, float value) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, Shape{count});
  std::fill_n(tensor.mutable_data<float>(), count, value);
  return tensor;
}

constexpr int64_t kLarge = 1 << 16;

TEST(SharedTensor, EqualOnesAreOne) {
  const Tensor a = ShareTensor(Filled(kLarge, 1.5f)), b = ShareTensor(Filled(kLarge, 1.5f));
  EXPECT_EQ(a.raw(), b.raw());
}

TEST(SharedTensor, EqualOnesThatStayAreOne) {
  const Tensor a = ShareKeptTensor(Filled(kLarge, 1.75f));
  const Tensor b = ShareKeptTensor(Filled(kLarge, 1.75f)), c = ShareTensor(Filled(kLarge, 1.75f));
  EXPECT_EQ(a.raw(), b.raw());
  EXPECT_EQ(a.raw(), c.raw());
  EXPECT_EQ(a.data<float>()[kLarge - 1], 1.75f);
}

TEST(SharedTensor, OneElementOfDifferenceKeepsThemApart) {
  const Tensor a = ShareTensor(Filled(kLarge, 2.5f));
  for (const int64_t position : {int64_t{0}, int64_t{777}, kLarge - 1}) {
    Tensor other = Filled(kLarge, 2.5f);
    other.mutable_data<float>()[position] = 3.0f;
    const Tensor b = ShareTensor(other);
    EXPECT_NE(a.raw(), b.raw());
    EXPECT_EQ(b.data<float>()[position], 3.0f);
  }
}

TEST(SharedTensor, ShapeAndTypeStayTheCallersOwn) {
  const Tensor a = ShareTensor(Filled(kLarge, 0.0f));
  Tensor integers = *Tensor::Create(DataType::kInt32, Shape{2, kLarge / 2});
  std::fill_n(integers.mutable_data<int32_t>(), kLarge, 0);
  const Tensor b = ShareTensor(integers);
  EXPECT_EQ(a.raw(), b.raw());
  EXPECT_EQ(b.type(), DataType::kInt32);
  EXPECT_EQ(b.shape(), (Shape{2, kLarge / 2}));
}

TEST(SharedTensor, MemoryGoesWithItsLastUser) {
  std::weak_ptr<void> watched;
  {
    const Tensor a = ShareTensor(Filled(kLarge, 4.5f));
    watched = a.owner();
  }
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(ShareTensor(Filled(kLarge, 4.5f)).data<float>()[0], 4.5f);
}

TEST(SharedTensor, PackedFormsOfEqualInitializersAreOne) {
  Tensor weights = Filled(256 * 256, 0.25f).Reshaped(Shape{256, 256});
  for (int64_t i = 0; i < weights.ElementCount(); ++i) {
    weights.mutable_data<float>()[i] = static_cast<float>(i % 251);
  }
  const Initializer first(weights), second(weights);
  const auto pack = [](const Tensor& plain) -> Result<Tensor> {
    Tensor packed = *Tensor::Create(DataType::kFloat, plain.shape());
    std::reverse_copy(plain.data<float>(), plain.data<float>() + plain.ElementCount(),
                      packed.mutable_data<float>());
    return packed;
  };
  const auto a = first.InForm("reversed", pack), b = second.InForm("reversed", pack);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a->raw(), b->raw());
}

}  // namespace
}  // namespace onnxd
