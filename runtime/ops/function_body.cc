#include "runtime/ops/function_body.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/ops/op_schema.h"
#include "runtime/tensor/convert.h"

namespace onnxd {

FunctionBody::FunctionBody(const Node& node, std::span<const ValueType> inputs)
    : node_(node),
      types_(inputs),
      locals_(static_cast<int>(node.inputs.size())),
      results_(node.outputs.size(), -1) {}

int FunctionBody::InputRank(size_t i) const {
  if (i >= types_.size() || !types_[i].is_tensor() || !types_[i].shape) return -1;
  return static_cast<int>(types_[i].shape->size());
}

int64_t FunctionBody::InputDim(size_t i, int axis) const {
  const int rank = InputRank(i);
  if (axis < 0) axis += rank;
  if (rank < 0 || axis < 0 || axis >= rank) return -1;
  return (*types_[i].shape)[static_cast<size_t>(axis)].value;
}

FunctionBody::Operand FunctionBody::Input(size_t i) const {
  return HasInput(i) ? Operand{static_cast<int>(i)} : Operand{};
}

FunctionBody::Operand FunctionBody::Constant(Tensor tensor) {
  const Operand local = Local();
  constants_.emplace_back(local.index, std::move(tensor));
  return local;
}

FunctionBody::Operand FunctionBody::Integers(const std::vector<int64_t>& values) {
  return Constant(
      Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, std::span(values)));
}

FunctionBody::Operand FunctionBody::Number(double value, DataType type) {
  if (type == DataType::kUndefined) type = DataType::kFloat;
  Result<Tensor> tensor = Tensor::Create(type, Shape{});
  if (!tensor.ok()) return Operand{};
  ConvertElements(DataType::kDouble, &value, type, tensor->mutable_raw(), 1);
  return Constant(std::move(*tensor));
}

std::vector<FunctionBody::Operand> FunctionBody::CallMany(const std::string& op,
                                                          const std::vector<Operand>& inputs,
                                                          size_t outputs, Attributes attributes,
                                                          const std::string& domain) {
  Step step;
  step.node.name = StrCat(node_.name, "/", op);
  step.node.domain = domain;
  step.node.op_type = op;
  const OpSchema* schema = FindOpSchema(domain, op, kNewestOpset);
  step.node.since_version = schema == nullptr ? 0 : schema->since_version;
  step.node.attributes = std::move(attributes);
  for (const Operand input : inputs) step.inputs.push_back(input.index);
  while (!step.inputs.empty() && step.inputs.back() < 0) step.inputs.pop_back();
  std::vector<Operand> results;
  for (size_t i = 0; i < outputs; ++i) {
    results.push_back(Local());
    step.outputs.push_back(results.back().index);
  }
  steps_.push_back(std::move(step));
  return results;
}

FunctionBody::Operand FunctionBody::Call(const std::string& op,
                                         std::initializer_list<Operand> inputs,
                                         Attributes attributes, const std::string& domain) {
  return CallMany(op, inputs, 1, std::move(attributes), domain)[0];
}

FunctionBody::Operand FunctionBody::Cast(Operand x, DataType to) {
  return Call("Cast", {x}, MakeAttributes({{"to", static_cast<int64_t>(to)}}));
}

void FunctionBody::Return(size_t i, Operand result) {
  if (i < results_.size()) results_[i] = result.index;
}

bool FunctionBody::All(FunctionRef<bool(const Node&)> test) const {
  return std::all_of(steps_.begin(), steps_.end(),
                     [&](const Step& step) { return test(step.node); });
}

Result<size_t> FunctionBody::Replace(Graph& graph, size_t position) const {
  const Node replaced = graph.nodes[position];
  std::vector<ValueId> values(static_cast<size_t>(locals_), kNoValue);
  std::copy(replaced.inputs.begin(), replaced.inputs.end(), values.begin());
  for (const auto& [local, tensor] : constants_) {
    values[static_cast<size_t>(local)] = graph.AddInitializer("constant", tensor);
  }
  std::vector<Node> nodes;
  std::vector<std::pair<int, ValueId>> copies;  // results that already have a value of their own
  for (size_t i = 0; i < results_.size(); ++i) {
    if (replaced.outputs[i] == kNoValue) continue;
    if (results_[i] < 0) {
      return Internal(StrCat(Describe(replaced), ": its function body lacks output ", i));
    }
    ValueId& value = values[static_cast<size_t>(results_[i])];
    if (value == kNoValue) {
      value = replaced.outputs[i];
    } else {
      copies.emplace_back(results_[i], replaced.outputs[i]);
    }
  }
  for (const Step& step : steps_) {
    Node node = step.node;
    for (const int local : step.inputs) {
      node.inputs.push_back(local < 0 ? kNoValue : values[static_cast<size_t>(local)]);
    }
    for (const int local : step.outputs) {
      ValueId& value = values[static_cast<size_t>(local)];
      if (value == kNoValue) value = graph.AddUniqueValue(node.name);
      node.outputs.push_back(value);
    }
    nodes.push_back(std::move(node));
  }
  const OpSchema* identity = FindOpSchema("", "Identity", kNewestOpset);
  for (const auto& [local, output] : copies) {
    Node node;
    node.name = StrCat(replaced.name, "/Identity");
    node.op_type = "Identity";
    node.since_version = identity->since_version;
    node.inputs = {values[static_cast<size_t>(local)]};
    node.outputs = {output};
    nodes.push_back(std::move(node));
  }
  const size_t count = nodes.size();
  const auto at = graph.nodes.begin() + static_cast<std::ptrdiff_t>(position);
  graph.nodes.insert(graph.nodes.erase(at), std::make_move_iterator(nodes.begin()),
                     std::make_move_iterator(nodes.end()));
  return count;
}

Attributes MakeAttributes(std::initializer_list<std::pair<const char*, Attribute>> entries) {
  Attributes attributes;
  for (const auto& [name, value] : entries) attributes.Set(name, value);
  return attributes;
}

}  // namespace onnxd
