// The operands of a node as a plug-in sees them.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/plugin/onnxd_plugin.h"

namespace onnxd {

constexpr size_t kMaxPluginOperands = 64;  // onnxd_plugin.h

// `shape` must live as long as the result.
OnnxdTensor ToPluginTensor(DataType type, const std::vector<int64_t>& shape, void* data);

// Types and shapes, kept by a prepared node.
class PluginOperands {
 public:
  // kUnimplemented, beginning with `what`, unless all are dense tensors of numbers, at most
  // kMaxPluginOperands.
  static Result<PluginOperands> Create(const PrepareContext& context, const std::string& what);

  struct Tensors {
    std::array<OnnxdTensor, kMaxPluginOperands> inputs, outputs;
  };
  void Fill(const KernelContext& kernel, Tensors& tensors) const;
  size_t input_count() const { return inputs_.size(); }
  size_t output_count() const { return outputs_.size(); }

 private:
  struct Operand {
    DataType type = DataType::kUndefined;
    std::vector<int64_t> dims;
  };
  static Result<std::vector<Operand>> Describe(std::span<const OperandInfo> infos,
                                               const std::string& what);

  std::vector<Operand> inputs_, outputs_;
};

}  // namespace onnxd
