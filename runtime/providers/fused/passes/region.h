// A set of nodes that grows over elementwise neighbours, such that no path leads out of it and
// back.
#pragma once

#include <set>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/providers/fused/passes/shape_identity.h"

namespace onnxd {

class Region {
 public:
  static constexpr size_t kMostNodes = 32, kMostInputs = 10, kMostOutputs = 4;

  // `taken`: nodes that are in no region from here on. All must outlive it.
  Region(const Graph& graph, const GraphIndex& index, const ShapeIdentity& shapes,
         const std::vector<bool>& taken, size_t seed)
      : graph_(graph), index_(index), shapes_(shapes), taken_(taken), members_{seed} {}

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
  std::set<size_t> members_;
};

}  // namespace onnxd
