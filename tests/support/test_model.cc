#include "tests/support/test_model.h"

#include "runtime/ops/op_schema.h"

namespace onnxd {

TestModel::TestModel(int64_t opset) : opset_(opset) {
  model_.ir_version = 8;
  model_.opsets[""] = opset;
}

ValueId TestModel::Value(const std::string& name) {
  if (name.empty()) return kNoValue;
  const ValueId known = model_.graph.FindValue(name);
  return known != kNoValue ? known : model_.graph.AddValue(name);
}

TestModel& TestModel::Input(const std::string& name, DataType type, SymbolicShape shape) {
  model_.graph.inputs.push_back(
      model_.graph.AddValue(name, ValueType::TensorOf(type, std::move(shape))));
  return *this;
}

TestModel& TestModel::Constant(const std::string& name, Tensor tensor) {
  model_.graph.AddInitializer(name, std::move(tensor));
  return *this;
}

TestModel& TestModel::Node(const std::string& op, const std::vector<std::string>& inputs,
                           const std::vector<std::string>& outputs, Attributes attributes,
                           const std::string& domain) {
  onnxd::Node node;
  node.name = op + std::to_string(model_.graph.nodes.size());
  node.op_type = op;
  node.domain = domain;
  const OpSchema* schema = FindOpSchema(domain, op, domain.empty() ? opset_ : kNewestOpset);
  node.since_version = schema == nullptr ? 1 : schema->since_version;
  for (const std::string& input : inputs) node.inputs.push_back(Value(input));
  for (const std::string& output : outputs) node.outputs.push_back(Value(output));
  node.attributes = std::move(attributes);
  model_.graph.nodes.push_back(std::move(node));
  return *this;
}

TestModel& TestModel::Output(const std::string& name) {
  model_.graph.outputs.push_back(Value(name));
  return *this;
}

SessionOptions DefaultSession(OptimizationLevel level) {
  SessionOptions options;
  options.optimization = level;
  options.providers = *MakeProviders({});
  return options;
}

Result<std::unique_ptr<InferenceSession>> TestModel::Load(OptimizationLevel level) const {
  return InferenceSession::FromModel(model_, DefaultSession(level));
}

std::filesystem::path EmbeddedModels() {
  return std::filesystem::path(ONNXD_SOURCE_DIR) / "models";
}

std::filesystem::path SharedModels() {
  const auto folder = std::filesystem::path(ONNXD_SOURCE_DIR) / ".." / "shared" / "models";
  return std::filesystem::is_directory(folder) ? folder : std::filesystem::path();
}

}  // namespace onnxd
