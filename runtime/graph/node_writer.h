// How passes write the ai.onnx nodes that stand for another one.
#pragma once

#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// Appends nodes to a list, which may be the graph's. Not for several threads.
class NodeWriter {
 public:
  // The names of nodes, values and initializers begin with `name`.
  NodeWriter(Graph& graph, std::vector<Node>& nodes, std::string name)
      : graph_(graph), nodes_(nodes), name_(std::move(name)) {}

  // A node of version 13 and its output, which is new.
  ValueId Add(const char* op_type, std::vector<ValueId> inputs, Attributes attributes = {});
  // The same with an output that is there.
  void AddTo(ValueId output, const char* op_type, std::vector<ValueId> inputs,
             Attributes attributes = {});

  ValueId Transposed(ValueId id, std::vector<int64_t> order);
  ValueId Reshaped(ValueId id, const std::vector<int64_t>& shape);
  ValueId Integers(const std::vector<int64_t>& values);  // an initializer, int64 [count]

  // The attribute of a Transpose.
  static Attributes Order(std::vector<int64_t> order);

 private:
  Graph& graph_;
  std::vector<Node>& nodes_;
  const std::string name_;
};

}  // namespace onnxd
