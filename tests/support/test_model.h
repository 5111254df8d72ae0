// Models built in a test, and the folders that tests read.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/graph/model.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/inference_session.h"

namespace onnxd {

// Assembles a small model: values are named, operators get their newest version not above `opset`.
class TestModel {
 public:
  explicit TestModel(int64_t opset = 17);

  TestModel& Input(const std::string& name, DataType type, SymbolicShape shape);
  TestModel& Constant(const std::string& name, Tensor tensor);
  TestModel& Node(const std::string& op, const std::vector<std::string>& inputs,
                  const std::vector<std::string>& outputs, Attributes attributes = {},
                  const std::string& domain = "");
  TestModel& Output(const std::string& name);

  Graph& graph() { return model_.graph; }
  Model& model() { return model_; }
  Result<std::unique_ptr<InferenceSession>> Load(
      OptimizationLevel level = OptimizationLevel::kAll) const;

 private:
  ValueId Value(const std::string& name);
  Model model_;
  int64_t opset_;
};

// Session options with the default providers.
SessionOptions DefaultSession(OptimizationLevel level = OptimizationLevel::kAll);

// Float tensor from a list.
inline Tensor Floats(const Shape& shape, std::initializer_list<float> values) {
  return Tensor::Of<float>(shape, values);
}
inline Tensor Ints(const Shape& shape, std::initializer_list<int64_t> values) {
  return Tensor::Of<int64_t>(shape, values);
}

// The repository's own models/ folder.
std::filesystem::path EmbeddedModels();
// Real models from elsewhere, beside the checkout; empty when the folder is absent.
std::filesystem::path SharedModels();

}  // namespace onnxd
