#include "runtime/fusion/rotary_positions.h"

#include <algorithm>
#include <optional>

#include "runtime/graph/graph_match.h"

namespace onnxd {
namespace {

// Half of the elements of a value's last axis, from `first` on, `step` apart.
struct Half {
  ValueId whole = kNoValue;
  int64_t first = 0, step = 1;
};

// A value's elements beside their partners, as onnxd::RotaryPositions has them.
struct Partners {
  ValueId of;
  bool interleaved;
};

struct Rotation {
  ValueId x, cosines, sines;
  bool interleaved;
};

class Matcher {
 public:
  Matcher(const Graph& graph, bool halves) : graph_(graph), match_(graph), halves_(halves) {}

  std::optional<Rotation> Find(const Node& sum) const {
    if (!sum.Is("Add") || sum.since_version < 7 || !Computes(sum.outputs[0])) return std::nullopt;
    for (const size_t side : {0, 1}) {
      const Node* straight = ProductOf(sum.inputs[side]);
      const Node* across = ProductOf(sum.inputs[1 - side]);
      if (straight == nullptr || across == nullptr) continue;
      for (const size_t operand : {0, 1}) {
        const auto partners = PartnersOf(across->inputs[operand]);
        if (!partners) continue;
        const ValueId cosines = GraphMatcher::OtherOperand(*straight, partners->of);
        const ValueId sines = across->inputs[1 - operand];
        const auto size = LastDimension(partners->of);
        if (cosines == kNoValue || LastDimension(cosines) != size || LastDimension(sines) != size) {
          continue;
        }
        return Rotation{partners->of, cosines, sines, partners->interleaved};
      }
    }
    return std::nullopt;
  }

 private:
  bool Computes(ValueId id) const {
    const DataType type = graph_.value(id).type.element;
    const bool half = type == DataType::kFloat16 || type == DataType::kBfloat16;
    return IsFloat(graph_, id) || (halves_ && half);
  }

  bool UsedOnce(ValueId id) const { return match_.index().use_count(id) == 1; }

  // By an operator that nothing else reads.
  const Node* Lone(ValueId id, std::string_view op_type) const {
    return UsedOnce(id) ? match_.Producer(id, op_type) : nullptr;
  }

  const Node* ProductOf(ValueId id) const {
    const Node* product = Lone(id, "Mul");
    return product != nullptr && product->since_version >= 7 ? product : nullptr;
  }

  std::optional<int64_t> LastDimension(ValueId id) const {
    const auto& shape = graph_.value(id).type.shape;
    if (!shape || shape->empty() || !shape->back().known()) return std::nullopt;
    return shape->back().value;
  }

  bool IsLastAxis(int64_t axis, ValueId id) const {
    const auto rank = RankOf(graph_, id);
    return rank && (axis == -1 || axis == *rank - 1);
  }

  std::optional<Partners> PartnersOf(ValueId id) const {
    if (const Node* concat = JoinedOnLastAxis(id)) {
      const Half half = HalfBefore(concat->inputs[0], concat->inputs[1], false);
      if (half.whole != kNoValue) return Partners{half.whole, false};
    }
    const Node* reshape = Lone(id, "Reshape");
    const Node* concat = reshape == nullptr ? nullptr : JoinedOnLastAxis(reshape->inputs[0]);
    if (concat == nullptr) return std::nullopt;
    const ValueId first = WithoutNewAxis(concat->inputs[0]);
    const ValueId second = WithoutNewAxis(concat->inputs[1]);
    if (first == kNoValue || second == kNoValue) return std::nullopt;
    const Half half = HalfBefore(first, second, true);
    if (half.whole == kNoValue || !SameKnownShape(graph_, half.whole, id)) return std::nullopt;
    return Partners{half.whole, true};
  }

  const Node* JoinedOnLastAxis(ValueId id) const {
    const Node* concat = Lone(id, "Concat");
    const bool joins = concat != nullptr && concat->inputs.size() == 2 &&
                       IsLastAxis(concat->attributes.Int("axis", 0), id);
    return joins ? concat : nullptr;
  }

  // What Unsqueeze gave a last axis of one element.
  ValueId WithoutNewAxis(ValueId id) const {
    const Node* unsqueeze = Lone(id, "Unsqueeze");
    if (unsqueeze == nullptr) return kNoValue;
    const auto axes = unsqueeze->since_version >= 13
                          ? IntsConstant(graph_, unsqueeze->input(1))
                          : std::optional(unsqueeze->attributes.Ints("axes"));
    return axes && axes->size() == 1 && IsLastAxis((*axes)[0], id) ? unsqueeze->inputs[0]
                                                                   : kNoValue;
  }

  // The first half of what has the other one, negated, before it; of no value if it is not so.
  Half HalfBefore(ValueId negated, ValueId straight, bool interleaved) const {
    const Node* neg = Lone(negated, "Neg");
    const auto first = neg == nullptr ? std::nullopt : HalfOf(straight);
    const auto second = neg == nullptr ? std::nullopt : HalfOf(neg->inputs[0]);
    if (!first || !second || first->whole != second->whole) return {};
    const int64_t half = *LastDimension(first->whole) / 2;
    const int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
    const bool fits =
        first->first == 0 && second->first == apart && first->step == step && second->step == step;
    return fits ? *first : Half{};
  }

  std::optional<Half> HalfOf(ValueId id) const {
    if (const Node* split = match_.Producer(id, "Split")) return HalfOfSplit(*split, id);
    const Node* slice = match_.Producer(id, "Slice");
    if (slice == nullptr || slice->since_version < 10) return std::nullopt;
    const ValueId whole = slice->inputs[0];
    const auto size = LastDimension(whole);
    const auto starts = IntsConstant(graph_, slice->input(1));
    const auto ends = IntsConstant(graph_, slice->input(2));
    const auto axes = IntsConstant(graph_, slice->input(3));
    const auto steps = slice->input(4) == kNoValue ? std::optional(std::vector<int64_t>{1})
                                                   : IntsConstant(graph_, slice->input(4));
    if (!size || !starts || !ends || !axes || !steps) return std::nullopt;
    if (starts->size() != 1 || ends->size() != 1 || axes->size() != 1 || steps->size() != 1) {
      return std::nullopt;
    }
    if (!IsLastAxis((*axes)[0], whole) || (*steps)[0] < 1) return std::nullopt;
    const auto position = [&](int64_t given) {
      return std::clamp<int64_t>(given < 0 ? given + *size : given, 0, *size);
    };
    const int64_t first = position((*starts)[0]), end = position((*ends)[0]), step = (*steps)[0];
    if (step > 2 || (end - first + step - 1) / step * 2 != *size) return std::nullopt;
    return Half{whole, first, step};
  }

  std::optional<Half> HalfOfSplit(const Node& split, ValueId id) const {
    const ValueId whole = split.inputs[0];
    const auto size = LastDimension(whole), part = LastDimension(id);
    const bool fits = split.outputs.size() == 2 && size && part && *part * 2 == *size &&
                      IsLastAxis(split.attributes.Int("axis", 0), whole);
    if (!fits) return std::nullopt;
    return Half{whole, id == split.outputs[0] ? 0 : *part, 1};
  }

  const Graph& graph_;
  const GraphMatcher match_;
  const bool halves_;
};

class Pass : public GraphPass {
 public:
  explicit Pass(bool halves) : halves_(halves) {}
  std::string_view name() const override { return "rotary_positions"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const Matcher matcher(graph, halves_);
    bool changed = false;
    for (Node& node : graph.nodes) {
      const auto rotation = matcher.Find(node);
      if (!rotation) continue;
      // What is between loses its only use.
      node.op_type = "RotaryPositions";
      node.domain = "onnxd";
      node.since_version = 1;
      node.inputs = {rotation->x, rotation->cosines, rotation->sines};
      node.attributes = Attributes();
      node.attributes.Set("interleaved", int64_t{rotation->interleaved});
      changed = true;
    }
    return changed;
  }

 private:
  const bool halves_;
};

}  // namespace

const GraphPass* RotaryPositionsFusion(bool halves) {
  static const Pass floats(false), all(true);
  return halves ? &all : &floats;
}

}  // namespace onnxd
