// How tests look at passes: the operators before and after, and the same results.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/ops/shape_inference.h"
#include "runtime/optimizer/pass_manager.h"
#include "runtime/session/constant_evaluator.h"
#include "tests/support/test_model.h"

namespace onnxd {

// "Conv Relu" after running the passes until they change nothing.
inline std::string After(TestModel& model, const std::vector<const GraphPass*>& passes) {
  PassContext context;
  context.evaluate = MakeConstantEvaluator(*MakeProviders({}), std::make_shared<ThreadPool>(1));
  EXPECT_TRUE(InferGraph(model.graph()).ok());
  const Status status = RunPasses(passes, OptimizationLevel::kAll, model.graph(), context);
  EXPECT_TRUE(status.ok()) << status.ToString();
  std::string ops;
  for (const Node& node : model.graph().nodes) ops += (ops.empty() ? "" : " ") + node.op_type;
  return ops;
}

inline std::string After(TestModel& model, const GraphPass* pass) {
  return After(model, std::vector<const GraphPass*>{pass});
}

// A pass that the default providers bring; null when this build has none of that name.
inline const GraphPass* ProviderPass(std::string_view name) {
  const auto providers = MakeProviders({});
  for (const auto& provider : *providers) {
    for (const GraphPass* pass : provider->Passes()) {
      if (pass->name() == name) return pass;
    }
  }
  return nullptr;
}

// The outputs at `disable`, and at `all` with so many threads, agree.
inline void ExpectSameResults(const TestModel& model, const std::vector<Value>& inputs,
                              int threads = 1, float tolerance = 1e-5f) {
  const auto plain = model.Load(OptimizationLevel::kDisable);
  SessionOptions options = DefaultSession();
  options.pool = std::make_shared<ThreadPool>(threads);
  TestModel copy = model;
  const auto optimized = InferenceSession::FromModel(std::move(copy.model()), std::move(options));
  ASSERT_TRUE(plain.ok()) << plain.status().ToString();
  ASSERT_TRUE(optimized.ok()) << optimized.status().ToString();
  const auto a = (*plain)->Run(inputs, {}), b = (*optimized)->Run(inputs, {});
  ASSERT_TRUE(a.ok()) << a.status().ToString();
  ASSERT_TRUE(b.ok()) << b.status().ToString();
  for (size_t i = 0; i < a->size(); ++i) {
    const Tensor &x = (*a)[i].tensor(), &y = (*b)[i].tensor();
    ASSERT_EQ(x.shape(), y.shape());
    for (int64_t j = 0; j < x.ElementCount(); ++j) {
      const float wanted = x.data<float>()[j];
      EXPECT_NEAR(wanted, y.data<float>()[j], tolerance * (1 + std::abs(wanted)))
          << "element " << j;
    }
  }
}

// -6, -5, ... 6, -6, ... times `scale`.
inline Tensor Ramp(const Shape& shape, float scale) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * static_cast<float>(i % 13 - 6);
  }
  return tensor;
}

// The attribute of a Transpose.
inline Attributes Order(std::vector<int64_t> order) {
  Attributes attributes;
  attributes.Set("perm", std::move(order));
  return attributes;
}

}  // namespace onnxd
