#include <algorithm>
#include <optional>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"
#include "runtime/ops/einsum.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

using Labels = std::vector<int>;

bool Has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

bool AreDistinct(Labels labels) {
  std::sort(labels.begin(), labels.end());
  return std::adjacent_find(labels.begin(), labels.end()) == labels.end();
}

Labels Joined(std::initializer_list<const Labels*> parts) {
  Labels all;
  for (const Labels* part : parts) all.insert(all.end(), part->begin(), part->end());
  return all;
}

// The labels of a product of two tensors by where they stand.
struct Roles {
  Labels batch, left, summed, right;
};

// nullopt where a label is summed within one operand, repeated or missing on a side.
std::optional<Roles> RolesOf(const EinsumEquation& equation) {
  const Labels &a = equation.inputs[0], &b = equation.inputs[1], &out = equation.output;
  if (!AreDistinct(a) || !AreDistinct(b) || !AreDistinct(out)) return std::nullopt;
  Roles roles;
  for (const int label : out) {
    if (Has(a, label) && Has(b, label)) roles.batch.push_back(label);
  }
  for (const int label : a) {
    if (Has(out, label)) {
      if (!Has(b, label)) roles.left.push_back(label);
    } else if (Has(b, label)) {
      roles.summed.push_back(label);
    } else {
      return std::nullopt;
    }
  }
  for (const int label : b) {
    if (Has(a, label)) continue;
    if (!Has(out, label)) return std::nullopt;
    roles.right.push_back(label);
  }
  if (roles.left.empty() || roles.summed.empty() || roles.right.empty()) return std::nullopt;
  return roles;
}

// Where the axes `to` are among `from`.
std::vector<int64_t> Order(const Labels& from, const Labels& to) {
  std::vector<int64_t> order;
  for (const int label : to) {
    order.push_back(std::find(from.begin(), from.end(), label) - from.begin());
  }
  return order;
}

// `id`, whose axes are `from`, with them in the order `to`.
ValueId Turned(NodeWriter& writer, ValueId id, const Labels& from, const Labels& to) {
  return from == to ? id : writer.Transposed(id, Order(from, to));
}

bool IsFloatingTensor(const Graph& graph, ValueId id) {
  const ValueType& type = graph.value(id).type;
  return type.is_tensor() && IsFloatingPoint(type.element) && DataTypeBits(type.element) >= 16;
}

const Dimension& DimensionOf(const Graph& graph, ValueId id, const Labels& labels, int label) {
  const auto axis = std::find(labels.begin(), labels.end(), label) - labels.begin();
  return (*graph.value(id).type.shape)[static_cast<size_t>(axis)];
}

// The product of some dimensions that are known; nullopt where one is not.
std::optional<int64_t> Extent(const Graph& graph, ValueId id, const Labels& labels,
                              const Labels& some) {
  int64_t product = 1;
  for (const int label : some) {
    const Dimension& dimension = DimensionOf(graph, id, labels, label);
    if (!dimension.known() || dimension.value <= 0 || dimension.value > INT32_MAX / product) {
      return std::nullopt;
    }
    product *= dimension.value;
  }
  return product;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "einsum_product"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    std::vector<Node> added;
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (node.Is("Einsum") && node.inputs.size() == 2) changed |= TryProduct(graph, node, added);
    }
    for (Node& node : added) graph.nodes.push_back(std::move(node));
    return changed;
  }

 private:
  static bool TryProduct(Graph& graph, Node& node, std::vector<Node>& added) {
    const ValueId a = node.inputs[0], b = node.inputs[1];
    const auto a_rank = RankOf(graph, a), b_rank = RankOf(graph, b);
    if (!a_rank || !b_rank || !IsFloatingTensor(graph, a) || !IsFloatingTensor(graph, b)) {
      return false;
    }
    const auto equation = ParseEinsum(node, {*a_rank, *b_rank});
    const auto roles = equation.ok() ? RolesOf(*equation) : std::nullopt;
    if (!roles || !SumsAgree(graph, node, *equation, *roles)) return false;
    const bool single = roles->left.size() == 1 && roles->right.size() == 1;
    if (roles->summed.size() == 1 && (single || !roles->batch.empty())) {
      return WriteBatches(graph, node, *equation, *roles, added);
    }
    return roles->batch.empty() && WriteMatrix(graph, node, *equation, *roles, added);
  }

  // A dimension of 1 may stand for all in Einsum, in a sum of MatMul not.
  static bool SumsAgree(const Graph& graph, const Node& node, const EinsumEquation& equation,
                        const Roles& roles) {
    return std::all_of(roles.summed.begin(), roles.summed.end(), [&](int label) {
      const Dimension& left = DimensionOf(graph, node.inputs[0], equation.inputs[0], label);
      const Dimension& right = DimensionOf(graph, node.inputs[1], equation.inputs[1], label);
      return left.known() && left == right;
    });
  }

  // Of several rows' axes the last one makes the rows; the others are in front of the batch, where
  // MatMul broadcasts the other operand. So for columns; not both at once.
  static bool WriteBatches(Graph& graph, Node& node, const EinsumEquation& equation,
                           const Roles& roles, std::vector<Node>& added) {
    if (roles.left.size() > 1 && roles.right.size() > 1) return false;
    const Labels left_front(roles.left.begin(), roles.left.end() - 1);
    const Labels right_front(roles.right.begin(), roles.right.end() - 1);
    const Labels row = {roles.left.back()}, column = {roles.right.back()};
    NodeWriter writer(graph, added, graph.value(node.outputs[0]).name);
    const ValueId a = Turned(writer, node.inputs[0], equation.inputs[0],
                             Joined({&left_front, &roles.batch, &row, &roles.summed}));
    const ValueId b = Turned(writer, node.inputs[1], equation.inputs[1],
                             Joined({&right_front, &roles.batch, &roles.summed, &column}));
    Finish(node, equation, Joined({&left_front, &right_front, &roles.batch, &row, &column}),
           writer.Add("MatMul", {a, b}));
    return true;
  }

  // Without a batch, b is one matrix and a has as many rows as it wants.
  static bool WriteMatrix(Graph& graph, Node& node, const EinsumEquation& equation,
                          const Roles& roles, std::vector<Node>& added) {
    const auto k = Extent(graph, node.inputs[1], equation.inputs[1], roles.summed);
    const auto n = Extent(graph, node.inputs[1], equation.inputs[1], roles.right);
    if (!k || !n) return false;
    NodeWriter writer(graph, added, graph.value(node.outputs[0]).name);
    ValueId a =
        Turned(writer, node.inputs[0], equation.inputs[0], Joined({&roles.left, &roles.summed}));
    ValueId b =
        Turned(writer, node.inputs[1], equation.inputs[1], Joined({&roles.summed, &roles.right}));
    std::vector<int64_t> shape(roles.left.size(), 0);  // 0: as it was
    if (roles.summed.size() > 1) {
      shape.push_back(*k);
      a = writer.Reshaped(a, shape);
      shape.pop_back();
    }
    if (roles.summed.size() + roles.right.size() > 2) b = writer.Reshaped(b, {*k, *n});
    ValueId product = writer.Add("MatMul", {a, b});
    if (roles.right.size() > 1) {
      for (const int label : roles.right) {
        shape.push_back(DimensionOf(graph, node.inputs[1], equation.inputs[1], label).value);
      }
      product = writer.Reshaped(product, shape);
    }
    Finish(node, equation, Joined({&roles.left, &roles.right}), product);
    return true;
  }

  // `node` takes the axes `made` of `value` to those of its output.
  static void Finish(Node& node, const EinsumEquation& equation, const Labels& made,
                     ValueId value) {
    node.op_type = made == equation.output ? "Identity" : "Transpose";
    node.attributes =
        made == equation.output ? Attributes{} : NodeWriter::Order(Order(made, equation.output));
    node.since_version = 13;
    node.inputs = {value};
  }
};

}  // namespace

const GraphPass* EinsumProduct() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
