#include "runtime/session/minimum_cut.h"

#include <algorithm>

namespace onnxd {

int MinimumCut::AddVertex() {
  leaving_.emplace_back();
  return static_cast<int>(leaving_.size()) - 1;
}

void MinimumCut::AddEdge(int from, int to, int64_t cost) {
  leaving_[static_cast<size_t>(from)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({to, cost});
  leaving_[static_cast<size_t>(to)].push_back(static_cast<int>(edges_.size()));
  edges_.push_back({from, 0});
}

// Distances from the source along edges with room; false when the sink has none.
bool MinimumCut::FindLevels() {
  level_.assign(leaving_.size(), -1);
  std::vector<int> queue = {source()};
  level_[static_cast<size_t>(source())] = 0;
  for (size_t head = 0; head < queue.size(); ++head) {
    const int from = queue[head];
    for (const int edge : leaving_[static_cast<size_t>(from)]) {
      const auto [to, left] = edges_[static_cast<size_t>(edge)];
      if (left <= 0 || level_[static_cast<size_t>(to)] >= 0) continue;
      level_[static_cast<size_t>(to)] = level_[static_cast<size_t>(from)] + 1;
      queue.push_back(to);
    }
  }
  return level_[static_cast<size_t>(sink())] >= 0;
}

// One more path to the sink, without recursion: graphs may be as deep as a model.
int64_t MinimumCut::Push() {
  std::vector<int> path;  // edges
  int at = source();
  while (at != sink()) {
    const auto vertex = static_cast<size_t>(at);
    bool advanced = false;
    for (size_t& i = next_[vertex]; i < leaving_[vertex].size(); ++i) {
      const int edge = leaving_[vertex][i];
      const auto [to, left] = edges_[static_cast<size_t>(edge)];
      if (left <= 0 || level_[static_cast<size_t>(to)] != level_[vertex] + 1) continue;
      path.push_back(edge);
      at = to;
      advanced = true;
      break;
    }
    if (advanced) continue;
    if (path.empty()) return 0;
    // A dead end: back, and past the edge that led here.
    const int edge = path.back();
    path.pop_back();
    at = edges_[static_cast<size_t>(edge) ^ 1].to;
    ++next_[static_cast<size_t>(at)];
  }
  int64_t flow = kNever;
  for (const int edge : path) flow = std::min(flow, edges_[static_cast<size_t>(edge)].left);
  for (const int edge : path) {
    edges_[static_cast<size_t>(edge)].left -= flow;
    edges_[static_cast<size_t>(edge) ^ 1].left += flow;
  }
  return flow;
}

std::vector<bool> MinimumCut::SourceSide() {
  while (FindLevels()) {
    next_.assign(leaving_.size(), 0);
    while (Push() > 0) {
    }
  }
  // What can still reach the sink is on its side; all else, however cheap, is the source's.
  std::vector<bool> to_sink(leaving_.size(), false);
  std::vector<int> queue = {sink()};
  to_sink[static_cast<size_t>(sink())] = true;
  for (size_t head = 0; head < queue.size(); ++head) {
    for (const int edge : leaving_[static_cast<size_t>(queue[head])]) {
      // The edge that comes in is the reverse of the one that leaves.
      if (edges_[static_cast<size_t>(edge) ^ 1].left <= 0) continue;
      const int from = edges_[static_cast<size_t>(edge)].to;
      if (to_sink[static_cast<size_t>(from)]) continue;
      to_sink[static_cast<size_t>(from)] = true;
      queue.push_back(from);
    }
  }
  std::vector<bool> side(leaving_.size());
  for (size_t i = 0; i < side.size(); ++i) side[i] = !to_sink[i];
  return side;
}

}  // namespace onnxd
