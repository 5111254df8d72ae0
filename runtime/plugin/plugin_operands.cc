#include "runtime/plugin/plugin_operands.h"

#include <cstddef>

#include "runtime/base/str_cat.h"

namespace onnxd {

OnnxdTensor ToPluginTensor(DataType type, const std::vector<int64_t>& shape, void* data) {
  return {sizeof(OnnxdTensor), static_cast<int32_t>(type), static_cast<int32_t>(shape.size()),
          shape.data(), data};
}

Result<std::vector<PluginOperands::Operand>> PluginOperands::Describe(
    std::span<const OperandInfo> infos, const std::string& what) {
  if (infos.size() > kMaxPluginOperands) {
    return Unimplemented(StrCat(what, " takes at most ", kMaxPluginOperands, " operands"));
  }
  std::vector<Operand> operands;
  for (const OperandInfo& info : infos) {
    Operand& operand = operands.emplace_back();
    if (!info.present) continue;
    if (info.shape == nullptr || info.type == DataType::kString) {
      return Unimplemented(StrCat(what, " takes and gives dense tensors of numbers alone"));
    }
    operand.type = info.type;
    operand.dims = info.shape->dims();
  }
  return operands;
}

Result<PluginOperands> PluginOperands::Create(const PrepareContext& context,
                                              const std::string& what) {
  PluginOperands operands;
  ONNXD_ASSIGN_OR_RETURN(operands.inputs_, Describe(context.inputs, what));
  ONNXD_ASSIGN_OR_RETURN(operands.outputs_, Describe(context.outputs, what));
  return operands;
}

void PluginOperands::Fill(const KernelContext& kernel, Tensors& tensors) const {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    tensors.inputs[i] = ToPluginTensor(inputs_[i].type, inputs_[i].dims,
                                       const_cast<std::byte*>(kernel.input<std::byte>(i)));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    tensors.outputs[i] =
        ToPluginTensor(outputs_[i].type, outputs_[i].dims, kernel.output<std::byte>(i));
  }
}

}  // namespace onnxd
