// What tests of the fused provider share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/test_model.h"

namespace onnxd {

inline Attributes Axis(int64_t axis) {
  Attributes attributes;
  attributes.Set("axis", axis);
  return attributes;
}

inline Tensor Sines(const Shape& shape, float scale) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * std::sin(static_cast<float>(i) * 0.37f) + 0.1f;
  }
  return tensor;
}

// On the device, where there is one, as on the CPU without any rewriting.
inline void ExpectSameOnDevice(const TestModel& model, const std::vector<Value>& inputs,
                               bool on_device_alone = false,
                               Precision precision = Precision::kFloat32, float tolerance = 2e-5f) {
  SessionOptions options = DefaultSession();
  options.precision = precision;
  options.providers = *MakeProviders({"fused", "cpu"});
  if (options.providers.size() < 2) GTEST_SKIP() << "no OpenCL on this machine";
  TestModel copy = model;
  const auto fused = InferenceSession::FromModel(std::move(copy.model()), std::move(options));
  const auto plain = model.Load(OptimizationLevel::kDisable);
  ASSERT_TRUE(fused.ok()) << fused.status().ToString();
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  if (on_device_alone) {
    EXPECT_FALSE((*fused)->info().nodes_by_provider.contains("cpu"));
  }
  const auto got = (*fused)->Run(inputs, {}), wanted = (*plain)->Run(inputs, {});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  for (size_t i = 0; i < wanted->size(); ++i) {
    const Tensor &a = (*got)[i].tensor(), &b = (*wanted)[i].tensor();
    ASSERT_EQ(a.shape(), b.shape());
    for (int64_t j = 0; j < b.ElementCount(); ++j) {
      const float x = b.data<float>()[j];
      ASSERT_NEAR(a.data<float>()[j], x, tolerance * (1 + std::fabs(x))) << "element " << j;
    }
  }
}

}  // namespace onnxd
