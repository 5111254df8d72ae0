// The kernels of onnxd::Fused by what the fused graph has at its heart.
#pragma once

#include <memory>

#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {

// onnxd::Fused, as one of those below.
Result<std::unique_ptr<Kernel>> MakeFused(const KernelInfo& info, GpuDevice& device);

// Each: kUnimplemented where the graph is none of its kind.
Result<std::unique_ptr<Kernel>> MakeFusedPointwise(const KernelInfo& info, FusedGraph graph,
                                                   GpuDevice& device);
// A product, and what follows it element by element.
Result<std::unique_ptr<Kernel>> MakeFusedProduct(const KernelInfo& info, FusedGraph graph,
                                                 size_t product, GpuDevice& device);
// What comes before a computation over rows (row_operator.h), that, and what follows.
Result<std::unique_ptr<Kernel>> MakeFusedRows(const KernelInfo& info, FusedGraph graph, size_t rows,
                                              GpuDevice& device);

// The positions of the nodes that depend on node `heart`, or that do not; without itself.
struct FusedParts {
  std::vector<size_t> before, after;
};
FusedParts PartsAround(const Graph& graph, size_t heart);

// A node of the graph as the provider would be asked for it alone.
class FusedNodeInfo {
 public:
  FusedNodeInfo(const KernelInfo& whole, const Graph& graph, const Node& node);
  const KernelInfo& info() const { return info_; }

 private:
  std::vector<ValueType> inputs_, outputs_;
  KernelInfo info_;
};

}  // namespace onnxd
