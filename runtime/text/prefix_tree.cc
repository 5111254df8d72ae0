#include "runtime/text/prefix_tree.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<PrefixTree> PrefixTree::Make(std::vector<std::pair<std::string_view, int32_t>> texts) {
  for (const auto& [text, number] : texts) {
    if (text.empty()) return InvalidArgument("an empty text is no token");
    if (text.size() > kMostBytes) {
      return InvalidArgument(
          StrCat("a token of ", text.size(), " bytes, of which ", kMostBytes, " are the most"));
    }
  }
  std::stable_sort(texts.begin(), texts.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  // Level by level, so that the edges of a node lie side by side: each node stands for a range of
  // the texts, which share their first `depth` bytes.
  struct Pending {
    size_t begin, end;
    int32_t node;
  };
  PrefixTree tree;
  std::vector<Pending> level = {{0, texts.size(), 0}};
  for (size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Pending> next;
    for (auto [begin, end, at] : level) {
      for (; begin < end && texts[begin].first.size() == depth; ++begin) {
        tree.nodes_[static_cast<size_t>(at)].number = texts[begin].second;
      }
      tree.nodes_[static_cast<size_t>(at)].first_edge = static_cast<uint32_t>(tree.bytes_.size());
      while (begin < end) {
        const char byte = texts[begin].first[depth];
        size_t last = begin;
        while (last < end && texts[last].first[depth] == byte) ++last;
        tree.bytes_ += byte;
        const auto child = static_cast<int32_t>(tree.nodes_.size());
        tree.targets_.push_back(child);
        tree.nodes_.emplace_back();
        ++tree.nodes_[static_cast<size_t>(at)].edges;
        next.push_back({begin, last, child});
        begin = last;
      }
    }
    level = std::move(next);
  }
  return tree;
}

int32_t PrefixTree::Next(int32_t node, unsigned char byte) const {
  const Node& from = nodes_[static_cast<size_t>(node)];
  if (from.edges == 0) return kNone;
  const char* edges = bytes_.data() + from.first_edge;
  const void* found = std::memchr(edges, byte, from.edges);
  if (found == nullptr) return kNone;
  return targets_[from.first_edge + static_cast<size_t>(static_cast<const char*>(found) - edges)];
}

int32_t PrefixTree::Walk(int32_t node, std::string_view text) const {
  for (size_t i = 0; node != kNone && i < text.size(); ++i) {
    node = Next(node, static_cast<unsigned char>(text[i]));
  }
  return node;
}

PrefixTree::Match PrefixTree::Longest(std::string_view text, size_t at, int32_t root) const {
  Match best;
  int32_t node = root;
  for (size_t i = at; i < text.size(); ++i) {
    node = Next(node, static_cast<unsigned char>(text[i]));
    if (node == kNone) break;
    if (number(node) != kNone) best = {number(node), i + 1 - at};
  }
  return best;
}

}  // namespace onnxd
