// A set of texts, each with a number, that finds those which another text begins with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// Immutable once made; any thread.
class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;
  // A text may have so many bytes, so that looking for one costs no more than that.
  static constexpr size_t kMostBytes = 4096;

  PrefixTree() = default;
  // Numbers are not negative; of equal texts the last counts. Fails where a text is empty or longer
  // than kMostBytes.
  static Result<PrefixTree> Make(std::vector<std::pair<std::string_view, int32_t>> texts);

  // Goes from a place in the tree along one byte. The root is 0; kNone: nothing goes on there.
  int32_t Next(int32_t node, unsigned char byte) const;
  int32_t number(int32_t node) const { return nodes_[static_cast<size_t>(node)].number; }

  // From `node` along as much of the text as there is; kNone when it does not go on.
  int32_t Walk(int32_t node, std::string_view text) const;

  struct Match {
    int32_t number = kNone;
    size_t bytes = 0;
  };
  // The longest that `text` has at `at`; kNone where there is none.
  Match Longest(std::string_view text, size_t at, int32_t root = 0) const;
  bool empty() const { return nodes_.size() <= 1; }

 private:
  struct Node {
    uint32_t first_edge = 0;
    uint32_t edges = 0;
    int32_t number = kNone;
  };
  std::vector<Node> nodes_ = {Node()};
  std::string bytes_;  // of edges, ascending within a node
  std::vector<int32_t> targets_;
};

}  // namespace onnxd
