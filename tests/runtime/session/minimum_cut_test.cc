#include "runtime/session/minimum_cut.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace onnxd {
namespace {

TEST(MinimumCut, VerticesWithoutEdgesAreTheSourcesSide) {
  MinimumCut cut;
  const int lonely = cut.AddVertex();
  const std::vector<bool> side = cut.SourceSide();
  EXPECT_TRUE(side[static_cast<size_t>(cut.source())]);
  EXPECT_FALSE(side[static_cast<size_t>(cut.sink())]);
  EXPECT_TRUE(side[static_cast<size_t>(lonely)]);
}

TEST(MinimumCut, CutsTheCheapestEdgeOfAChainNearestToTheSink) {
  MinimumCut cut;
  const int a = cut.AddVertex(), b = cut.AddVertex(), c = cut.AddVertex();
  cut.AddEdge(cut.source(), a, 5);
  cut.AddEdge(a, b, 2);
  cut.AddEdge(b, c, 2);
  cut.AddEdge(c, cut.sink(), 9);
  const std::vector<bool> side = cut.SourceSide();
  EXPECT_TRUE(side[static_cast<size_t>(a)]);
  EXPECT_TRUE(side[static_cast<size_t>(b)]);
  EXPECT_FALSE(side[static_cast<size_t>(c)]);
}

// Every way to part few vertices, compared.
TEST(MinimumCut, CostsNoMoreThanAnyOtherCut) {
  std::mt19937 random(1);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  for (int round = 0; round < 200; ++round) {
    constexpr int kVertices = 8;  // with source and sink
    struct Edge {
      int from, to;
      int64_t cost;
    };
    std::vector<Edge> edges;
    for (int i = 0; i < 20; ++i) edges.push_back({draw(kVertices), draw(kVertices), draw(10)});
    MinimumCut cut;
    for (int i = 2; i < kVertices; ++i) cut.AddVertex();
    for (const Edge& edge : edges) cut.AddEdge(edge.from, edge.to, edge.cost);
    const auto cost = [&](const auto& on_source_side) {
      int64_t total = 0;
      for (const Edge& edge : edges) {
        if (on_source_side(edge.from) && !on_source_side(edge.to)) total += edge.cost;
      }
      return total;
    };
    int64_t best = std::numeric_limits<int64_t>::max();
    for (unsigned mask = 0; mask < 1u << kVertices; ++mask) {
      if ((mask & 1) == 0 || (mask & 2) != 0) continue;
      best = std::min(best, cost([&](int v) { return (mask >> v & 1) != 0; }));
    }
    const std::vector<bool> side = cut.SourceSide();
    EXPECT_EQ(cost([&](int v) { return side[static_cast<size_t>(v)]; }), best) << round;
  }
}

TEST(MinimumCut, ALongChainNeedsNoStack) {
  MinimumCut cut;
  int last = cut.source();
  for (int i = 0; i < 200000; ++i) {
    const int next = cut.AddVertex();
    cut.AddEdge(last, next, 3);
    last = next;
  }
  cut.AddEdge(last, cut.sink(), 1);
  EXPECT_TRUE(cut.SourceSide()[static_cast<size_t>(last)]);
}

}  // namespace
}  // namespace onnxd
