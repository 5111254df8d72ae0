// Trees of comparisons in blocks of three levels, which one comparison of vectors decides.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnxd::math {

constexpr int kTreeLanes = 8;  // trees that are walked at once
constexpr int kTreeNodes = 7;  // of a block
constexpr int kTreeExits = 8;  // of a block: one for each way through three comparisons
constexpr size_t kTreeExitBytes = 64;
constexpr uint32_t kTreeLeaf = 1u << 31;  // set in TreeExit::leaf where one is reached

// Nodes 2 i + 1 and 2 i + 2 are those that node i leads to when it says yes, and no. What is asked
// is x[column] <= split, where nodes do not differ. T: float or double. The eighth node is none.
template <typename T>
struct alignas(16 * sizeof(T)) TreeBlock {
  T splits[8];
  uint32_t nodes[8];  // see TreeNodeWord
};

// A node's column, below 2^24, and above it the outcomes that are a yes; the sign is bit 5 of the
// column, which picks one of two pairs of registers.
constexpr uint32_t kTreeColumns = 1u << 24;
enum TreeOutcome : uint32_t {
  kTreeNan = kTreeColumns,
  kTreeLess = 2 * kTreeNan,
  kTreeGreater = 4 * kTreeNan,
  kTreeEqual = 8 * kTreeNan
};
constexpr uint32_t TreeNodeWord(uint32_t column, uint32_t outcomes) {
  return column | outcomes | (column & 32) << 26;
}

// A block is named by where its exits begin, in bytes.
struct TreeExit {
  uint32_t leaf;  // kTreeLeaf and its index; 0: none. Of trees to be summed, the bits of a float.
  uint32_t next;  // the block that follows; of a leaf, the root of the next tree
};

// Block 0 leads to itself alone: where walks end.
template <typename T>
struct TreeWalk {
  const TreeBlock<T>* blocks;
  const TreeExit* exits;
  const uint32_t* roots;  // [kTreeLanes]
  bool less;              // x < split is asked instead
  bool missing;           // whether some node says yes to NaN
  int64_t columns;        // of a row, which are read
};

// Null where one node after another is as fast.
template <typename T>
struct TreeLoops {
  // Writes the leaves of a row, as TreeExit::leaf has them, and returns how many; writes one more
  // number behind them.
  size_t (*leaves)(const TreeWalk<T>& walk, const T* row, uint32_t* leaves);
  // The sum of the floats of exits. Null for doubles, which have none.
  double (*sum)(const TreeWalk<T>& walk, const T* row);
  // Walks a tree, whose root is given for every lane, by as many rows, and writes the leaf of each.
  void (*rows)(const TreeWalk<T>& walk, const T* rows, int64_t width, uint32_t* leaves);
};

// The exit that seven answers lead to, bit i being node i's.
constexpr uint8_t TreeExitOf(uint32_t answers) {
  uint32_t node = 0;
  for (int level = 0; level < 3; ++level) node = 2 * node + 2 - (answers >> node & 1);
  return static_cast<uint8_t>(node - kTreeNodes);
}

}  // namespace onnxd::math
