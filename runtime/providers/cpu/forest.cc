#include "runtime/providers/cpu/forest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/math/simd.h"

namespace onnxd {
namespace {

constexpr int64_t kFewTrees = 4;  // that leave most lanes to rows

// What a node says of a value: where all ask alike, and where any does.
struct IsLeq {
  template <typename T, typename Block>
  static uint32_t Of(T x, const Block& block, uint32_t node) {
    return x <= block.splits[node] ? 1 : 0;
  }
};
struct IsLess {
  template <typename T, typename Block>
  static uint32_t Of(T x, const Block& block, uint32_t node) {
    return x < block.splits[node] ? 1 : 0;
  }
};
struct IsOutcome {
  template <typename T, typename Block>
  static uint32_t Of(T x, const Block& block, uint32_t node) {
    const T split = block.splits[node];
    const uint32_t found = (x <= split ? 1u : 0u) + (x >= split ? 2u : 0u);
    return block.nodes[node] / math::kTreeNan >> found & 1u;
  }
};

// What becomes of the exits that a row takes.
struct LeafList {
  uint32_t* leaves;  // and room for one more
  size_t found = 0;
  void Take(int, uint32_t leaf) {
    leaves[found] = leaf;
    found += leaf >> 31;
  }
};
struct LeafSum {
  double sum = 0;
  void Take(int, uint32_t leaf) { sum += static_cast<double>(std::bit_cast<float>(leaf)); }
};
struct LeafEach {
  uint32_t* leaves;  // of as many rows as there are lanes, all 0
  void Take(int lane, uint32_t leaf) { leaves[lane] |= leaf; }
};

template <typename T>
const math::TreeLoops<T>& LoopsOf(const math::Simd& simd) {
  if constexpr (std::is_same_v<T, float>) {
    return simd.float_trees;
  } else {
    return simd.double_trees;
  }
}

size_t IndexOf(uint32_t leaf) { return leaf & ~math::kTreeLeaf; }

// Add a leaf's weights to the scores of a row; `leaf` is as exits have it.
template <typename T, int numbers>
struct DenseWeights {
  static constexpr int kNumbers = numbers;  // that are added up by themselves; 0: with the scores
  const T* dense;
  void Add(uint32_t leaf, double* scores) const {
    const T* weights = dense + IndexOf(leaf) * kNumbers;
    for (int t = 0; t < kNumbers; ++t) scores[t] += static_cast<double>(weights[t]);
  }
};
struct WeightsInExits {
  static constexpr int kNumbers = 0;
  void Add(uint32_t leaf, double* score) const {
    *score += static_cast<double>(std::bit_cast<float>(leaf));
  }
};
template <typename Weight>
struct OneWeight {
  static constexpr int kNumbers = 0;
  const Weight* weights;
  void Add(uint32_t leaf, double* scores) const {
    const Weight& weight = weights[IndexOf(leaf)];
    scores[weight.target] += static_cast<double>(weight.value);
  }
};
template <typename Weight>
struct ListedWeights {
  static constexpr int kNumbers = 0;
  const uint32_t* ranges;
  const Weight* weights;
  TreeAggregate aggregate;
  void Add(uint32_t leaf, double* scores) const {
    for (uint32_t i = ranges[IndexOf(leaf)]; i < ranges[IndexOf(leaf) + 1]; ++i) {
      double& score = scores[weights[i].target];
      const auto weight = static_cast<double>(weights[i].value);
      if (aggregate == TreeAggregate::kMin) {
        score = std::isnan(score) ? weight : std::min(score, weight);
      } else if (aggregate == TreeAggregate::kMax) {
        score = std::isnan(score) ? weight : std::max(score, weight);
      } else {
        score += weight;
      }
    }
  }
};

}  // namespace

// From roots to ends; row_of(lane) is what that lane compares.
template <typename T>
template <typename Test, typename RowOf, typename Leaves>
void Forest<T>::Walk(const uint32_t* roots, const RowOf& row_of, Leaves& leaves) const {
  constexpr size_t kScale = sizeof(Block) / math::kTreeExitBytes;
  const auto* blocks = reinterpret_cast<const std::byte*>(blocks_.data());
  const auto* exits = reinterpret_cast<const std::byte*>(exits_.data());
  uint32_t at[math::kTreeLanes];
  std::copy_n(roots, math::kTreeLanes, at);
  for (uint32_t walking = 1; walking != 0;) {
    walking = 0;
#pragma GCC unroll 8
    for (int lane = 0; lane < math::kTreeLanes; ++lane) {
      uint32_t& name = at[lane];
      const T* row = row_of(lane);
      const auto& block = *reinterpret_cast<const Block*>(blocks + size_t{name} * kScale);
      uint32_t node = 0;
#pragma GCC unroll 3
      for (int level = 0; level < 3; ++level) {
        const T x = row[block.nodes[node] & (math::kTreeColumns - 1)];
        node = 2 * node + 2 - Test::Of(x, block, node);
      }
      const auto* first = reinterpret_cast<const math::TreeExit*>(exits + name);
      const math::TreeExit& exit = first[node - math::kTreeNodes];
      leaves.Take(lane, exit.leaf);
      name = exit.next;
      walking |= name;
    }
  }
}

// Walks by whichever loop suits the trees and the processor.
template <typename T>
class Forest<T>::Walker {
 public:
  virtual ~Walker() = default;
  // Writes the leaves of a row, as exits have them, and one number more; returns how many.
  virtual size_t Leaves(const Group& group, const T* row, uint32_t* leaves) const = 0;
  // Where exits have weights.
  virtual double Sum(const Group& group, const T* row) const = 0;
  // Of one tree, the leaf of each of as many rows as there are lanes.
  virtual void Rows(uint32_t root, const T* rows, int64_t width, uint32_t* leaves) const = 0;
};

template <typename T>
template <typename Test>
class Forest<T>::NodeWalker final : public Walker {
 public:
  explicit NodeWalker(const Forest& forest) : forest_(forest) {}
  size_t Leaves(const Group& group, const T* row, uint32_t* leaves) const override {
    LeafList list{leaves};
    forest_.Walk<Test>(
        group.roots, [=](int) { return row; }, list);
    return list.found;
  }
  double Sum(const Group& group, const T* row) const override {
    LeafSum sum;
    forest_.Walk<Test>(
        group.roots, [=](int) { return row; }, sum);
    return sum.sum;
  }
  void Rows(uint32_t root, const T* rows, int64_t width, uint32_t* leaves) const override {
    uint32_t roots[math::kTreeLanes];
    std::fill_n(roots, math::kTreeLanes, root);
    std::fill_n(leaves, math::kTreeLanes, 0);
    LeafEach each{leaves};
    forest_.Walk<Test>(
        roots, [=](int lane) { return rows + lane * width; }, each);
  }

 private:
  const Forest& forest_;
};

template <typename T>
class Forest<T>::BlockWalker final : public Walker {
 public:
  BlockWalker(const Forest& forest, const math::TreeLoops<T>& loops)
      : loops_(loops), walk_{forest.blocks_.data(),
                             forest.exits_.data()->exits,
                             nullptr,
                             forest.all_less_,
                             forest.missing_,
                             forest.features_} {}
  size_t Leaves(const Group& group, const T* row, uint32_t* leaves) const override {
    return loops_.leaves(From(group.roots), row, leaves);
  }
  double Sum(const Group& group, const T* row) const override {
    return loops_.sum(From(group.roots), row);
  }
  void Rows(uint32_t root, const T* rows, int64_t width, uint32_t* leaves) const override {
    uint32_t roots[math::kTreeLanes];
    std::fill_n(roots, math::kTreeLanes, root);
    loops_.rows(From(roots), rows, width, leaves);
  }

 private:
  math::TreeWalk<T> From(const uint32_t* roots) const {
    math::TreeWalk<T> walk = walk_;
    walk.roots = roots;
    return walk;
  }

  const math::TreeLoops<T>& loops_;
  const math::TreeWalk<T> walk_;
};

template <typename T>
template <typename Weights>
void Forest<T>::AddByTrees(const Rows& rows, const Walker& walker, const Weights& weights,
                           double* scores) const {
  constexpr int kNumbers = Weights::kNumbers;
  uint32_t leaves[kMostInGroup + 1];
  for (const Group& group : groups_) {
    for (int64_t row = 0; row < rows.count; ++row) {
      const size_t found = walker.Leaves(group, rows.At(row), leaves);
      double* sums = scores + row * targets_;
      double local[2][std::max(kNumbers, 1)] = {};  // sums that do not wait for each other
      for (size_t i = 0; i < found; ++i) {
        weights.Add(leaves[i], kNumbers > 0 ? local[i % 2] : sums);
      }
      for (int64_t t = 0; kNumbers > 0 && t < targets_; ++t) sums[t] += local[0][t] + local[1][t];
    }
  }
}

// Of few trees: each by some rows at once, the last of which may have been there before.
template <typename T>
template <typename Weights>
void Forest<T>::AddByRows(const Rows& rows, const Walker& walker, const Weights& weights,
                          double* scores) const {
  constexpr int kNumbers = Weights::kNumbers;
  for (int64_t begin = 0; begin < rows.count; begin += math::kTreeLanes) {
    const int64_t first = std::min<int64_t>(begin, rows.count - math::kTreeLanes);
    for (int64_t tree = 0; tree < trees_; ++tree) {
      uint32_t leaves[math::kTreeLanes];
      walker.Rows(groups_[0].roots[tree], rows.At(first), rows.width, leaves);
      for (int64_t lane = begin - first; lane < math::kTreeLanes; ++lane) {
        double* sums = scores + (first + lane) * targets_;
        double local[std::max(kNumbers, 1)] = {};
        weights.Add(leaves[lane], kNumbers > 0 ? local : sums);
        for (int64_t t = 0; kNumbers > 0 && t < targets_; ++t) sums[t] += local[t];
      }
    }
  }
}

template <typename T>
void Forest<T>::AddSums(const Rows& rows, const Walker& walker, double* scores) const {
  if (AreFew(rows)) return AddByRows(rows, walker, WeightsInExits(), scores);
  for (const Group& group : groups_) {
    for (int64_t row = 0; row < rows.count; ++row) scores[row] += walker.Sum(group, rows.At(row));
  }
}

template <typename T>
bool Forest<T>::AreFew(const Rows& rows) const {
  return trees_ <= kFewTrees && rows.count >= math::kTreeLanes;
}

template <typename T>
void Forest<T>::AddScores(const Rows& rows, const Walker& walker, double* scores) const {
  const auto add = [&](const auto& weights) {
    if (AreFew(rows)) return AddByRows(rows, walker, weights, scores);
    AddByTrees(rows, walker, weights, scores);
  };
  if (exits_have_weights_) return AddSums(rows, walker, scores);
  if (row_ == 1) return add(DenseWeights<T, 1>{dense_.data()});
  if (row_ == 4) return add(DenseWeights<T, 4>{dense_.data()});
  if (row_ == 8) return add(DenseWeights<T, 8>{dense_.data()});
  if (one_each_) return add(OneWeight<Weight>{weights_.data()});
  add(ListedWeights<Weight>{ranges_.data(), weights_.data(), aggregate_});
}

template <typename T>
void Forest<T>::AddScores(const Rows& rows, double* scores) const {
  const bool alike = all_less_ || all_leq_;
  const math::TreeLoops<T>& loops = LoopsOf<T>(math::CurrentSimd());
  if (alike && loops.leaves != nullptr) return AddScores(rows, BlockWalker(*this, loops), scores);
  if (!alike || missing_) return AddScores(rows, NodeWalker<IsOutcome>(*this), scores);
  if (all_less_) return AddScores(rows, NodeWalker<IsLess>(*this), scores);
  AddScores(rows, NodeWalker<IsLeq>(*this), scores);
}

template <typename T>
void Forest<T>::Score(const T* rows, int64_t count, int64_t width, double* scores) const {
  const bool extreme = aggregate_ == TreeAggregate::kMin || aggregate_ == TreeAggregate::kMax;
  constexpr double kUntouched = std::numeric_limits<double>::quiet_NaN();
  std::fill_n(scores, count * targets_, extreme ? kUntouched : 0.0);
  AddScores({rows, count, width}, scores);
  for (int64_t i = 0; i < count * targets_; ++i) {
    if (aggregate_ == TreeAggregate::kAverage && trees_ > 0) {
      scores[i] /= static_cast<double>(trees_);
    } else if (extreme && std::isnan(scores[i])) {
      scores[i] = 0;
    }
  }
}

template class Forest<float>;
template class Forest<double>;

}  // namespace onnxd
