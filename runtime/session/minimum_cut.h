// The cheapest way to part a directed graph in two.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace onnxd {

// Every vertex goes to the source's side or to the sink's, so that the edges from the source's side
// to the sink's cost least together; where several cuts cost the same, the source's side is
// largest. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
// estimation", 1970. One thread.
class MinimumCut {
 public:
  static constexpr int64_t kNever = int64_t{1} << 40;  // an edge that no cut may have

  int source() const { return 0; }
  int sink() const { return 1; }
  int AddVertex();
  void AddEdge(int from, int to, int64_t cost);
  // One per vertex: whether it is on the source's side. Call it once.
  std::vector<bool> SourceSide();

 private:
  struct Edge {
    int to;
    int64_t left;  // the capacity that no flow uses
  };
  bool FindLevels();
  int64_t Push();

  std::vector<Edge> edges_;                           // each followed by its reverse
  std::vector<std::vector<int>> leaving_ = {{}, {}};  // edges by vertex
  std::vector<int> level_;
  std::vector<size_t> next_;  // by vertex: the first edge that may still lead to the sink
};

}  // namespace onnxd
