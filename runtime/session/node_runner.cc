#include "runtime/session/node_runner.h"

#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"

namespace onnxd {
namespace {

bool IsDense(const Value& value) {
  return value.is_tensor() && value.tensor().type() != DataType::kString;
}

OperandInfo Describe(const Value& value) {
  OperandInfo info;
  info.present = !value.absent();
  if (value.is_tensor()) {
    info.kind = ValueType::Kind::kTensor;
    info.type = value.tensor().type();
    info.shape = &value.tensor().shape();
    if (value.tensor().raw() != nullptr) info.value = &value.tensor();  // null: a packed weight
  } else if (value.sequence() != nullptr) {
    info.kind = ValueType::Kind::kSequence;
  } else if (value.map() != nullptr) {
    info.kind = ValueType::Kind::kMap;
  } else if (value.optional() != nullptr) {
    info.kind = ValueType::Kind::kOptional;
  }
  return info;
}

}  // namespace

Result<std::vector<Value>> RunNode(const Kernel& kernel, const Node& node,
                                   std::span<const Value> inputs,
                                   std::span<const ValueType> output_types, ThreadPool& pool,
                                   int64_t max_bytes) {
  const TensorLimit limit(max_bytes);
  std::vector<ValueType> types;
  std::vector<const Tensor*> known;
  std::vector<OperandInfo> input_infos;
  for (const Value& value : inputs) {
    input_infos.push_back(Describe(value));
    types.push_back(value.is_tensor() ? ValueType::TensorOf(value.tensor().type(),
                                                            ToSymbolic(value.tensor().shape()))
                                      : ValueType{});
    known.push_back(input_infos.back().value);
  }
  ONNXD_ASSIGN_OR_RETURN(const auto inferred, InferNode(node, types, known));
  std::vector<Value> outputs(node.outputs.size());
  std::vector<OperandInfo> output_infos(node.outputs.size());
  std::vector<std::optional<Shape>> shapes(node.outputs.size());
  int64_t bytes = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    OperandInfo& info = output_infos[i];
    info.present = node.outputs[i] != kNoValue;
    const ValueType& type = inferred[i].known() ? inferred[i] : output_types[i];
    info.kind = type.kind;
    info.type = type.element;
    if (!info.present || !type.is_tensor() || type.element == DataType::kString || !type.shape) {
      continue;
    }
    shapes[i] = ToConcrete(*type.shape);
    if (!shapes[i]) continue;
    ONNXD_RETURN_IF_ERROR(shapes[i]->Validate().WithContext(onnxd::Describe(node)));
    info.shape = &*shapes[i];
    bytes += TensorBytes(type.element, shapes[i]->ElementCount()).value_or(max_bytes);
    if (bytes > max_bytes) {
      return ResourceExhausted(StrCat(onnxd::Describe(node), " needs ", bytes,
                                      " bytes for its outputs, the limit is ", max_bytes));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(const PreparedKernel prepared,
                         kernel.Prepare({node, input_infos, output_infos, pool.threads()}));
  if (static_cast<int64_t>(prepared.scratch_bytes) > max_bytes) {
    return ResourceExhausted(StrCat(onnxd::Describe(node), " needs ", prepared.scratch_bytes,
                                    " bytes of scratch, the limit is ", max_bytes));
  }
  std::vector<void*> input_pointers, output_pointers;
  for (const Value& value : inputs) {
    void* pointer = nullptr;
    if (IsDense(value)) {
      pointer = const_cast<void*>(value.tensor().raw());
    } else if (!value.absent()) {
      pointer = const_cast<Value*>(&value);
    }
    input_pointers.push_back(pointer);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    void* pointer = nullptr;
    if (shapes[i]) {
      ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(output_infos[i].type, *shapes[i]));
      outputs[i] = std::move(tensor);
      pointer = outputs[i].tensor().mutable_raw();
    } else if (output_infos[i].present) {
      pointer = &outputs[i];
    }
    output_pointers.push_back(pointer);
  }
  for (const auto& [output, input] : prepared.views) {
    const Tensor& source = inputs[static_cast<size_t>(input)].tensor();
    outputs[static_cast<size_t>(output)] = source.Reshaped(*shapes[static_cast<size_t>(output)]);
  }
  Buffer scratch;
  if (prepared.scratch_bytes > 0) {
    scratch = AllocateBuffer(prepared.scratch_bytes);
    if (scratch == nullptr) return ResourceExhausted("no memory for scratch");
  }
  std::unique_ptr<KernelState> state;
  if (prepared.make_state) {
    ONNXD_ASSIGN_OR_RETURN(state, prepared.make_state());
  }
  const KernelContext context(input_pointers, output_pointers, scratch.get(), state.get(), &pool);
  ONNXD_RETURN_IF_ERROR(prepared.compute(context));
  return outputs;
}

}  // namespace onnxd
