// Models that compute in a type of choice, with inputs and outputs of float.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "runtime/base/str_cat.h"
#include "tests/support/test_model.h"

namespace onnxd {

// Multiples of 1/16, which all types have, TF32 too.
inline Tensor Waves(const Shape& shape, float phase) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    const float wave = std::sin(static_cast<float>(i) * 0.37f + phase);
    tensor.mutable_data<float>()[i] = std::round(wave * 16) / 16;
  }
  return tensor;
}

inline Attributes To(DataType type) {
  Attributes attributes;
  attributes.Set("to", static_cast<int64_t>(type));
  return attributes;
}

// Inputs of float, cast to the type under test; `Answer` casts back.
class CastModel {
 public:
  explicit CastModel(DataType type, int64_t opset = 22) : type_(type), model_(opset) {}
  std::string Input(const Shape& shape) {
    const std::string name = StrCat("x", inputs_.size());
    SymbolicShape symbolic;
    for (const int64_t dim : shape) symbolic.push_back(Dimension(dim));
    model_.Input(name, DataType::kFloat, symbolic);
    model_.Node("Cast", {name}, {name + "c"}, To(type_));
    inputs_.push_back(Waves(shape, static_cast<float>(inputs_.size())));
    return name + "c";
  }
  TestModel& model() { return model_; }
  TestModel& Answer(const std::string& name) {
    return model_.Node("Cast", {name}, {"answer"}, To(DataType::kFloat)).Output("answer");
  }
  const std::vector<Value>& inputs() const { return inputs_; }

 private:
  const DataType type_;
  TestModel model_;
  std::vector<Value> inputs_;
};

}  // namespace onnxd
