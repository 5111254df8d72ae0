#include "runtime/providers/cpu/forest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"

namespace onnxd {
namespace {

constexpr size_t kMostBlocks = size_t{1} << 26;  // names of blocks have 32 bits
constexpr size_t kMostNodes = size_t{1} << 28;
constexpr size_t kTreesInGroup = 512, kLeastInGroup = 32, kGroupBlocks = 4096;
constexpr int64_t kFewTrees = 4;  // that leave most lanes to rows

uint32_t OutcomesOf(TreeMode mode) {
  switch (mode) {
    case TreeMode::kLeq:
      return math::kTreeLess | math::kTreeEqual;
    case TreeMode::kLt:
      return math::kTreeLess;
    case TreeMode::kGte:
      return math::kTreeGreater | math::kTreeEqual;
    case TreeMode::kGt:
      return math::kTreeGreater;
    case TreeMode::kNeq:
      return math::kTreeNan | math::kTreeLess | math::kTreeGreater;
    case TreeMode::kEq:
    case TreeMode::kMember:
      return math::kTreeEqual;
  }
  return 0;
}

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

// Add a leaf's weights to the scores of a row; `leaf` is as exits have it.
size_t IndexOf(uint32_t leaf) { return leaf & ~math::kTreeLeaf; }

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

// Cuts trees into blocks of three levels.
template <typename T>
class ForestBuilder {
 public:
  explicit ForestBuilder(const TreeList<T>& list) : list_(list) {}

  Result<Forest<T>> Build() {
    ONNXD_RETURN_IF_ERROR(CheckSizes());
    seen_.assign(list_.nodes.size(), false);
    forest_.blocks_.reserve(list_.nodes.size() / 3 + list_.roots.size() + 1);
    forest_.exits_.reserve(forest_.blocks_.capacity());
    AddBlock();  // where walks end
    for (const Branch& root : list_.roots) {
      tree_begins_.push_back(forest_.blocks_.size());
      ONNXD_RETURN_IF_ERROR(AddTree(root));
    }
    tree_begins_.push_back(forest_.blocks_.size());
    AddGroups();
    AddWeights();
    forest_.targets_ = list_.targets;
    forest_.aggregate_ = list_.aggregate;
    return std::move(forest_);
  }

 private:
  using Branch = typename TreeList<T>::Branch;
  using Node = typename TreeList<T>::Node;

  // What follows an answer: a node or a leaf of the list, or a block.
  struct Target {
    Branch at;
    uint32_t block = 0;  // its name; 0: `at`
    // Of a node that asks for a set: which member is next, and the block that the first one's yes
    // led to, if that is no leaf.
    size_t member = 0;
    uint32_t yes = 0;
  };
  struct Open {
    Target target;
    size_t block;  // that it is to begin
  };

  Status CheckSizes() const {
    size_t total = list_.roots.size() + 1;
    for (const Node& node : list_.nodes) {
      total += std::max<size_t>(node.members.size(), 1);
      if (total > kMostNodes) return InvalidArgument("the trees have more than 2^28 nodes");
    }
    if (list_.weights.size() > kMostNodes) return InvalidArgument("more than 2^28 leaf weights");
    for (const auto& weight : list_.weights) {
      if (weight.target < 0 || weight.target >= list_.targets) {
        return InvalidArgument(StrCat("a leaf's target ", weight.target, " of ", list_.targets));
      }
    }
    return Status::Ok();
  }

  static uint32_t NameOf(size_t block) {
    return static_cast<uint32_t>(block * math::kTreeExitBytes);
  }

  size_t AddBlock() {
    forest_.blocks_.push_back({});
    std::fill_n(forest_.blocks_.back().splits, 8, std::numeric_limits<T>::quiet_NaN());
    forest_.exits_.push_back({});
    return forest_.blocks_.size() - 1;
  }

  // A block that the target is going to begin.
  uint32_t Begin(const Target& target) {
    const size_t block = AddBlock();
    open_.push_back({target, block});
    return NameOf(block);
  }

  Status AddTree(const Branch& root) {
    Begin({root});
    while (!open_.empty()) {
      const Open next = open_.back();
      open_.pop_back();
      if (forest_.blocks_.size() > kMostBlocks) return InvalidArgument("the trees are too large");
      ONNXD_RETURN_IF_ERROR(Fill(next.block, 0, next.target));
    }
    return Status::Ok();
  }

  // Node `node` of a block and those below it: where nothing is asked, both answers lead on.
  Status Fill(size_t block, uint32_t node, const Target& target) {
    if (target.block == 0) ONNXD_RETURN_IF_ERROR(CheckBranch(target.at));
    if (node >= math::kTreeNodes) {
      const math::TreeExit exit = ExitTo(target);  // may add a block
      forest_.exits_[block].exits[node - math::kTreeNodes] = exit;
      return Status::Ok();
    }
    Target yes = target, no = target;
    if (target.block == 0 && !target.at.leaf) {
      const Node& asked = list_.nodes[static_cast<size_t>(target.at.next)];
      if (target.member == 0) ONNXD_RETURN_IF_ERROR(CheckNode(asked, target.at.next));
      SetNode(block, node, asked, target.member);
      const bool more = target.member + 1 < asked.members.size();
      yes = {asked.yes, target.yes};
      if (target.member == 0 && more && !asked.yes.leaf) yes.block = Begin({asked.yes});
      no = more ? Target{target.at, 0, target.member + 1, yes.block} : Target{asked.no};
    }
    ONNXD_RETURN_IF_ERROR(Fill(block, 2 * node + 1, yes));
    return Fill(block, 2 * node + 2, no);
  }

  Status CheckBranch(const Branch& at) const {
    const size_t size = at.leaf ? list_.leaves.size() : list_.nodes.size();
    if (at.next >= 0 && static_cast<size_t>(at.next) < size) return Status::Ok();
    return InvalidArgument(
        StrCat("a tree refers to ", at.leaf ? "leaf " : "node ", at.next, " of ", size));
  }

  Status CheckNode(const Node& node, int64_t index) {
    // Twice means a cycle or a shared subtree.
    if (seen_[static_cast<size_t>(index)]) return InvalidArgument("a tree node is reached twice");
    seen_[static_cast<size_t>(index)] = true;
    ++forest_.reached_;
    if (node.feature < 0 || node.feature >= int64_t{math::kTreeColumns}) {
      return InvalidArgument(StrCat("tree node ", index, " compares feature ", node.feature));
    }
    forest_.features_ = std::max(forest_.features_, node.feature + 1);
    return Status::Ok();
  }

  math::TreeExit ExitTo(const Target& target) {
    if (target.block != 0) return {0, target.block};
    if (!target.at.leaf) return {0, Begin(target)};
    return {math::kTreeLeaf | static_cast<uint32_t>(target.at.next), 0};
  }

  void SetNode(size_t block_index, uint32_t place, const Node& node, size_t member) {
    auto& block = forest_.blocks_[block_index];
    T split = node.mode == TreeMode::kMember ? std::numeric_limits<T>::quiet_NaN() : node.split;
    if (member < node.members.size()) split = node.members[member];
    uint32_t outcomes = OutcomesOf(node.mode);
    if (node.missing_tracks_true) outcomes |= math::kTreeNan;
    if (std::isnan(split)) {  // that nothing is less than, greater than or equal to
      constexpr uint32_t kNumbers = math::kTreeLess | math::kTreeGreater | math::kTreeEqual;
      outcomes = (outcomes & math::kTreeNan) | (node.mode == TreeMode::kNeq ? kNumbers : 0);
      split = 0;
    }
    block.splits[place] = split;
    block.nodes[place] = math::TreeNodeWord(static_cast<uint32_t>(node.feature), outcomes);
    forest_.missing_ = forest_.missing_ || (outcomes & math::kTreeNan) != 0;
    const uint32_t numbers = outcomes & ~uint32_t{math::kTreeNan};
    forest_.all_less_ = forest_.all_less_ && numbers == math::kTreeLess;
    forest_.all_leq_ = forest_.all_leq_ && numbers == (math::kTreeLess | math::kTreeEqual);
  }

  // Cuts the trees into groups, and leads from the leaves of a tree to the tree after it in a lane.
  void AddGroups() {
    const size_t trees = list_.roots.size();
    forest_.trees_ = static_cast<int64_t>(trees);
    for (size_t first = 0; first < trees;) {
      size_t end = std::min(first + kLeastInGroup, trees);
      while (end < trees && end - first < kTreesInGroup &&
             tree_begins_[end + 1] - tree_begins_[first] <= kGroupBlocks) {
        ++end;
      }
      typename Forest<T>::Group group = {};
      for (size_t tree = first; tree < end; ++tree) {
        const size_t lane = tree - first;
        if (lane < math::kTreeLanes) group.roots[lane] = NameOf(tree_begins_[tree]);
        if (tree + math::kTreeLanes < end) LeadOn(tree, tree_begins_[tree + math::kTreeLanes]);
      }
      forest_.groups_.push_back(group);
      first = end;
    }
  }

  void LeadOn(size_t tree, size_t root) {
    for (size_t block = tree_begins_[tree]; block < tree_begins_[tree + 1]; ++block) {
      for (math::TreeExit& exit : forest_.exits_[block].exits) {
        if (exit.leaf != 0) exit.next = NameOf(root);
      }
    }
  }

  void AddWeights() {
    const size_t leaves = list_.leaves.size(), targets = static_cast<size_t>(list_.targets);
    const bool sums =
        list_.aggregate == TreeAggregate::kSum || list_.aggregate == TreeAggregate::kAverage;
    if (sums && targets <= 8 && list_.weights.size() * 4 >= leaves * targets) {
      return AddRows(targets == 1 ? 1 : targets <= 4 ? 4 : 8);
    }
    forest_.one_each_ = sums;
    forest_.ranges_.push_back(0);
    for (const auto& leaf : list_.leaves) {
      for (int64_t i = leaf.begin; i < leaf.end; ++i) {
        const auto& weight = list_.weights[static_cast<size_t>(i)];
        forest_.weights_.push_back({weight.target, weight.value});
      }
      forest_.one_each_ = forest_.one_each_ && leaf.end == leaf.begin + 1;
      forest_.ranges_.push_back(static_cast<uint32_t>(forest_.weights_.size()));
    }
  }

  void AddRows(size_t numbers) {
    forest_.row_ = static_cast<int>(numbers);
    forest_.dense_.assign(list_.leaves.size() * numbers, T{0});
    T* row = forest_.dense_.data();
    for (const auto& leaf : list_.leaves) {
      for (int64_t i = leaf.begin; i < leaf.end; ++i) {
        const auto& weight = list_.weights[static_cast<size_t>(i)];
        row[weight.target] += weight.value;
      }
      row += numbers;
    }
    if (numbers == 1 && std::is_same_v<T, float>) MoveWeightsToExits();
  }

  void MoveWeightsToExits() {
    for (auto& [exits] : forest_.exits_) {
      for (math::TreeExit& exit : exits) {
        if (exit.leaf == 0) continue;
        const T weight = forest_.dense_[exit.leaf & ~math::kTreeLeaf];
        exit.leaf = std::bit_cast<uint32_t>(static_cast<float>(weight));
      }
    }
    forest_.exits_have_weights_ = true;
    forest_.dense_ = {};
  }

  const TreeList<T>& list_;
  Forest<T> forest_;
  std::vector<bool> seen_;  // of the list's nodes
  std::vector<Open> open_;
  std::vector<size_t> tree_begins_;  // blocks, and where the last tree ends
};

template <typename T>
Result<Forest<T>> Forest<T>::Make(const TreeList<T>& list) {
  return ForestBuilder<T>(list).Build();
}

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

template <>
class Forest<float>::BlockWalker final : public Walker {
 public:
  explicit BlockWalker(const Forest& forest)
      : simd_(math::CurrentSimd()), walk_{forest.blocks_.data(),
                                          forest.exits_.data()->exits,
                                          nullptr,
                                          forest.all_less_,
                                          forest.missing_,
                                          forest.features_} {}
  size_t Leaves(const Group& group, const float* row, uint32_t* leaves) const override {
    return simd_.walk_trees(From(group.roots), row, leaves);
  }
  double Sum(const Group& group, const float* row) const override {
    return simd_.sum_trees(From(group.roots), row);
  }
  void Rows(uint32_t root, const float* rows, int64_t width, uint32_t* leaves) const override {
    uint32_t roots[math::kTreeLanes];
    std::fill_n(roots, math::kTreeLanes, root);
    simd_.walk_rows(From(roots), rows, width, leaves);
  }

 private:
  math::TreeWalk From(const uint32_t* roots) const {
    math::TreeWalk walk = walk_;
    walk.roots = roots;
    return walk;
  }

  const math::Simd& simd_;
  const math::TreeWalk walk_;
};

template <typename T>
template <typename Weights>
void Forest<T>::AddByTrees(const Rows& rows, const Walker& walker, const Weights& weights,
                           double* scores) const {
  constexpr int kNumbers = Weights::kNumbers;
  uint32_t leaves[kTreesInGroup + 1];
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
  if constexpr (std::is_same_v<T, float>) {
    const bool has_loop = math::CurrentSimd().walk_trees != nullptr;
    if (alike && has_loop && features_ <= math::kMostTreeColumns) {
      return AddScores(rows, BlockWalker(*this), scores);
    }
  }
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
