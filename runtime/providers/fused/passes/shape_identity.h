// Which values have the same shape, whatever it is.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// Dimensions that inference leaves open are followed through elementwise operators, products with a
// matrix and computations over rows: what comes of one dimension alone stays the same.
class ShapeIdentity {
 public:
  // Valid for the values that the graph has now.
  explicit ShapeIdentity(const Graph& graph);

  // False where a rank is not known.
  bool Same(ValueId a, ValueId b) const;

 private:
  using Dims = std::vector<int64_t>;  // extents, or names of those that are not numbers: negative

  void AddOwn(const Graph& graph, ValueId id);
  void Follow(const Graph& graph, const Node& node);
  // Of a result that is broadcast from all inputs.
  void FollowBroadcast(const Graph& graph, const Node& node);
  const std::optional<Dims>& of(ValueId id) const { return dims_[static_cast<size_t>(id)]; }

  std::vector<std::optional<Dims>> dims_;  // by value
  std::map<std::string, int64_t> symbols_;
  int64_t next_ = -1;
};

}  // namespace onnxd
