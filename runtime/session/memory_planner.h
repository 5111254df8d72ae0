// MemoryPlanner: where in the arena each value of a run lives.
#pragma once

#include <cstddef>
#include <vector>

namespace onnxd {

// Bytes that must hold from the start of step `first` to the end of step `last`.
struct StorageRequest {
  size_t bytes;
  int first, last;
};

struct MemoryPlan {
  std::vector<size_t> offsets;  // one per request, multiples of kTensorAlignment
  size_t arena_bytes = 0;
};

// Two requests overlap in space only if they do not overlap in time. Greedy, largest first, each at
// the lowest free offset (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net
// Inference", 2020, greedy by size). Pure.
MemoryPlan PlanMemory(const std::vector<StorageRequest>& requests);

}  // namespace onnxd
