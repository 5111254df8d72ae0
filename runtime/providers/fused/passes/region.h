// A set of nodes that grows over elementwise neighbours, such that no path leads out of it and
// back, each finished set being one node.
#pragma once

#include <set>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/providers/fused/passes/shape_identity.h"

namespace onnxd {

// The sets that have been found. Two of them may lie between each other in the graph's order.
class FinishedRegions {
 public:
  explicit FinishedRegions(size_t node_count);

  void Add(std::vector<size_t> members);
  // The nodes of this one's set; itself if it is in none.
  std::span<const size_t> Together(size_t node) const { return members_[set_of_[node]]; }
  // The last position up to `node` with each set on one side of it: no path leads from there or
  // behind it to what is before.
  size_t CutBefore(size_t node) const;

 private:
  std::vector<std::vector<size_t>> members_;
  std::vector<size_t> set_of_;
  std::vector<size_t> reaches_;  // where the first set begins that goes from before a node to it
};

class Region {
 public:
  static constexpr size_t kMostNodes = 32, kMostInputs = 10, kMostOutputs = 4;

  // `taken`: nodes that are in no region from here on. All must outlive it.
  Region(const Graph& graph, const GraphIndex& index, const ShapeIdentity& shapes,
         const std::vector<bool>& taken, const FinishedRegions& finished, size_t seed)
      : graph_(graph),
        index_(index),
        shapes_(shapes),
        taken_(taken),
        finished_(finished),
        members_{seed} {}

  // Takes in elementwise nodes that read what the region computes, and give the shape of `like`.
  void GrowDown(ValueId like);
  // Takes in elementwise nodes that give what the region reads, of the shape of `like`; of the node
  // `at` only its first input is looked at.
  void GrowUp(ValueId like, size_t at);

  const std::set<size_t>& members() const { return members_; }
  // The values that others read, in the order of their nodes.
  std::vector<ValueId> Outputs() const;

 private:
  bool Fits(size_t node, ValueId like) const;
  bool Has(size_t node) const { return members_.contains(node); }
  // Whether a value depends on a member.
  bool DependsOnMembers(ValueId id) const;
  // Adds the node unless that is too much for a kernel.
  bool Add(size_t node);
  size_t InputCount() const;

  const Graph& graph_;
  const GraphIndex& index_;
  const ShapeIdentity& shapes_;
  const std::vector<bool>& taken_;
  const FinishedRegions& finished_;
  std::set<size_t> members_;
};

}  // namespace onnxd
