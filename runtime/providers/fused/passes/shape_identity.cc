#include "runtime/providers/fused/passes/shape_identity.h"

#include <algorithm>

#include "runtime/providers/fused/body_writer.h"
#include "runtime/providers/fused/row_operator.h"

namespace onnxd {

ShapeIdentity::ShapeIdentity(const Graph& graph) : dims_(graph.value_count()) {
  for (size_t id = 0; id < dims_.size(); ++id) AddOwn(graph, static_cast<ValueId>(id));
  for (const Node& node : graph.nodes) Follow(graph, node);
}

void ShapeIdentity::AddOwn(const Graph& graph, ValueId id) {
  const ValueType& type = graph.value(id).type;
  if (!type.is_tensor() || !type.shape) return;
  Dims dims;
  for (const Dimension& dimension : *type.shape) {
    if (dimension.known()) {
      dims.push_back(dimension.value);
    } else if (dimension.symbol.empty()) {
      dims.push_back(next_--);
    } else {
      const auto [found, added] = symbols_.try_emplace(dimension.symbol, next_);
      if (added) --next_;
      dims.push_back(found->second);
    }
  }
  dims_[static_cast<size_t>(id)] = std::move(dims);
}

void ShapeIdentity::Follow(const Graph& graph, const Node& node) {
  if (node.outputs.empty() || node.outputs[0] == kNoValue || node.inputs.empty()) return;
  auto& out = dims_[static_cast<size_t>(node.outputs[0])];
  if (!out || node.inputs[0] == kNoValue || !of(node.inputs[0])) return;
  const Dims& in = *of(node.inputs[0]);
  if (IsPointwise(graph, node)) return FollowBroadcast(graph, node);
  if (IsRowOperator(graph, node) && !IsReduction(node)) {
    out = in;
  } else if (node.Is("MatMul") && of(node.inputs[1]) && of(node.inputs[1])->size() == 2 &&
             out->size() == in.size() && !in.empty()) {
    std::copy(in.begin(), in.end() - 1, out->begin());
  }
}

void ShapeIdentity::FollowBroadcast(const Graph& graph, const Node& node) {
  Dims& out = *dims_[static_cast<size_t>(node.outputs[0])];
  const auto& shape = *graph.value(node.outputs[0]).type.shape;
  for (size_t axis = 0; axis < out.size(); ++axis) {
    if (shape[axis].known() || !shape[axis].symbol.empty()) continue;
    std::optional<int64_t> only;
    bool one = true;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) continue;
      if (!of(id)) return;
      const Dims& in = *of(id);
      if (in.size() + axis < out.size()) continue;
      const int64_t dim = in[in.size() + axis - out.size()];
      if (dim == 1) continue;
      one = one && (!only || *only == dim);
      only = dim;
    }
    if (one && only) out[axis] = *only;
  }
}

bool ShapeIdentity::Same(ValueId a, ValueId b) const { return of(a) && of(b) && *of(a) == *of(b); }

}  // namespace onnxd
