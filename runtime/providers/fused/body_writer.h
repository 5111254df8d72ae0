// The elementwise part of a fused graph as statements of the kernels' language.
#pragma once

#include <map>
#include <string>

#include "runtime/graph/graph.h"

namespace onnxd {

// Whether the node computes each element of its only output from one element of each input, in
// types that devices compute.
bool IsPointwise(const Graph& graph, const Node& node);

// Statements on one line, in the order of Add.
class BodyWriter {
 public:
  explicit BodyWriter(const Graph& graph) : graph_(graph) {}

  // The value is `name` from here on.
  void Define(ValueId id, std::string name) { names_[id] = std::move(name); }
  // Requires IsPointwise, and inputs that are defined.
  void Add(const Node& node);

  const std::string& statements() const { return statements_; }
  const std::string& NameOf(ValueId id) const { return names_.at(id); }

 private:
  const Graph& graph_;
  std::map<ValueId, std::string> names_;
  std::string statements_;
};

}  // namespace onnxd
