#include "runtime/fusion/attention.h"

#include <optional>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

using Order = std::vector<int64_t>;

// An operand as the kernel reads it: through an order of axes, empty when that changes nothing.
struct View {
  ValueId id = kNoValue;
  Order order;
};

struct Pattern {
  View query, key, value;
  ValueId mask = kNoValue, window_mask = kNoValue;
  float scale = 1.0f;
  bool nan_to_zero = false;
  size_t last = 0;  // the node that gives the result
  Order output_order;
};

std::optional<Order> OrderOf(const Node& transpose, int rank) {
  Order order = transpose.attributes.Ints("perm");
  if (static_cast<int>(order.size()) != rank) return std::nullopt;
  return order;
}

bool KeepsLastAxis(const Order& order) {
  return order.back() == static_cast<int64_t>(order.size()) - 1;
}

class Matcher {
 public:
  Matcher(const Graph& graph, bool halves) : graph_(graph), match_(graph), halves_(halves) {}

  std::optional<Pattern> Find(const Node& softmax) const {
    if (!softmax.Is("Softmax") || !Computes(softmax.inputs[0])) return std::nullopt;
    const auto rank = RankOf(graph_, softmax.inputs[0]);
    const int64_t axis = softmax.attributes.Int("axis", softmax.since_version < 13 ? 1 : -1);
    if (!rank || *rank < 2 || (axis != -1 && axis != *rank - 1)) return std::nullopt;
    Pattern pattern;
    const Node* scores = Scores(WithoutWindows(softmax.inputs[0], *rank, pattern), *rank, pattern);
    if (scores == nullptr || !Keys(scores->inputs[1], *rank, pattern)) return std::nullopt;
    const ValueId query = Unscaled(scores->inputs[0], pattern);
    pattern.query = Through(query, *rank);
    if (pattern.query.id == kNoValue || !(pattern.scale > 0)) return std::nullopt;
    return Result(softmax, *rank, pattern) ? std::optional(pattern) : std::nullopt;
  }

 private:
  bool Computes(ValueId id) const {
    const DataType type = graph_.value(id).type.element;
    const bool half = type == DataType::kFloat16 || type == DataType::kBfloat16;
    return IsFloat(graph_, id) || (halves_ && half);
  }

  bool UsedOnce(ValueId id) const { return match_.index().use_count(id) == 1; }

  // Reshape, Add of a mask for each window, Reshape back: [batch * windows, ...] for a while as
  // [batch, windows, ...]. What the first reads; takes the mask. `id` where that is not there.
  ValueId WithoutWindows(ValueId id, int rank, Pattern& pattern) const {
    const Node* back = match_.Producer(id, "Reshape");
    if (back == nullptr || !UsedOnce(id) || !UsedOnce(back->inputs[0])) return id;
    const Node* sum = match_.Producer(back->inputs[0], "Add");
    if (sum == nullptr || sum->since_version < 7) return id;
    for (const size_t side : {0, 1}) {
      const Node* apart = match_.Producer(sum->inputs[side], "Reshape");
      if (apart == nullptr || !UsedOnce(sum->inputs[side])) continue;
      const ValueId scores = apart->inputs[0], mask = sum->inputs[1 - side];
      if (RankOf(graph_, scores) != rank || RankOf(graph_, mask) != rank + 1) continue;
      const ValueId split = sum->inputs[side];
      bool fits = RankOf(graph_, split) == rank + 1 && KnownDimension(mask, 0) == 1 &&
                  KnownDimension(mask, 1).has_value() &&
                  KnownDimension(mask, 1) == KnownDimension(split, 1);
      for (int axis = 1; fits && axis < rank; ++axis) {
        const auto extent = KnownDimension(scores, axis);
        fits = extent && extent == KnownDimension(split, axis + 1) &&
               extent == KnownDimension(id, axis) &&
               (KnownDimension(mask, axis + 1) == 1 || KnownDimension(mask, axis + 1) == extent);
      }
      if (!fits) continue;
      pattern.window_mask = mask;
      return scores;
    }
    return id;
  }

  std::optional<int64_t> KnownDimension(ValueId id, int axis) const {
    const Dimension& dimension = (*graph_.value(id).type.shape)[static_cast<size_t>(axis)];
    return dimension.known() ? std::optional(dimension.value) : std::nullopt;
  }

  // The product behind what Softmax reads; takes mask and scale.
  const Node* Scores(ValueId id, int rank, Pattern& pattern) const {
    if (!UsedOnce(id)) return nullptr;
    if (const Node* product = ScaledProduct(id, rank, pattern)) return product;
    const Node* sum = match_.Producer(id, "Add");
    if (sum == nullptr || sum->since_version < 7) return nullptr;
    for (const size_t side : {0, 1}) {
      const ValueId mask = sum->inputs[1 - side];
      const auto mask_rank = RankOf(graph_, mask);
      if (!UsedOnce(sum->inputs[side]) || !mask_rank || *mask_rank > rank) continue;
      if (const Node* product = ScaledProduct(sum->inputs[side], rank, pattern)) {
        pattern.mask = mask;
        return product;
      }
    }
    return nullptr;
  }

  const Node* ScaledProduct(ValueId id, int rank, Pattern& pattern) const {
    Pattern scaled = pattern;
    const ValueId inner = Unscaled(id, scaled);
    const Node* product = match_.Producer(inner, "MatMul");
    if (product == nullptr || !UsedOnce(inner) || RankOf(graph_, inner) != rank) return nullptr;
    pattern.scale = scaled.scale;
    return product;
  }

  // What a multiplication by a number reads, if there is one.
  ValueId Unscaled(ValueId id, Pattern& pattern) const {
    if (const auto product = match_.BesideAnyScalar(id, "Mul")) {
      pattern.scale *= product->scalar;
      return product->value;
    }
    if (const auto quotient = match_.BesideAnyScalar(id, "Div")) {
      pattern.scale /= quotient->scalar;
      return quotient->value;
    }
    return id;
  }

  // Keys come transposed: [..., head size, keys].
  bool Keys(ValueId id, int rank, Pattern& pattern) const {
    const ValueId keys = Unscaled(id, pattern);
    const Node* transpose = match_.Producer(keys, "Transpose");
    if (transpose == nullptr) return FlatKeys(keys, rank, pattern);
    if (RankOf(graph_, transpose->inputs[0]) != rank) return false;
    auto order = OrderOf(*transpose, rank);
    if (!order) return false;
    std::swap(order->back(), (*order)[order->size() - 2]);
    if (!KeepsLastAxis(*order)) return false;
    pattern.key = {Unscaled(transpose->inputs[0], pattern), *order};
    return true;
  }

  // As PyTorch's exporter by torch.export transposes them: leading axes merged, and parted again.
  bool FlatKeys(ValueId id, int rank, Pattern& pattern) const {
    const Node* apart = match_.Producer(id, "Reshape");
    if (apart == nullptr) return false;
    const Node* transpose = match_.Producer(apart->inputs[0], "Transpose");
    if (transpose == nullptr || transpose->attributes.Ints("perm") != Order{0, 2, 1}) return false;
    const Node* merged = match_.Producer(transpose->inputs[0], "Reshape");
    if (merged == nullptr) return false;
    const ValueId keys = merged->inputs[0];
    if (RankOf(graph_, keys) != rank || RankOf(graph_, id) != rank) return false;
    int unknown = 0;  // one follows from the others, as the elements are as many
    for (int axis = 0; axis < rank - 2; ++axis) {
      if (!SameExtent(keys, axis, id, axis)) ++unknown;
    }
    for (const int from_end : {1, 2}) {
      if (!SameExtent(keys, rank - from_end, merged->outputs[0], 3 - from_end) ||
          !SameExtent(keys, rank - from_end, id, rank - 3 + from_end)) {
        return false;
      }
    }
    if (unknown > 1) return false;
    pattern.key = Through(Unscaled(keys, pattern), rank);
    return pattern.key.id != kNoValue;
  }

  bool SameExtent(ValueId a, int axis_of_a, ValueId b, int axis_of_b) const {
    const Dimension& x = (*graph_.value(a).type.shape)[static_cast<size_t>(axis_of_a)];
    const Dimension& y = (*graph_.value(b).type.shape)[static_cast<size_t>(axis_of_b)];
    return x == y && (x.known() || !x.symbol.empty());
  }

  View Through(ValueId id, int rank) const {
    if (RankOf(graph_, id) != rank) return {};
    const Node* transpose = match_.Producer(id, "Transpose");
    if (transpose == nullptr) return {id, {}};
    const auto order = OrderOf(*transpose, rank);
    if (!order || !KeepsLastAxis(*order)) return {id, {}};
    return {transpose->inputs[0], *order};
  }

  // Where(IsNaN(p), 0, p): rows without any key give zeros. Returns the value that goes on, `p`
  // when there is no such node.
  ValueId WithoutNan(ValueId weights, Pattern& pattern) const {
    const std::vector<int>& consumers = match_.index().consumers(weights);
    if (match_.index().use_count(weights) != 2 || consumers.size() != 2) return weights;
    for (const int consumer : consumers) {
      const Node& choice = graph_.nodes[static_cast<size_t>(consumer)];
      if (!choice.Is("Where") || choice.inputs[2] != weights) continue;
      const Node* test = match_.Producer(choice.inputs[0], "IsNaN");
      const bool fits = test != nullptr && test->inputs[0] == weights &&
                        UsedOnce(test->outputs[0]) &&
                        ScalarConstant(graph_, choice.inputs[1]) == 0.0f &&
                        RankOf(graph_, choice.outputs[0]) == RankOf(graph_, weights);
      if (!fits) continue;
      pattern.nan_to_zero = true;
      return choice.outputs[0];
    }
    return weights;
  }

  bool Result(const Node& softmax, int rank, Pattern& pattern) const {
    const ValueId weights = WithoutNan(softmax.outputs[0], pattern);
    if (!UsedOnce(weights) || match_.index().consumers(weights).empty()) return false;
    pattern.last = static_cast<size_t>(match_.index().consumers(weights)[0]);
    const Node& product = graph_.nodes[pattern.last];
    if (!product.Is("MatMul") || product.inputs[0] != weights) return false;
    pattern.value = Through(product.inputs[1], rank);
    if (pattern.value.id == kNoValue) return false;
    const ValueId out = product.outputs[0];
    if (!UsedOnce(out) || match_.index().consumers(out).empty()) return true;
    const auto next = static_cast<size_t>(match_.index().consumers(out)[0]);
    if (!graph_.nodes[next].Is("Transpose")) return true;
    const auto order = OrderOf(graph_.nodes[next], rank);
    if (!order || !KeepsLastAxis(*order)) return true;
    pattern.output_order = *order;
    pattern.last = next;
    return true;
  }

  const Graph& graph_;
  GraphMatcher match_;
  const bool halves_;
};

Node FusedNode(const Node& last, const Pattern& pattern) {
  Node node;
  node.name = last.name;
  node.op_type = "FusedAttention";
  node.domain = "onnxd";
  node.since_version = 1;
  node.inputs = {pattern.query.id, pattern.key.id, pattern.value.id};
  if (pattern.mask != kNoValue || pattern.window_mask != kNoValue) {
    node.inputs.push_back(pattern.mask);
  }
  if (pattern.window_mask != kNoValue) node.inputs.push_back(pattern.window_mask);
  node.outputs = last.outputs;
  node.attributes.Set("scale", pattern.scale);
  if (pattern.nan_to_zero) node.attributes.Set("nan_to_zero", int64_t{1});
  const auto set = [&](const char* name, const Order& order) {
    if (!order.empty()) node.attributes.Set(name, order);
  };
  set("query_perm", pattern.query.order);
  set("key_perm", pattern.key.order);
  set("value_perm", pattern.value.order);
  set("output_perm", pattern.output_order);
  return node;
}

class Pass : public GraphPass {
 public:
  explicit Pass(bool halves) : halves_(halves) {}
  std::string_view name() const override { return "attention"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const Matcher matcher(graph, halves_);
    bool changed = false;
    for (const Node& node : graph.nodes) {
      const auto pattern = matcher.Find(node);
      if (!pattern) continue;
      // Everything between loses its only use.
      graph.nodes[pattern->last] = FusedNode(graph.nodes[pattern->last], *pattern);
      changed = true;
    }
    return changed;
  }

 private:
  const bool halves_;
};

}  // namespace

const GraphPass* AttentionFusion(bool halves) {
  static const Pass floats(false), all(true);
  return halves ? &all : &floats;
}

}  // namespace onnxd
