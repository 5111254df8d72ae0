#include "runtime/fusion/merged_products.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <set>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

// x W, or x W + a row.
struct Product {
  ValueId x, weights;
  ValueId row = kNoValue;  // kNoValue: none
  ValueId result;
  std::vector<size_t> nodes;  // by position
  int64_t columns;
};

std::optional<int64_t> RowLength(const Graph& graph, ValueId id) {
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.shape().rank() != 1) return std::nullopt;
  return found->second.shape()[0];
}

// Matrices of equal rows side by side, or rows after each other.
Result<Tensor> SideBySide(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<Tensor> parts;
  int64_t columns = 0;
  for (const ValueId id : ids) {
    ONNXD_ASSIGN_OR_RETURN(parts.emplace_back(), graph.initializers.at(id).Materialize());
    columns += parts.back().shape().dims().back();
  }
  Shape shape = parts[0].shape();
  shape[shape.rank() - 1] = columns;
  ONNXD_ASSIGN_OR_RETURN(Tensor joined, Tensor::Create(parts[0].type(), shape));
  auto* to = static_cast<std::byte*>(joined.mutable_raw());
  const int64_t rows = shape.ElementCount() / columns;
  for (int64_t row = 0; row < rows; ++row) {
    for (const Tensor& part : parts) {
      const size_t bytes = part.bytes() / static_cast<size_t>(rows);
      std::memcpy(to, static_cast<const std::byte*>(part.raw()) + static_cast<size_t>(row) * bytes,
                  bytes);
      to += bytes;
    }
  }
  return joined;
}

class Merging {
 public:
  explicit Merging(Graph& graph) : graph_(graph), match_(graph) {}

  Result<bool> Run() {
    for (const Node& node : graph_.nodes) {
      if (!node.Is("FusedAttention", "onnxd")) continue;
      ONNXD_RETURN_IF_ERROR(MergeOperands(node));
    }
    if (merged_.empty()) return false;
    std::vector<Node> nodes;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const auto found = merged_.find(n);
      if (found != merged_.end()) {
        std::move(found->second.begin(), found->second.end(), std::back_inserter(nodes));
      }
      if (!dropped_.contains(n)) nodes.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(nodes);
    return true;
  }

 private:
  // What stands behind an operand of attention.
  std::optional<Product> Find(ValueId id) const {
    while (const Node* reshape = match_.Producer(id, "Reshape")) id = reshape->inputs[0];
    Product product{kNoValue, kNoValue, kNoValue, id, {}, 0};
    if (const Node* sum = match_.Producer(id, "Add")) {
      const auto operands = match_.BesideConstant(*sum);
      if (!operands || sum->since_version < 7) return std::nullopt;
      if (match_.index().use_count(operands->value) != 1) return std::nullopt;
      product.row = operands->constant;
      product.nodes.push_back(PositionOf(id));
      id = operands->value;
    }
    const Node* matmul = match_.Producer(id, "MatMul");
    if (matmul == nullptr) return std::nullopt;
    product.nodes.push_back(PositionOf(id));
    product.x = matmul->inputs[0];
    product.weights = matmul->inputs[1];
    const auto weights = graph_.initializers.find(product.weights);
    if (weights == graph_.initializers.end() || weights->second.shape().rank() != 2 ||
        graph_.IsInitializer(product.x)) {
      return std::nullopt;
    }
    product.columns = weights->second.shape()[1];
    const bool is_taken = std::any_of(product.nodes.begin(), product.nodes.end(),
                                      [&](size_t n) { return dropped_.contains(n); });
    const bool row_fits =
        product.row == kNoValue || RowLength(graph_, product.row) == product.columns;
    return is_taken || !row_fits || !CanBePart(product) ? std::nullopt : std::optional(product);
  }

  // Parts begin where kernels count on addresses.
  bool CanBePart(const Product& product) const {
    constexpr int64_t kBits = 64 * 8;
    const ValueType& type = graph_.value(product.result).type;
    return product.columns > 0 && IsFloatingPoint(type.element) && type.shape &&
           !type.shape->empty() && product.columns * DataTypeBits(type.element) % kBits == 0;
  }

  size_t PositionOf(ValueId id) const { return static_cast<size_t>(match_.index().producer(id)); }

  Status MergeOperands(const Node& attention) {
    std::vector<Product> products;
    for (size_t i = 0; i < 3; ++i) {
      const auto product = Find(attention.inputs[i]);
      const bool is_new =
          product && std::none_of(products.begin(), products.end(), [&](const Product& other) {
            return other.result == product->result;
          });
      if (is_new) products.push_back(*product);
    }
    while (products.size() > 1) {
      const Product& last = products.back();
      const auto beside = std::partition(products.begin(), products.end() - 1, [&](const auto& p) {
        return p.x != last.x || (p.row == kNoValue) != (last.row == kNoValue);
      });
      if (beside != products.end() - 1) {
        ONNXD_RETURN_IF_ERROR(Merge({beside, products.end()}));
      }
      products.erase(beside, products.end());
    }
    return Status::Ok();
  }

  ValueId NewValue(const std::string& hint, const Product& like, int64_t columns) {
    ValueType type = graph_.value(like.result).type;
    type.shape->back() = columns;
    return graph_.AddUniqueValue(hint, std::move(type));
  }

  Status Merge(const std::vector<Product>& products) {
    std::vector<ValueId> matrices, rows;
    std::vector<int64_t> sizes;
    size_t first = graph_.nodes.size();
    int64_t columns = 0;
    for (const Product& product : products) {
      matrices.push_back(product.weights);
      rows.push_back(product.row);
      sizes.push_back(product.columns);
      columns += product.columns;
      for (const size_t n : product.nodes) {
        first = std::min(first, n);
        dropped_.insert(n);
      }
    }
    const Product& one = products[0];
    const std::string hint = graph_.value(one.result).name + "_merged";
    std::vector<Node>& nodes = merged_[first];
    Node product = graph_.nodes[one.nodes.back()];
    ONNXD_ASSIGN_OR_RETURN(Tensor matrix, SideBySide(graph_, matrices));
    product.inputs = {one.x, graph_.AddInitializer(hint + "_weights", std::move(matrix))};
    product.outputs = {NewValue(hint, one, columns)};
    nodes.push_back(product);
    if (one.row != kNoValue) {
      Node sum = graph_.nodes[one.nodes.front()];
      ONNXD_ASSIGN_OR_RETURN(Tensor row, SideBySide(graph_, rows));
      sum.inputs = {product.outputs[0], graph_.AddInitializer(hint + "_row", std::move(row))};
      sum.outputs = {NewValue(hint, one, columns)};
      nodes.push_back(sum);
    }
    Node split;
    split.name = graph_.nodes[one.nodes.back()].name + "_split";
    split.op_type = "Split";
    split.since_version = 13;
    split.attributes.Set("axis", int64_t{-1});
    ONNXD_ASSIGN_OR_RETURN(Tensor extents,
                           Tensor::Create(DataType::kInt64, Shape{std::ssize(sizes)}));
    std::copy(sizes.begin(), sizes.end(), extents.mutable_data<int64_t>());
    split.inputs = {nodes.back().outputs[0],
                    graph_.AddInitializer(hint + "_sizes", std::move(extents))};
    for (const Product& each : products) split.outputs.push_back(each.result);
    nodes.push_back(std::move(split));
    return Status::Ok();
  }

  Graph& graph_;
  const GraphMatcher match_;
  std::map<size_t, std::vector<Node>> merged_;  // before the node of that position
  std::set<size_t> dropped_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "merged_products"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }
  Result<bool> Run(Graph& graph, const PassContext&) const override { return Merging(graph).Run(); }
};

}  // namespace

const GraphPass* MergedProducts() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
