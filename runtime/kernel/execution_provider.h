// ExecutionProvider: a device's offer to compute nodes.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "runtime/graph/graph_pass.h"
#include "runtime/kernel/kernel.h"

namespace onnxd {

// Created once per process and kept; any thread.
class ExecutionProvider {
 public:
  virtual ~ExecutionProvider() = default;
  virtual std::string_view name() const = 0;  // as --providers spells it

  // Where its kernels compute; null: in the host's memory. Lives as long as the process.
  virtual Device* device() const { return nullptr; }

  // Makes the kernel for a node, or says why not (kUnimplemented). "Can" and "do" are one call, so
  // they cannot differ. kResourceExhausted and other failures mean that the model cannot load.
  virtual Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const = 0;

  // Whether CreateKernel has a factory for the node at all; cheap, decides nothing.
  virtual bool Knows(const Node& node) const = 0;

  // Whether products of that precision are faster here than float32, and Passes brings them about.
  virtual bool Computes(Precision precision) const { return precision == Precision::kFloat32; }

  // What packed weights depend on: name, instruction set, versions. Empty: what this provider makes
  // of a model must not be kept for another process.
  virtual std::string cache_identity() const { return {}; }

  // Rewrites for the nodes it claimed (layout, fused epilogues), run before kernels are made, each
  // from its optimization level on.
  virtual std::vector<const GraphPass*> Passes() const { return {}; }
};

}  // namespace onnxd
