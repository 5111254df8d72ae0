#include "runtime/providers/cpu/string_movement.h"

#include <algorithm>
#include <array>

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/cpu/eager_kernel.h"

namespace onnxd {
namespace {

constexpr std::array<std::string_view, 17> kMoving = {
    "Concat",   "DepthToSpace", "Expand", "Flatten",   "Gather",   "GatherElements",
    "GatherND", "OneHot",       "Pad",    "Reshape",   "Slice",    "SpaceToDepth",
    "Split",    "Squeeze",      "Tile",   "Transpose", "Unsqueeze"};

bool IsString(const ValueType& type) {
  return type.is_tensor() && type.element == DataType::kString;
}

std::vector<ValueType> AsNumbers(std::span<const ValueType> types) {
  std::vector<ValueType> numbers(types.begin(), types.end());
  for (ValueType& type : numbers) {
    if (IsString(type)) type.element = DataType::kInt64;
  }
  return numbers;
}

// Strings and the numbers that stand for them; 0 is the empty string.
class Numbering {
 public:
  Result<Tensor> Number(const Tensor& strings) {
    ONNXD_ASSIGN_OR_RETURN(Tensor numbers, Tensor::Create(DataType::kInt64, strings.shape()));
    int64_t* out = numbers.mutable_data<int64_t>();
    for (const std::string& text : strings.elements<std::string>()) {
      strings_.push_back(&text);
      *out++ = static_cast<int64_t>(strings_.size());
    }
    return numbers;
  }

  Result<Tensor> Strings(const Tensor& numbers) const {
    ONNXD_ASSIGN_OR_RETURN(Tensor strings, Tensor::Create(DataType::kString, numbers.shape()));
    std::string* out = strings.mutable_data<std::string>();
    for (const int64_t number : numbers.elements<int64_t>()) {
      if (number > 0) *out = *strings_[static_cast<size_t>(number - 1)];
      ++out;
    }
    return strings;
  }

 private:
  std::vector<const std::string*> strings_;
};

Result<std::vector<Value>> Move(const Kernel& inner, const Node& node,
                                std::span<const Value> inputs) {
  Numbering numbering;
  std::vector<Tensor> tensors;
  std::vector<ValueType> types;
  std::vector<const Tensor*> known;
  bool any_string = false;
  for (const Value& input : inputs) {
    Tensor tensor = input.is_tensor() ? input.tensor() : Tensor();
    if (tensor.type() == DataType::kString) {
      any_string = true;
      ONNXD_ASSIGN_OR_RETURN(tensor, numbering.Number(tensor));
    }
    tensors.push_back(std::move(tensor));
  }
  if (!any_string) return Internal(StrCat(Describe(node), ": no strings to move"));
  std::vector<OperandInfo> input_infos;
  std::vector<void*> input_pointers;
  for (Tensor& tensor : tensors) {
    const bool present = tensor.defined();
    types.push_back(present ? ValueType::TensorOf(tensor.type(), ToSymbolic(tensor.shape()))
                            : ValueType{});
    known.push_back(present ? &tensor : nullptr);
    input_infos.push_back({present, types.back().kind, tensor.type(),
                           present ? &tensor.shape() : nullptr, known.back()});
    input_pointers.push_back(present ? tensor.mutable_raw() : nullptr);
  }
  ONNXD_ASSIGN_OR_RETURN(const auto inferred, InferNode(node, types, known));
  std::vector<Tensor> outputs(node.outputs.size());
  std::vector<OperandInfo> output_infos;
  std::vector<void*> output_pointers;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const auto shape = inferred[i].shape ? ToConcrete(*inferred[i].shape) : std::nullopt;
    if (!shape)
      return Unimplemented(StrCat(Describe(node), ": strings of a shape that the data decide"));
    ONNXD_ASSIGN_OR_RETURN(outputs[i], Tensor::Create(DataType::kInt64, *shape));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const bool present = node.outputs[i] != kNoValue;
    output_infos.push_back(
        {present, ValueType::Kind::kTensor, DataType::kInt64, &outputs[i].shape(), nullptr});
    output_pointers.push_back(present ? outputs[i].mutable_raw() : nullptr);
  }
  ONNXD_ASSIGN_OR_RETURN(const PreparedKernel prepared,
                         inner.Prepare({node, input_infos, output_infos, 1}));
  for (const auto& [output, input] : prepared.views) {
    const Tensor& source = tensors[static_cast<size_t>(input)];
    std::copy_n(source.data<int64_t>(), source.ElementCount(),
                outputs[static_cast<size_t>(output)].mutable_data<int64_t>());
  }
  const Buffer scratch = AllocateBuffer(prepared.scratch_bytes);
  if (scratch == nullptr) return ResourceExhausted("no memory for scratch");
  static ThreadPool caller_only(1);
  const KernelContext context(input_pointers, output_pointers, scratch.get(), nullptr,
                              &caller_only);
  ONNXD_RETURN_IF_ERROR(prepared.compute(context));
  std::vector<Value> results;
  for (const Tensor& output : outputs) {
    ONNXD_ASSIGN_OR_RETURN(Tensor strings, numbering.Strings(output));
    results.emplace_back(std::move(strings));
  }
  return results;
}

}  // namespace

bool MovesStrings(const KernelInfo& info) {
  if (!info.node.domain.empty() ||
      std::find(kMoving.begin(), kMoving.end(), info.node.op_type) == kMoving.end()) {
    return false;
  }
  return std::any_of(info.input_types.begin(), info.input_types.end(), IsString);
}

Result<std::unique_ptr<Kernel>> MakeStringMovementKernel(const KernelInfo& info,
                                                         KernelFactory make) {
  const std::vector<ValueType> inputs = AsNumbers(info.input_types);
  const std::vector<ValueType> outputs = AsNumbers(info.output_types);
  const auto no_constants = [](size_t) -> const Initializer* { return nullptr; };
  ONNXD_ASSIGN_OR_RETURN(auto made, make({info.node, inputs, outputs, no_constants}));
  return MakeEagerKernel(
      [inner = std::shared_ptr<const Kernel>(std::move(made))](
          const Node& node, std::span<const Value> values) { return Move(*inner, node, values); });
}

}  // namespace onnxd
