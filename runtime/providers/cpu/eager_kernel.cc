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
Result<std::vector<Value>> Call(const EagerFunction& function, const Node& node,
                                std::span<const Value> inputs) {
  auto results = CatchExceptions([&] { return function(node, inputs); });
  if (results.ok() || results.status().message().starts_with("node")) return results;
  return results.status().WithContext(Describe(node));
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
  if (tensor.bytes() > 0) std::memcpy(k.output<void>(index), tensor.raw(), tensor.bytes());
  return Status::Ok();
}

}  // namespace

std::unique_ptr<Kernel> MakeEagerKernel(EagerFunction function) {
  auto shared = std::make_shared<const EagerFunction>(std::move(function));
  return MakeKernel([shared](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
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
      ONNXD_ASSIGN_OR_RETURN(std::vector<Value> results, Call(*shared, *node, values));
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
