// How a forest is laid out.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/forest.h"

namespace onnxd {
namespace {

constexpr size_t kMostBlocks = size_t{1} << 26;  // names of blocks have 32 bits
constexpr size_t kMostNodes = size_t{1} << 28;
constexpr size_t kLeastInGroup = 32, kGroupBlocks = 4096;

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
    // A walk reads a column even where nothing is asked.
    if (!list_.roots.empty()) forest_.features_ = std::max<int64_t>(forest_.features_, 1);
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
      while (end < trees && end - first < Forest<T>::kMostInGroup &&
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

template Result<Forest<float>> Forest<float>::Make(const TreeList<float>&);
template Result<Forest<double>> Forest<double>::Make(const TreeList<double>&);

}  // namespace onnxd
