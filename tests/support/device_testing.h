// Models on a device, and the same on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/support/quantized_testing.h"

namespace onnxd {

using DeviceProvider = std::shared_ptr<const ExecutionProvider>;

// With `provider` before the CPU, which must get all nodes.
inline Result<std::vector<Value>> RunOnDevice(
    const TestModel& model, const std::vector<Value>& inputs, DeviceProvider provider,
    OptimizationLevel level = OptimizationLevel::kDisable) {
  SessionOptions options = DefaultSession(level);
  options.providers.insert(options.providers.begin(), std::move(provider));
  TestModel copy = model;
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::FromModel(std::move(copy.model()), std::move(options)));
  EXPECT_FALSE(session->info().nodes_by_provider.contains("cpu"));
  return session->Run(inputs, {});
}

// The outputs differ from those of the CPU without any rewriting by tolerance * (1 + |x|) at most,
// and not all are alike.
inline void ExpectSameAsCpu(const TestModel& model, const std::vector<Value>& inputs,
                            DeviceProvider provider, double tolerance,
                            OptimizationLevel level = OptimizationLevel::kDisable) {
  const auto plain = model.Load(OptimizationLevel::kDisable);
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  const auto got = RunOnDevice(model, inputs, std::move(provider), level);
  const auto wanted = (*plain)->Run(inputs, {});
  ASSERT_TRUE(got.ok()) << got.status().ToString();
  ASSERT_TRUE(wanted.ok()) << wanted.status().ToString();
  bool varies = false;
  for (size_t i = 0; i < wanted->size(); ++i) {
    const Tensor &a = (*got)[i].tensor(), &b = (*wanted)[i].tensor();
    ASSERT_EQ(a.shape(), b.shape()) << "output " << i;
    ASSERT_EQ(a.type(), b.type()) << "output " << i;
    for (int64_t j = 0; j < b.ElementCount(); ++j) {
      const double x = ElementAt(b, j);
      ASSERT_NEAR(ElementAt(a, j), x, tolerance * (1 + std::abs(x)))
          << "output " << i << ", element " << j;
      varies = varies || x != ElementAt(b, 0) || b.ElementCount() == 1;
    }
  }
  EXPECT_TRUE(varies);
}

}  // namespace onnxd
