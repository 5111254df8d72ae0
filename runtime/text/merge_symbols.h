// The loop of byte pair encoding, for those who know which neighbours may become one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/text/token_model.h"

namespace onnxd {

struct PossibleMerge {
  double rank = 0;  // the lowest comes first; of equal ones the leftmost
  int64_t id = 0;   // of what the two become
};

// While any two neighbours may become one, those with the lowest rank do; appends what is left.
// `find(left, right)` gives an optional<PossibleMerge>. O(n log n) for n symbols, less than 2^31.
template <typename Find>
void MergeSymbols(std::vector<Token> symbols, const Find& find, std::vector<Token>& out) {
  constexpr uint32_t kGone = ~uint32_t{0};
  const auto count = static_cast<uint32_t>(symbols.size());
  std::vector<uint32_t> next(count), previous(count);
  for (uint32_t i = 0; i < count; ++i) {
    next[i] = i + 1;
    previous[i] = i - 1;
  }
  struct Candidate {
    double rank;
    int64_t id;
    uint32_t left, right;
    uint32_t left_end, right_end;  // as they were; another end: the symbol has changed since
    bool operator<(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : left > other.left;
    }
  };
  std::vector<Candidate> heap;
  const auto consider = [&](uint32_t left, uint32_t right) {
    if (const auto merge = find(symbols[left], symbols[right])) {
      heap.push_back({merge->rank, merge->id, left, right, symbols[left].end, symbols[right].end});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Token &left = symbols[best.left], &right = symbols[best.right];
    if (left.end != best.left_end || right.end != best.right_end) continue;
    left.id = best.id;
    left.end = right.end;
    right.end = kGone;
    const uint32_t after = next[best.left] = next[best.right];
    if (after < count) {
      previous[after] = best.left;
      consider(best.left, after);
    }
    if (best.left > 0) consider(previous[best.left], best.left);
  }
  for (uint32_t i = 0; i < count; i = next[i]) out.push_back(symbols[i]);
}

}  // namespace onnxd
