// What is known of the values of a fused graph when its kernel prepares.
#pragma once

#include <vector>

#include "runtime/kernel/kernel.h"

namespace onnxd {

class FusedShapes {
 public:
  // kFailedPrecondition while a value's shape is not known. Both must outlive it.
  static Result<FusedShapes> Make(const Graph& graph, const PrepareContext& context);

  const Shape& of(ValueId id) const { return shapes_[static_cast<size_t>(id)]; }
  // A node of the graph as its own kernel would prepare; valid while this is.
  PrepareContext ContextOf(const Node& node, int threads);

 private:
  OperandInfo InfoOf(const Graph& graph, ValueId id) const;

  const Graph* graph_ = nullptr;
  std::vector<Shape> shapes_;         // by value
  std::vector<const Tensor*> known_;  // by value, null: not known
  std::vector<OperandInfo> inputs_, outputs_;
};

// The position of a value among the graph's inputs; the number of inputs when it is none.
size_t InputPosition(const Graph& graph, ValueId id);

// A call of one node of the graph, with the operands that it has in a call of the whole.
class FusedCall {
 public:
  // `inputs`: positions among the whole's inputs, by operand of the node; its number: absent.
  FusedCall(const KernelContext& whole, std::span<const size_t> inputs);
  const KernelContext& context() const { return context_; }

 private:
  std::vector<void*> inputs_, outputs_;
  KernelContext context_;
};

// As the whole's inputs, by operand of the node.
std::vector<size_t> InputPositions(const Graph& graph, const Node& node);

}  // namespace onnxd
