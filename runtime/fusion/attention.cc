#include "runtime/fusion/attention.h"

#include <cmath>
#include <compare>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "runtime/graph/graph_match.h"
#include "runtime/graph/node_writer.h"

namespace onnxd {
namespace {

using Order = std::vector<int64_t>;

constexpr float kFarBelow = -1e9f;  // as Keras has it
constexpr float kLowest = -1e30f;   // scores that are added are lost in its rounding

// An operand as the kernel reads it: through an order of axes, empty when that changes nothing.
// `turned`: the order of a Transpose that it needs before, as the kernel keeps the last axis.
struct View {
  ValueId id = kNoValue;
  Order order;
  Order turned = {};
};

// What is added to scores; or a condition where they stay, or do not, and are far below others
// elsewhere.
struct Mask {
  ValueId id = kNoValue;
  enum class Kind { kAdded, kStays, kGoes } kind = Kind::kAdded;
  bool infinite = false;  // what they are elsewhere

  auto operator<=>(const Mask&) const = default;
};

struct Pattern {
  View query, key, value;
  std::vector<Mask> masks;  // to be added to each other
  ValueId window_mask = kNoValue;
  float scale = 1.0f;
  ValueId head_scale = kNoValue;  // numbers that the queries of a head are multiplied by
  bool nan_to_zero = false;
  size_t last = 0;  // the node that gives the result
  Order output_order;
  bool turned_result = false;  // [..., value size, queries]
};

std::optional<Order> OrderOf(const Node& transpose, int rank) {
  Order order = transpose.attributes.Ints("perm");
  if (static_cast<int>(order.size()) != rank) return std::nullopt;
  return order;
}

bool KeepsLastAxis(const Order& order) {
  return order.back() == static_cast<int64_t>(order.size()) - 1;
}

// That exchanges the last two axes.
Order Turning(int rank) {
  Order order(static_cast<size_t>(rank));
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[order.size() - 2], order.back());
  return order;
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
    pattern.query = Query(Unscaled(scores->inputs[0], pattern), *rank, pattern);
    if (pattern.query.id == kNoValue || !(pattern.scale > 0)) return std::nullopt;
    // Numbers for heads multiply what has heads first.
    if (pattern.head_scale != kNoValue && !pattern.query.order.empty()) {
      pattern.query.turned = std::exchange(pattern.query.order, {});
    }
    if (!Result(softmax, *rank, pattern)) return std::nullopt;
    return PaysFor(pattern, *scores, *rank) ? std::optional(pattern) : std::nullopt;
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

  // The product behind what Softmax reads; takes up to two masks, and scales.
  const Node* Scores(ValueId id, int rank, Pattern& pattern) const {
    if (!UsedOnce(id)) return nullptr;
    if (const Node* product = ScaledProduct(id, rank, pattern)) return product;
    if (const Node* choice = match_.Producer(id, "Where")) return Chosen(*choice, rank, pattern);
    const Node* sum = match_.Producer(id, "Add");
    if (sum == nullptr || sum->since_version < 7) return nullptr;
    for (const size_t side : {0, 1}) {
      const Mask mask{sum->inputs[1 - side]};
      if (const Node* product = Masked(sum->inputs[side], mask, rank, pattern)) return product;
    }
    return nullptr;
  }

  // Where(stays, scores, low) or Where(goes, low, scores) of a number that is far below any score.
  // Scores plus one that is still lower leave the same weights, also where no key stays; but then
  // not beside another mask.
  const Node* Chosen(const Node& choice, int rank, Pattern& pattern) const {
    for (const size_t side : {1, 2}) {
      const ValueId scores = choice.inputs[side];
      const auto low = ScalarConstant(graph_, choice.inputs[3 - side]);
      if (!low || *low > kFarBelow || !IsFloat(graph_, scores)) continue;
      if (!SameKnownShape(graph_, scores, choice.outputs[0])) continue;
      const Mask mask{choice.inputs[0], side == 1 ? Mask::Kind::kStays : Mask::Kind::kGoes,
                      std::isinf(*low)};
      if (const Node* product = Masked(scores, mask, rank, pattern)) return product;
    }
    return nullptr;
  }

  const Node* Masked(ValueId scores, const Mask& mask, int rank, Pattern& pattern) const {
    const auto mask_rank = RankOf(graph_, mask.id);
    if (!UsedOnce(scores) || !mask_rank || *mask_rank > rank) return nullptr;
    const auto stands_alone = [](const Mask& m) {
      return m.kind != Mask::Kind::kAdded && !m.infinite;
    };
    if (pattern.masks.size() == 2) return nullptr;
    if (pattern.masks.size() == 1 && (stands_alone(mask) || stands_alone(pattern.masks[0])))
      return nullptr;
    Pattern masked = pattern;
    masked.masks.push_back(mask);
    const Node* product = Scores(scores, rank, masked);
    if (product != nullptr) pattern = std::move(masked);
    return product;
  }

  const Node* ScaledProduct(ValueId id, int rank, Pattern& pattern) const {
    Pattern scaled = pattern;
    const ValueId inner = WithoutHeadScale(Unscaled(id, scaled), rank, scaled);
    const Node* product = match_.Producer(inner, "MatMul");
    if (product == nullptr || !UsedOnce(inner) || RankOf(graph_, inner) != rank) return nullptr;
    pattern = std::move(scaled);
    return product;
  }

  // What a multiplication by a number for each head reads, if there is one.
  ValueId WithoutHeadScale(ValueId id, int rank, Pattern& pattern) const {
    const Node* product = UsedOnce(id) ? match_.Producer(id, "Mul") : nullptr;
    if (product == nullptr || product->since_version < 7) return id;
    for (const size_t side : {0, 1}) {
      const ValueId numbers = product->inputs[1 - side];
      const auto own = RankOf(graph_, numbers);
      if (!own || *own < 2 || *own > rank || RankOf(graph_, product->inputs[side]) != rank)
        continue;
      if (KnownDimension(numbers, *own - 1) != 1 || KnownDimension(numbers, *own - 2) != 1)
        continue;
      pattern.head_scale = numbers;
      return product->inputs[side];
    }
    return id;
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
    pattern.key = Turned(keys, rank);
    if (!pattern.key.order.empty()) pattern.key.id = Unscaled(pattern.key.id, pattern);
    return pattern.key.id != kNoValue;
  }

  // What is [..., b, a] here is read as [..., a, b]: through a Transpose that is there, or by one.
  View Turned(ValueId id, int rank) const {
    if (RankOf(graph_, id) != rank) return {};
    const Node* transpose = match_.Producer(id, "Transpose");
    auto order = transpose == nullptr ? std::nullopt : OrderOf(*transpose, rank);
    if (order) std::swap(order->back(), (*order)[order->size() - 2]);
    if (order && KeepsLastAxis(*order)) return {transpose->inputs[0], *order};
    return {id, {}, Turning(rank)};
  }

  View Query(ValueId id, int rank, Pattern& pattern) const {
    const View view = Through(id, rank);
    const Node* transpose = view.order.empty() ? match_.Producer(id, "Transpose") : nullptr;
    const auto order = transpose == nullptr ? std::nullopt : OrderOf(*transpose, rank);
    if (!order) return view;
    // A factor before the transposition would be multiplied with on the way.
    const ValueId plain = Unscaled(transpose->inputs[0], pattern);
    return plain == transpose->inputs[0] ? view : View{plain, {}, *order};
  }

  // Transpositions and factors of the operands cost less than what the scores would, which no
  // memory sees any more.
  bool PaysFor(const Pattern& pattern, const Node& scores, int rank) const {
    const auto queries = KnownDimension(scores.outputs[0], rank - 2);
    const auto keys = KnownDimension(scores.outputs[0], rank - 1);
    const auto size = KnownDimension(scores.inputs[0], rank - 1);
    const bool turns = !pattern.key.turned.empty() || !pattern.value.turned.empty();
    if (turns && !(queries && size && *queries >= *size)) return false;
    return pattern.head_scale == kNoValue || (keys && size && *keys >= *size);
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
    const Node& consumer = graph_.nodes[pattern.last];
    if (consumer.Is("Transpose")) return TurnedResult(consumer, rank, pattern);
    if (!consumer.Is("MatMul") || consumer.inputs[0] != weights) return false;
    pattern.value = Through(consumer.inputs[1], rank);
    TakeOutputOrder(consumer.outputs[0], rank, pattern);
    return pattern.value.id != kNoValue;
  }

  // The other way round: values [..., value size, keys] times weights [..., keys, queries].
  bool TurnedResult(const Node& transpose, int rank, Pattern& pattern) const {
    const ValueId weights = transpose.outputs[0];
    if (OrderOf(transpose, rank) != Turning(rank) || !UsedOnce(weights)) return false;
    if (match_.index().consumers(weights).empty()) return false;
    pattern.last = static_cast<size_t>(match_.index().consumers(weights)[0]);
    const Node& product = graph_.nodes[pattern.last];
    if (!product.Is("MatMul") || product.inputs[1] != weights) return false;
    pattern.value = Turned(product.inputs[0], rank);
    pattern.turned_result = true;
    TakeOutputOrder(product.outputs[0], rank, pattern);
    return pattern.value.id != kNoValue;
  }

  // Of a Transpose that alone reads the result.
  void TakeOutputOrder(ValueId out, int rank, Pattern& pattern) const {
    if (!UsedOnce(out) || match_.index().consumers(out).empty()) return;
    const auto next = static_cast<size_t>(match_.index().consumers(out)[0]);
    if (!graph_.nodes[next].Is("Transpose")) return;
    auto order = OrderOf(graph_.nodes[next], rank);
    if (!order) return;
    if (pattern.turned_result) {
      for (int64_t& axis : *order) axis = Turning(rank)[static_cast<size_t>(axis)];
    }
    if (!KeepsLastAxis(*order)) return;
    pattern.output_order = *order;
    pattern.turned_result = false;
    pattern.last = next;
  }

  const Graph& graph_;
  GraphMatcher match_;
  const bool halves_;
};

// Writes the nodes that stand for patterns.
class Writer {
 public:
  Writer(Graph& graph, std::vector<Node>& nodes) : graph_(graph), nodes_(nodes) {}

  void Write(const Node& last, const Pattern& pattern) {
    const std::string name = graph_.value(last.outputs[0]).name;  // values move as some are added
    Node node;
    node.name = last.name;
    node.op_type = "FusedAttention";
    node.domain = "onnxd";
    node.since_version = 1;
    node.inputs = {Query(pattern, name + "_query"), Operand(pattern.key, name + "_key"),
                   Operand(pattern.value, name + "_value")};
    const ValueId mask = SumOfMasks(pattern, name + "_mask");
    if (mask != kNoValue || pattern.window_mask != kNoValue) node.inputs.push_back(mask);
    if (pattern.window_mask != kNoValue) node.inputs.push_back(pattern.window_mask);
    node.outputs = last.outputs;
    node.attributes.Set("scale", pattern.scale);
    if (pattern.nan_to_zero) node.attributes.Set("nan_to_zero", int64_t{1});
    const auto set = [&](const char* attribute, const Order& order) {
      if (!order.empty()) node.attributes.Set(attribute, order);
    };
    set("query_perm", pattern.query.order);
    set("key_perm", pattern.key.order);
    set("value_perm", pattern.value.order);
    set("output_perm", pattern.output_order);
    if (!pattern.turned_result) {
      nodes_.push_back(std::move(node));
      return;
    }
    node.outputs = {graph_.AddUniqueValue(name + "_turned")};
    const ValueId turned = node.outputs[0];
    const auto rank = static_cast<int>(*RankOf(graph_, last.outputs[0]));
    nodes_.push_back(std::move(node));
    NodeWriter(graph_, nodes_, name)
        .AddTo(last.outputs[0], "Transpose", {turned}, NodeWriter::Order(Turning(rank)));
  }

 private:
  ValueId Operand(const View& view, const std::string& name) {
    if (view.turned.empty()) return view.id;
    return NodeWriter(graph_, nodes_, name).Transposed(view.id, view.turned);
  }

  ValueId Query(const Pattern& pattern, const std::string& name) {
    const ValueId query = Operand(pattern.query, name);
    if (pattern.head_scale == kNoValue) return query;
    return NodeWriter(graph_, nodes_, name).Add("Mul", {query, pattern.head_scale});
  }

  // Layers that add the same two masks share their sum.
  ValueId SumOfMasks(const Pattern& pattern, const std::string& name) {
    if (pattern.masks.empty()) return kNoValue;
    if (pattern.masks.size() == 1) return Numbers(pattern.masks[0], name);
    const auto [sum, added] =
        sums_.emplace(std::pair(pattern.masks[0], pattern.masks[1]), kNoValue);
    if (!added) return sum->second;
    const ValueId first = Numbers(pattern.masks[0], name + "_first");
    const ValueId second = Numbers(pattern.masks[1], name + "_second");
    return sum->second = NodeWriter(graph_, nodes_, name).Add("Add", {first, second});
  }

  // Layers with the same condition share what is added for it.
  ValueId Numbers(const Mask& mask, const std::string& name) {
    if (mask.kind == Mask::Kind::kAdded) return mask.id;
    const auto [numbers, added] = numbers_.emplace(mask, kNoValue);
    if (!added) return numbers->second;
    const float low = mask.infinite ? -std::numeric_limits<float>::infinity() : kLowest;
    const ValueId stays = graph_.AddInitializer(name + "_stays", Tensor::Scalar(0.0f));
    const ValueId goes = graph_.AddInitializer(name + "_goes", Tensor::Scalar(low));
    std::vector<ValueId> inputs = {mask.id, stays, goes};
    if (mask.kind == Mask::Kind::kGoes) std::swap(inputs[1], inputs[2]);
    return numbers->second = NodeWriter(graph_, nodes_, name).Add("Where", std::move(inputs));
  }

  Graph& graph_;
  std::vector<Node>& nodes_;
  std::map<Mask, ValueId> numbers_;
  std::map<std::pair<Mask, Mask>, ValueId> sums_;
};

class Pass : public GraphPass {
 public:
  explicit Pass(bool halves) : halves_(halves) {}
  std::string_view name() const override { return "attention"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const std::map<size_t, Pattern> patterns = Find(graph);
    if (patterns.empty()) return false;
    std::vector<Node> nodes;
    Writer writer(graph, nodes);
    for (size_t position = 0; position < graph.nodes.size(); ++position) {
      const auto pattern = patterns.find(position);
      if (pattern == patterns.end()) {
        nodes.push_back(std::move(graph.nodes[position]));
      } else {
        // Everything between loses its only use.
        writer.Write(graph.nodes[position], pattern->second);
      }
    }
    graph.nodes = std::move(nodes);
    return true;
  }

 private:
  // By the position of the last node of each.
  std::map<size_t, Pattern> Find(const Graph& graph) const {
    const Matcher matcher(graph, halves_);
    std::map<size_t, Pattern> patterns;
    for (const Node& node : graph.nodes) {
      if (auto pattern = matcher.Find(node)) patterns.emplace(pattern->last, std::move(*pattern));
    }
    return patterns;
  }

  const bool halves_;
};

}  // namespace

const GraphPass* AttentionFusion(bool halves) {
  static const Pass floats(false), all(true);
  return halves ? &all : &floats;
}

}  // namespace onnxd
