#include "runtime/providers/cpu/eager_kernel.h"

#include <cstring>
#include <optional>

#include "runtime/base/exceptions.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// How an operand reaches the kernel.
struct Operand {
  bool present = false;
  DataType type = DataType::kUndefined;
  std::optional<Shape> shape;  // of a dense tensor, else the operand is a Value
};

bool IsDense(const OperandInfo& info) {
  return info.present && info.kind == ValueType::Kind::kTensor && info.shape != nullptr &&
         info.type != DataType::kString;
}

bool AreAlike(const OperandInfo& a, const OperandInfo& b) {
  return IsDense(a) && IsDense(b) && a.type == b.type && *a.shape == *b.shape;
}

std::vector<Operand> Describe(std::span<const OperandInfo> infos) {
  std::vector<Operand> operands;
  for (const OperandInfo& info : infos) {
    Operand operand{info.present, info.type, std::nullopt};
    if (IsDense(info)) operand.shape = *info.shape;
    operands.push_back(std::move(operand));
  }
  return operands;
}

// Working memory of these functions is the standard library's, which throws when there is none.
Result<std::vector<Value>> Call(const EagerCallFunction& function, const EagerCall& call) {
  auto results = CatchExceptions([&] { return function(call); });
  if (results.ok() || results.status().message().starts_with("node")) return results;
  return results.status().WithContext(Describe(call.node));
}

Status Deliver(const Node& node, size_t index, const Operand& operand, Value value,
               const KernelContext& k) {
  if (!operand.present) return Status::Ok();
  if (!operand.shape) {
    k.output_value(index) = std::move(value);
    return Status::Ok();
  }
  if (!value.is_tensor() || value.tensor().type() != operand.type ||
      !(value.tensor().shape() == *operand.shape)) {
    return Internal(StrCat(Describe(node), ": output ", index, " is not the inferred ",
                           Describe(operand.type, *operand.shape)));
  }
  const Tensor& tensor = value.tensor();
  if (tensor.raw() == k.output<void>(index)) return Status::Ok();
  if (tensor.bytes() > 0) std::memcpy(k.output<void>(index), tensor.raw(), tensor.bytes());
  return Status::Ok();
}

std::vector<Tensor> PlacesOf(const std::vector<Operand>& outputs, const KernelContext& k) {
  std::vector<Tensor> places;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Operand& output = outputs[i];
    places.push_back(output.present && output.shape
                         ? Tensor::Wrap(output.type, *output.shape, k.output<void>(i), nullptr)
                         : Tensor());
  }
  return places;
}

}  // namespace

Result<Tensor> EagerCall::MakeOutput(size_t i, DataType type, const Shape& shape) const {
  const bool fits = i < places.size() && places[i].defined() && places[i].type() == type &&
                    places[i].shape() == shape;
  return fits ? places[i] : Tensor::Create(type, shape);
}

std::unique_ptr<Kernel> MakeEagerKernel(EagerFunction function) {
  return MakeEagerCallKernel([function = std::move(function)](const EagerCall& call) {
    return function(call.node, call.inputs);
  });
}

std::unique_ptr<Kernel> MakeEagerCallKernel(EagerCallFunction function,
                                            std::vector<std::pair<int, int>> in_place) {
  auto shared = std::make_shared<const EagerCallFunction>(std::move(function));
  return MakeKernel([shared, in_place](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    for (const auto& [output, input] : in_place) {
      const auto to = static_cast<size_t>(output), from = static_cast<size_t>(input);
      if (to < context.outputs.size() && from < context.inputs.size() &&
          AreAlike(context.outputs[to], context.inputs[from])) {
        prepared.in_place.emplace_back(output, input);
      }
    }
    prepared.compute = [shared, node = &context.node, inputs = Describe(context.inputs),
                        outputs = Describe(context.outputs)](const KernelContext& k) -> Status {
      std::vector<Value> values;
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!inputs[i].present) {
          values.emplace_back();
        } else if (inputs[i].shape) {
          values.emplace_back(Tensor::Wrap(inputs[i].type, *inputs[i].shape,
                                           const_cast<void*>(k.input<void>(i)), nullptr));
        } else {
          values.push_back(k.input_value(i));
        }
      }
      const std::vector<Tensor> places = PlacesOf(outputs, k);
      ONNXD_ASSIGN_OR_RETURN(std::vector<Value> results,
                             Call(*shared, {*node, values, k.pool(), places}));
      results.resize(outputs.size());
      for (size_t i = 0; i < outputs.size(); ++i) {
        ONNXD_RETURN_IF_ERROR(Deliver(*node, i, outputs[i], std::move(results[i]), k));
      }
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
