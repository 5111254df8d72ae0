// The loop of byte pair encoding, for those who know which neighbours may become one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "runtime/text/subword_model.h"

namespace onnxd {

inline constexpr size_t kFewSymbols = 32;

struct PossibleMerge {
  double rank = 0;  // the lowest comes first; of equal ones the leftmost
  int64_t id = 0;   // of what the two become
};

// For as few as a word has: all pairs are looked at each time.
template <typename Find>
void MergeFewSymbols(std::vector<Token>& symbols, size_t first, const Find& find) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::array<PossibleMerge, kFewSymbols> merges;  // of a symbol with the next
  const auto pairs = [&] { return symbols.size() - first - 1; };
  const auto look = [&](size_t i) {
    merges[i] = find(symbols[first + i], symbols[first + i + 1]).value_or(PossibleMerge{kNever, 0});
  };
  for (size_t i = 0; i < pairs(); ++i) look(i);
  while (pairs() > 0) {
    const auto best =
        std::min_element(merges.begin(), merges.begin() + static_cast<ptrdiff_t>(pairs()),
                         [](const auto& a, const auto& b) { return a.rank < b.rank; });
    if (best->rank == kNever) return;
    const auto i = static_cast<size_t>(best - merges.begin());
    symbols[first + i] = {best->id, symbols[first + i].begin, symbols[first + i + 1].end};
    std::copy(best + 1, merges.begin() + static_cast<ptrdiff_t>(pairs()), best);
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(first + i + 1));
    if (i < pairs()) look(i);
    if (i > 0) look(i - 1);
  }
}

// While any two neighbours of `symbols` from `first` on may become one, those with the lowest rank
// do. `find(left, right)` gives an optional<PossibleMerge>. O(n log n) for n symbols, less than
// 2^31.
template <typename Find>
void MergeSymbols(std::vector<Token>& symbols, size_t first, const Find& find) {
  if (symbols.size() - first <= 1) return;
  if (symbols.size() - first <= kFewSymbols) return MergeFewSymbols(symbols, first, find);
  constexpr uint32_t kGone = ~uint32_t{0};
  const auto count = static_cast<uint32_t>(symbols.size() - first);
  Token* all = symbols.data() + first;
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
    if (const auto merge = find(all[left], all[right])) {
      heap.push_back({merge->rank, merge->id, left, right, all[left].end, all[right].end});
      std::push_heap(heap.begin(), heap.end());
    }
  };
  for (uint32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate best = heap.back();
    heap.pop_back();
    Token &left = all[best.left], &right = all[best.right];
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
  size_t kept = first;
  for (uint32_t i = 0; i < count; i = next[i]) symbols[kept++] = all[i];
  symbols.resize(kept);
}

}  // namespace onnxd
