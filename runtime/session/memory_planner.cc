#include "runtime/session/memory_planner.h"

#include <algorithm>
#include <numeric>

#include "runtime/tensor/tensor.h"

namespace onnxd {

MemoryPlan PlanMemory(const std::vector<StorageRequest>& requests) {
  MemoryPlan plan;
  plan.offsets.assign(requests.size(), 0);
  std::vector<size_t> order(requests.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].bytes > requests[b].bytes; });
  std::vector<size_t> placed;  // by offset
  for (const size_t i : order) {
    const StorageRequest& request = requests[i];
    const size_t bytes =
        (request.bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
    size_t offset = 0;
    for (const size_t j : placed) {
      const StorageRequest& other = requests[j];
      if (other.last < request.first || request.last < other.first) continue;
      if (plan.offsets[j] >= offset + bytes) break;
      const size_t end = plan.offsets[j] +
                         (other.bytes + kTensorAlignment - 1) / kTensorAlignment * kTensorAlignment;
      offset = std::max(offset, end);
    }
    plan.offsets[i] = offset;
    plan.arena_bytes = std::max(plan.arena_bytes, offset + bytes);
    const auto at = std::upper_bound(placed.begin(), placed.end(), i, [&](size_t a, size_t b) {
      return plan.offsets[a] < plan.offsets[b];
    });
    placed.insert(at, i);
  }
  return plan;
}

}  // namespace onnxd
