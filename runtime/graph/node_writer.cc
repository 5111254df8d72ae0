#include "runtime/graph/node_writer.h"

namespace onnxd {

ValueId NodeWriter::Add(const char* op_type, std::vector<ValueId> inputs, Attributes attributes) {
  const ValueId output = graph_.AddUniqueValue(name_ + "_" + op_type);
  AddTo(output, op_type, std::move(inputs), std::move(attributes));
  return output;
}

void NodeWriter::AddTo(ValueId output, const char* op_type, std::vector<ValueId> inputs,
                       Attributes attributes) {
  Node& node = nodes_.emplace_back();
  node.name = name_ + "_" + op_type;
  node.op_type = op_type;
  node.since_version = 13;
  node.inputs = std::move(inputs);
  node.outputs = {output};
  node.attributes = std::move(attributes);
}

ValueId NodeWriter::Transposed(ValueId id, std::vector<int64_t> order) {
  return Add("Transpose", {id}, Order(std::move(order)));
}

ValueId NodeWriter::Reshaped(ValueId id, const std::vector<int64_t>& shape) {
  return Add("Reshape", {id, Integers(shape)});
}

ValueId NodeWriter::Integers(const std::vector<int64_t>& values) {
  return graph_.AddInitializer(name_ + "_integers",
                               Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())},
                                                   std::span<const int64_t>(values)));
}

Attributes NodeWriter::Order(std::vector<int64_t> order) {
  Attributes attributes;
  attributes.Set("perm", std::move(order));
  return attributes;
}

}  // namespace onnxd
