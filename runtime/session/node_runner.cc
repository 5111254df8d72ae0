#include "runtime/session/node_runner.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/session/value_check.h"

namespace onnxd {
namespace {

bool IsDense(const Value& value) {
  return value.is_tensor() && value.tensor().type() != DataType::kString;
}

OperandInfo InfoOf(const Value& value, bool known) {
  OperandInfo info;
  info.present = !value.absent();
  info.kind = KindOf(value);
  if (!value.is_tensor()) return info;
  info.type = value.tensor().type();
  info.shape = &value.tensor().shape();
  // Null elements: a packed weight.
  const bool readable = value.tensor().raw() != nullptr && value.tensor().device() == nullptr;
  if (known && readable) info.value = &value.tensor();
  return info;
}

}  // namespace

Result<PreparedNode> PreparedNode::Make(const Request& request, const std::vector<bool>& known) {
  const Node& node = request.node;
  PreparedNode made;
  made.max_kept_scratch_ = request.max_kept_scratch;
  made.buffers_ = request.buffers;
  made.side_ = request.side;
  made.device_ = request.device;
  made.stream_ = request.stream;
  std::vector<ValueType> types;
  std::vector<const Tensor*> elements;
  std::vector<OperandInfo> input_infos, output_infos;
  for (size_t i = 0; i < request.inputs.size(); ++i) {
    const Value& value = request.inputs[i];
    input_infos.push_back(InfoOf(value, known[i]));
    const OperandInfo& info = input_infos.back();
    made.inputs_.push_back(
        {info.kind, info.present, info.type, info.shape != nullptr ? *info.shape : Shape()});
    types.push_back(value.is_tensor() ? ValueType::TensorOf(info.type, ToSymbolic(*info.shape))
                                      : ValueType{});
    elements.push_back(info.value);
  }
  ONNXD_ASSIGN_OR_RETURN(const auto inferred, InferNode(node, types, elements));
  int64_t bytes = 0;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueType& type = inferred[i].known() ? inferred[i] : request.output_types[i];
    OperandInfo info;
    info.present = node.outputs[i] != kNoValue;
    info.kind = type.kind;
    info.type = type.element;
    output_infos.push_back(info);
    made.outputs_.push_back({info.present, type.is_tensor(), type.element, std::nullopt});
    if (!info.present || !type.is_tensor() || type.element == DataType::kString || !type.shape) {
      continue;
    }
    std::optional<Shape>& shape = made.outputs_.back().shape;
    shape = ToConcrete(*type.shape);
    if (!shape) continue;
    ONNXD_RETURN_IF_ERROR(shape->Validate().WithContext(Describe(node)));
    bytes += TensorBytes(type.element, shape->ElementCount()).value_or(request.max_bytes);
    if (bytes > request.max_bytes) {
      return ResourceExhausted(StrCat(Describe(node), " needs ", bytes,
                                      " bytes for its outputs, the limit is ", request.max_bytes));
    }
  }
  for (size_t i = 0; i < output_infos.size(); ++i) {
    if (made.outputs_[i].shape) output_infos[i].shape = &*made.outputs_[i].shape;
  }
  ONNXD_ASSIGN_OR_RETURN(
      made.prepared_, request.kernel.Prepare({node, input_infos, output_infos, request.threads}));
  if (static_cast<int64_t>(made.prepared_.scratch_bytes) > request.max_bytes) {
    return ResourceExhausted(StrCat(Describe(node), " needs ", made.prepared_.scratch_bytes,
                                    " bytes of scratch, the limit is ", request.max_bytes));
  }
  if (made.prepared_.make_state) {
    ONNXD_ASSIGN_OR_RETURN(made.state_, made.prepared_.make_state());
  }
  return made;
}

bool PreparedNode::complete() const {
  return std::all_of(outputs_.begin(), outputs_.end(), [](const Output& output) {
    return !output.present || output.shape ||
           (output.is_tensor && output.type == DataType::kString);
  });
}

bool PreparedNode::Fits(std::span<const Value> inputs) const {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& expected = inputs_[i];
    if (expected.present == inputs[i].absent() || expected.kind != KindOf(inputs[i])) return false;
    if (inputs[i].is_tensor() && (inputs[i].tensor().type() != expected.type ||
                                  !(inputs[i].tensor().shape() == expected.shape))) {
      return false;
    }
  }
  return true;
}

Result<std::vector<Value>> PreparedNode::Run(std::span<const Value> inputs, ThreadPool& pool) {
  std::vector<Value> outputs(outputs_.size());
  std::vector<void*> pointers;
  pointers.reserve(inputs.size() + outputs.size());
  for (const Value& value : inputs) {
    void* pointer = nullptr;
    if (IsDense(value)) {
      pointer = const_cast<void*>(value.tensor().raw());
    } else if (!value.absent()) {
      pointer = const_cast<Value*>(&value);
    }
    pointers.push_back(pointer);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    void* pointer = nullptr;
    if (outputs_[i].shape) {
      ONNXD_ASSIGN_OR_RETURN(Tensor tensor, NewOutput(outputs_[i]));
      outputs[i] = std::move(tensor);
      pointer = outputs[i].tensor().mutable_raw();
    } else if (outputs_[i].present) {
      pointer = &outputs[i];
    }
    pointers.push_back(pointer);
  }
  for (const auto& [output, input] : prepared_.views) {
    const Tensor& source = inputs[static_cast<size_t>(input)].tensor();
    const auto to = static_cast<size_t>(output);
    outputs[to] = source.Reshaped(*outputs_[to].shape);
  }
  ONNXD_ASSIGN_OR_RETURN(const std::shared_ptr<void> scratch, Scratch());
  const std::span all(pointers);
  ONNXD_RETURN_IF_ERROR(
      prepared_.compute(KernelContext(all.first(inputs.size()), all.subspan(inputs.size()),
                                      scratch.get(), state_.get(), &pool, stream_)));
  if (prepared_.on_failure) {
    ONNXD_ASSIGN_OR_RETURN(const DeviceFailure failure, stream_->TakeFailure());
    if (failure.code != 0) return prepared_.on_failure(failure);
  }
  if (side_ == Side::kToHost) ONNXD_RETURN_IF_ERROR(stream_->Synchronize());
  return outputs;
}

Buffer PreparedNode::HostMemory(size_t bytes) const {
  return buffers_ != nullptr ? buffers_->Take(bytes) : AllocateBuffer(bytes);
}

Result<Tensor> PreparedNode::NewOutput(const Output& output) const {
  if (WritesDevice(side_)) return Tensor::CreateOn(*device_, output.type, *output.shape);
  if (buffers_ == nullptr) return Tensor::Create(output.type, *output.shape);
  return buffers_->MakeTensor(output.type, *output.shape);
}

Result<std::shared_ptr<void>> PreparedNode::Scratch() {
  if (scratch_ != nullptr || prepared_.scratch_bytes == 0) return scratch_;
  if (side_ == Side::kDevice) {
    // What the device still works in must not be let go.
    ONNXD_ASSIGN_OR_RETURN(scratch_, device_->Allocate(prepared_.scratch_bytes));
    return scratch_;
  }
  const Buffer made = HostMemory(prepared_.scratch_bytes);
  if (made == nullptr) return ResourceExhausted("no memory for scratch");
  std::shared_ptr<void> scratch(made, made.get());
  if (prepared_.scratch_bytes <= max_kept_scratch_) scratch_ = scratch;
  return scratch;
}

Result<std::vector<Value>> RunNode(const PreparedNode::Request& request, ThreadPool& pool) {
  const TensorLimit limit(request.max_bytes);
  const std::vector<bool> all(request.inputs.size(), true);
  ONNXD_ASSIGN_OR_RETURN(PreparedNode prepared, PreparedNode::Make(request, all));
  auto outputs = prepared.Run(request.inputs, pool);
  // Scratch goes with `prepared`.
  if (request.stream != nullptr) ONNXD_RETURN_IF_ERROR(request.stream->Synchronize());
  return outputs;
}

Result<std::vector<Value>> RunNode(const PreparedNode::Request& request,
                                   const std::vector<bool>& constant, KeptNode& kept,
                                   ThreadPool& pool) {
  if (kept.depends_on_elements) return RunNode(request, pool);
  const TensorLimit limit(request.max_bytes);
  if (kept.prepared && kept.prepared->Fits(request.inputs)) {
    return kept.prepared->Run(request.inputs, pool);
  }
  auto prepared = PreparedNode::Make(request, constant);
  if (prepared.ok() && prepared->complete()) {
    kept.prepared = std::move(*prepared);
    return kept.prepared->Run(request.inputs, pool);
  }
  kept.depends_on_elements = true;
  return RunNode(request, pool);
}

}  // namespace onnxd
