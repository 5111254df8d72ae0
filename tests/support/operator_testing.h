// One node on the CPU provider, and what it should give.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "runtime/base/str_cat.h"
#include "tests/support/test_model.h"

namespace onnxd {

using I = std::vector<int64_t>;
using F = std::vector<float>;

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline Attributes With(std::initializer_list<std::pair<const char*, Attribute>> entries) {
  Attributes attributes;
  for (const auto& [name, value] : entries) attributes.Set(name, value);
  return attributes;
}

struct OperatorRun {
  int64_t opset = 20;
  unsigned constants = 0;  // a bit for each input that is a constant of the model
  std::string domain = "";
  size_t outputs = 1;
  int threads = 2;
};

// The outputs of one node as it is written; an undefined tensor leaves its input out.
inline Result<std::vector<Value>> RunOp(const std::string& op, const std::vector<Tensor>& inputs,
                                        Attributes attributes = {}, const OperatorRun& run = {}) {
  TestModel model(run.opset);
  std::vector<std::string> in, out;
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    in.push_back(inputs[i].defined() ? StrCat("in", i) : "");
    if (!inputs[i].defined()) continue;
    if ((run.constants >> i & 1) != 0) {
      model.Constant(in[i], inputs[i]);
    } else {
      model.Input(in[i], inputs[i].type(), ToSymbolic(inputs[i].shape()));
      values.push_back(inputs[i]);
    }
  }
  for (size_t i = 0; i < run.outputs; ++i) out.push_back(StrCat("out", i));
  model.Node(op, in, out, std::move(attributes), run.domain);
  for (const auto& name : out) model.Output(name);
  SessionOptions options = DefaultSession(OptimizationLevel::kDisable);
  options.pool = std::make_shared<ThreadPool>(run.threads);
  ONNXD_ASSIGN_OR_RETURN(const auto session,
                         InferenceSession::FromModel(std::move(model.model()), options));
  return session->Run(values, {});
}

template <typename T = float>
std::vector<T> Elements(const Result<std::vector<Value>>& outputs, size_t i = 0) {
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (!outputs.ok()) return {};
  const auto elements = (*outputs)[i].tensor().elements<T>();
  return {elements.begin(), elements.end()};
}

inline Tensor Numbers(const Shape& shape, float scale = 0.1f) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * static_cast<float>(i * i % 211 - 105);
  }
  return tensor;
}

inline Tensor Random(const Shape& shape, unsigned seed) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = uniform(random);
  }
  return tensor;
}

inline void ExpectNear(const std::vector<float>& got, const std::vector<double>& wanted,
                       const std::string& what) {
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(wanted[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << what << ", element " << i;
    } else if (std::isinf(wanted[i])) {
      EXPECT_EQ(got[i], static_cast<float>(wanted[i])) << what << ", element " << i;
    } else {
      EXPECT_NEAR(got[i], wanted[i], 2e-5 * (1 + std::abs(wanted[i]))) << what << ", element " << i;
    }
  }
}

}  // namespace onnxd
