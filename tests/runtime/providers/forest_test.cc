// Forests, with every instruction set that this processor has, against walks from node to node.
#include "runtime/providers/cpu/forest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "tests/support/every_simd.h"

namespace onnxd {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <typename T>
bool SaysYes(const typename TreeList<T>::Node& node, T x) {
  if (std::isnan(x) && node.missing_tracks_true) return true;
  switch (node.mode) {
    case TreeMode::kLeq:
      return x <= node.split;
    case TreeMode::kLt:
      return x < node.split;
    case TreeMode::kGte:
      return x >= node.split;
    case TreeMode::kGt:
      return x > node.split;
    case TreeMode::kEq:
      return x == node.split;
    case TreeMode::kNeq:
      return x != node.split;
    case TreeMode::kMember:
      return std::find(node.members.begin(), node.members.end(), x) != node.members.end();
  }
  return false;
}

// The scores of a row, one node after another.
template <typename T>
std::vector<double> PlainScores(const TreeList<T>& list, const T* row) {
  std::vector<std::optional<double>> scores(static_cast<size_t>(list.targets));
  for (auto at : list.roots) {
    while (!at.leaf) {
      const auto& node = list.nodes[static_cast<size_t>(at.next)];
      at = SaysYes(node, row[node.feature]) ? node.yes : node.no;
    }
    const auto& leaf = list.leaves[static_cast<size_t>(at.next)];
    for (int64_t i = leaf.begin; i < leaf.end; ++i) {
      const auto& weight = list.weights[static_cast<size_t>(i)];
      const auto value = static_cast<double>(weight.value);
      auto& score = scores[static_cast<size_t>(weight.target)];
      if (list.aggregate == TreeAggregate::kMin) {
        score = std::min(score.value_or(value), value);
      } else if (list.aggregate == TreeAggregate::kMax) {
        score = std::max(score.value_or(value), value);
      } else {
        score = score.value_or(0) + value;
      }
    }
  }
  std::vector<double> values;
  const bool average = list.aggregate == TreeAggregate::kAverage;
  for (const auto& score : scores) {
    values.push_back(score.value_or(0) / (average ? static_cast<double>(list.roots.size()) : 1));
  }
  return values;
}

struct Kind {
  std::vector<TreeMode> modes;
  bool missing = false;
  int64_t features = 10;
  int64_t targets = 1;
  int weights_of_leaf = 1;
  TreeAggregate aggregate = TreeAggregate::kSum;
  int trees = 21;
  int depth = 9;  // at most
};

// Trees of which some branches end early; splits, members and weights are small multiples of 1/4,
// so that values meet them and sums of them are exact.
template <typename T>
class RandomTrees {
 public:
  RandomTrees(const Kind& kind, int seed) : kind_(kind), random_(seed) {
    list_.targets = kind.targets;
    list_.aggregate = kind.aggregate;
    for (int i = 0; i < kind.trees; ++i) list_.roots.push_back(Grow(i % (kind.depth + 1)));
  }

  const TreeList<T>& list() const { return list_; }

  std::vector<T> Rows(int64_t count, int64_t width) {
    std::vector<T> rows;
    for (int64_t i = 0; i < count * width; ++i) {
      rows.push_back(random_() % 9 == 0 ? static_cast<T>(kNan) : Quarter());
    }
    return rows;
  }

 private:
  using Branch = typename TreeList<T>::Branch;

  T Quarter() { return static_cast<T>(static_cast<int>(random_() % 17) - 8) / 4; }

  Branch Grow(int depth) {
    if (depth == 0 || random_() % 8 == 0) return Leaf();
    typename TreeList<T>::Node node;
    node.mode = kind_.modes[random_() % kind_.modes.size()];
    node.missing_tracks_true = kind_.missing && random_() % 2 == 0;
    node.feature = static_cast<int64_t>(random_() % static_cast<uint64_t>(kind_.features));
    node.split = random_() % 40 == 0 ? static_cast<T>(kNan) : Quarter();
    if (kind_.modes.size() == 1 && std::isnan(node.split)) node.split = 0;
    if (node.mode == TreeMode::kMember) {
      for (uint64_t i = random_() % 6; i > 0; --i) node.members.push_back(Quarter());
    }
    node.yes = Grow(depth - 1);
    node.no = Grow(depth - 1);
    list_.nodes.push_back(node);
    return {static_cast<int64_t>(list_.nodes.size()) - 1, false};
  }

  Branch Leaf() {
    const auto begin = static_cast<int64_t>(list_.weights.size());
    for (int i = 0; i < kind_.weights_of_leaf; ++i) {
      list_.weights.push_back(
          {static_cast<int64_t>(random_() % static_cast<uint64_t>(kind_.targets)), Quarter()});
    }
    list_.leaves.push_back({begin, begin + kind_.weights_of_leaf});
    return {static_cast<int64_t>(list_.leaves.size()) - 1, true};
  }

  const Kind kind_;
  std::mt19937 random_;
  TreeList<T> list_;
};

template <typename T>
void ExpectPlainScores(const Kind& kind, int64_t count) {
  RandomTrees<T> trees(kind, static_cast<int>(kind.features));
  const int64_t width = kind.features + 2;
  const auto rows = trees.Rows(count, width);
  const auto forest = Forest<T>::Make(trees.list());
  ASSERT_TRUE(forest.ok()) << forest.status().ToString();
  EXPECT_LE(forest->features(), kind.features);
  std::vector<double> scores(static_cast<size_t>(count * kind.targets), kNan);
  forest->Score(rows.data(), count, width, scores.data());
  for (int64_t row = 0; row < count; ++row) {
    const auto wanted = PlainScores(trees.list(), rows.data() + row * width);
    for (int64_t t = 0; t < kind.targets; ++t) {
      ASSERT_EQ(scores[static_cast<size_t>(row * kind.targets + t)], wanted[static_cast<size_t>(t)])
          << "row " << row << ", target " << t;
    }
  }
}

class EverySimdOnForests : public math::WithSimd {};

const std::vector<TreeMode> kEveryMode = {TreeMode::kLeq,   TreeMode::kLt, TreeMode::kGte,
                                          TreeMode::kGt,    TreeMode::kEq, TreeMode::kNeq,
                                          TreeMode::kMember};

// Rows of up to 32 and 64 columns fit registers, of doubles up to 16, 32 and 64.
TEST_P(EverySimdOnForests, AskWhatNodesAsk) {
  for (const int64_t features : {1, 16, 17, 30, 33, 62, 64, 65, 200}) {
    for (const bool missing : {false, true}) {
      for (const auto& modes : {std::vector{TreeMode::kLeq}, {TreeMode::kLt}, kEveryMode}) {
        SCOPED_TRACE(testing::Message() << features << " features, " << modes.size() << " modes");
        Kind kind;
        kind.modes = modes;
        kind.missing = missing;
        kind.features = features;
        for (const int trees : {3, kind.trees}) {  // walked by rows, and by trees
          kind.trees = trees;
          ExpectPlainScores<float>(kind, 40);
          ExpectPlainScores<double>(kind, 40);
        }
      }
    }
  }
}

TEST_P(EverySimdOnForests, AggregateWeights) {
  for (const int64_t targets : {1, 2, 3, 5, 8, 9, 40}) {
    for (const int weights : {0, 1, 3}) {
      for (const auto aggregate : {TreeAggregate::kSum, TreeAggregate::kAverage,
                                   TreeAggregate::kMin, TreeAggregate::kMax}) {
        SCOPED_TRACE(testing::Message() << targets << " targets, " << weights << " weights");
        Kind kind;
        kind.modes = {TreeMode::kLeq};
        kind.targets = targets;
        kind.weights_of_leaf = weights;
        kind.aggregate = aggregate;
        for (const int trees : {4, 16}) {  // averages are exact
          kind.trees = trees;
          ExpectPlainScores<float>(kind, 20);
          ExpectPlainScores<double>(kind, 20);
        }
      }
    }
  }
}

// Several groups, lanes that are empty, and trees of one leaf.
TEST_P(EverySimdOnForests, HaveAnyNumberOfTrees) {
  for (const int trees : {0, 1, 2, 4, 5, 7, 8, 9, 31, 33, 600}) {
    for (const int depth : {0, 1, 3, 4, 12}) {
      SCOPED_TRACE(testing::Message() << trees << " trees, depth " << depth);
      Kind kind;
      kind.modes = {TreeMode::kLt};
      kind.trees = trees;
      kind.depth = depth;
      for (const int64_t rows : {0, 1, 8, 9, 40}) ExpectPlainScores<float>(kind, rows);
      kind.features = 50;
      ExpectPlainScores<float>(kind, 9);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimdOnForests, math::EverySimdName());

TreeList<float> OneNode() {
  TreeList<float> list;
  list.nodes.resize(1);
  list.nodes[0].yes = {0, true};
  list.nodes[0].no = {1, true};
  list.leaves = {{0, 1}, {1, 2}};
  list.weights = {{0, 1.0f}, {0, 2.0f}};
  list.roots = {{0, false}};
  return list;
}

TEST(Forest, RefusesWhatIsNoTree) {
  EXPECT_TRUE(Forest<float>::Make(OneNode()).ok());
  const auto refuses = [](auto change) {
    auto list = OneNode();
    change(list);
    const auto forest = Forest<float>::Make(list);
    return !forest.ok() && forest.status().code() == StatusCode::kInvalidArgument;
  };
  EXPECT_TRUE(refuses([](auto& list) { list.nodes[0].yes = {0, false}; }));  // a cycle
  EXPECT_TRUE(refuses([](auto& list) { list.nodes[0].yes = {2, true}; }));
  EXPECT_TRUE(refuses([](auto& list) { list.nodes[0].no = {-1, true}; }));
  EXPECT_TRUE(refuses([](auto& list) { list.nodes[0].no = {1, false}; }));
  EXPECT_TRUE(refuses([](auto& list) { list.nodes[0].feature = -1; }));
  EXPECT_TRUE(refuses([](auto& list) { list.nodes[0].feature = int64_t{1} << 24; }));
  EXPECT_TRUE(refuses([](auto& list) { list.roots.push_back({0, false}); }));  // walked twice
  EXPECT_TRUE(refuses([](auto& list) { list.roots[0] = {3, false}; }));
  EXPECT_TRUE(refuses([](auto& list) { list.weights[0].target = 1; }));
  EXPECT_TRUE(refuses([](auto& list) { list.weights[0].target = -1; }));
}

TEST(Forest, ReadsAColumnOfRowsThatNothingIsAskedOf) {
  auto list = OneNode();
  list.nodes.clear();
  list.roots = {{1, true}};
  const auto forest = Forest<float>::Make(list);
  ASSERT_TRUE(forest.ok()) << forest.status().ToString();
  EXPECT_EQ(forest->features(), 1);
  const float row = 0;
  double score = 0;
  forest->Score(&row, 1, 1, &score);
  EXPECT_EQ(score, 2);
  list.roots.clear();
  EXPECT_EQ(Forest<float>::Make(list)->features(), 0);
}

// A set is a comparison for each member: a chain of them ends all the same.
TEST(Forest, TakesLargeSetsAndDeepTrees) {
  TreeList<float> list;
  constexpr int kDepth = 100000;
  for (int i = 0; i < kDepth; ++i) {
    TreeList<float>::Node node;
    node.split = static_cast<float>(i);
    node.yes = {i, true};
    node.no = i + 1 < kDepth ? TreeList<float>::Branch{i + 1, false}
                             : TreeList<float>::Branch{kDepth, true};
    list.nodes.push_back(node);
  }
  TreeList<float>::Node set;
  set.mode = TreeMode::kMember;
  for (int i = 0; i < kDepth; ++i) set.members.push_back(static_cast<float>(2 * i));
  set.yes = {0, true};
  set.no = {1, true};
  list.nodes.push_back(set);
  for (int i = 0; i <= kDepth; ++i) {
    list.leaves.push_back({i, i + 1});
    list.weights.push_back({0, static_cast<float>(i)});
  }
  list.roots = {{0, false}, {kDepth, false}};
  const auto forest = Forest<float>::Make(list);
  ASSERT_TRUE(forest.ok()) << forest.status().ToString();
  const float rows[] = {7, 60000, 1e9f};
  double scores[3];
  forest->Score(rows, 3, 1, scores);
  EXPECT_EQ(scores[0], 7 + 1);
  EXPECT_EQ(scores[1], 60000 + 0);
  EXPECT_EQ(scores[2], kDepth + 1);
}

}  // namespace
}  // namespace onnxd
