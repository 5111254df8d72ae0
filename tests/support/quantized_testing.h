// Constants of quantized models, and results that rounding may move by a step.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/support/pass_testing.h"

namespace onnxd {

constexpr const char* kMicrosoft = "com.microsoft";

inline Tensor Bytes(const Shape& shape, bool is_signed, unsigned seed) {
  std::mt19937 random(seed);
  Tensor tensor = *Tensor::Create(is_signed ? DataType::kInt8 : DataType::kUint8, shape);
  auto* bytes = static_cast<uint8_t*>(tensor.mutable_raw());
  for (size_t i = 0; i < tensor.bytes(); ++i) bytes[i] = static_cast<uint8_t>(random());
  return tensor;
}

inline Tensor Byte(bool is_signed, int value) {
  Tensor tensor = *Tensor::Create(is_signed ? DataType::kInt8 : DataType::kUint8, Shape{});
  *static_cast<uint8_t*>(tensor.mutable_raw()) = static_cast<uint8_t>(value);
  return tensor;
}

inline Tensor Scales(int64_t count, float scale) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, count == 0 ? Shape{} : Shape{count});
  for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * static_cast<float>(1 + i % 3);
  }
  return tensor;
}

inline Tensor Zeros(DataType type, int64_t count) {
  Tensor tensor = *Tensor::Create(type, Shape{count});
  std::memset(tensor.mutable_raw(), 0, tensor.bytes());
  return tensor;
}

inline Attributes One(const char* name, int64_t value) {
  Attributes attributes;
  attributes.Set(name, value);
  return attributes;
}

inline double ElementAt(const Tensor& tensor, int64_t i) {
  switch (tensor.type()) {
    case DataType::kUint8:
      return tensor.data<uint8_t>()[i];
    case DataType::kInt8:
      return tensor.data<int8_t>()[i];
    case DataType::kInt32:
      return tensor.data<int32_t>()[i];
    default:
      return static_cast<double>(tensor.data<float>()[i]);
  }
}

// The outputs at `disable` and `all` differ by `absolute` at most, and not all are alike.
inline void ExpectClose(const TestModel& model, const std::vector<Value>& inputs, double absolute,
                        int threads = 1) {
  const auto plain = model.Load(OptimizationLevel::kDisable);
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  SessionOptions options = DefaultSession();
  options.pool = std::make_shared<ThreadPool>(threads);
  TestModel copy = model;
  const auto fast = InferenceSession::FromModel(std::move(copy.model()), std::move(options));
  ASSERT_TRUE(fast.ok()) << fast.status().ToString();
  const auto a = (*plain)->Run(inputs, {}), b = (*fast)->Run(inputs, {});
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  ASSERT_TRUE(b.ok()) << b.status().ToString();
  for (size_t i = 0; i < a->size(); ++i) {
    const Tensor &x = (*a)[i].tensor(), &y = (*b)[i].tensor();
    ASSERT_EQ(x.shape(), y.shape());
    ASSERT_EQ(x.type(), y.type());
    bool varies = false;
    for (int64_t j = 0; j < x.ElementCount(); ++j) {
      ASSERT_NEAR(ElementAt(x, j), ElementAt(y, j), absolute) << "element " << j;
      varies = varies || ElementAt(x, j) != ElementAt(x, 0);
    }
    EXPECT_TRUE(varies);
  }
}

}  // namespace onnxd
