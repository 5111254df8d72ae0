#include "runtime/providers/cpu/widening.h"

#include <cstring>
#include <map>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/float_conversion.h"

namespace onnxd {
namespace {

bool IsNarrow(DataType type) {
  return IsFloatingPoint(type) && type != DataType::kFloat && type != DataType::kDouble;
}

DataType Wide(DataType type) { return IsNarrow(type) ? DataType::kFloat : type; }

std::vector<ValueType> Widened(std::span<const ValueType> types) {
  std::vector<ValueType> wide(types.begin(), types.end());
  for (ValueType& type : wide) {
    if (type.is_tensor()) type.element = Wide(type.element);
  }
  return wide;
}

size_t Aligned(size_t bytes) { return (bytes + kTensorAlignment - 1) & ~(kTensorAlignment - 1); }

// Where one operand is converted to or from.
struct Operand {
  DataType type = DataType::kUndefined;
  bool narrow = false;
  bool dense = false;
  Shape shape;
  int64_t count = 0;
  size_t offset = 0;  // of the float copy in scratch
};

struct WideningState : KernelState {
  std::vector<void*> inputs, outputs;
  std::vector<Value> values;  // converted copies of operands that are Values: inputs, then outputs
  std::unique_ptr<KernelState> inner;
};

struct Plan {
  std::vector<Operand> inputs, outputs;
  PreparedKernel inner;
  size_t inner_scratch = 0;
};

Operand Place(const OperandInfo& info, size_t& scratch) {
  Operand operand;
  operand.type = info.type;
  operand.narrow = info.present && IsNarrow(info.type) && info.kind == ValueType::Kind::kTensor;
  operand.dense = info.shape != nullptr;
  if (operand.dense) {
    operand.shape = *info.shape;
    operand.count = info.shape->ElementCount();
  }
  if (operand.narrow && operand.dense) {
    operand.offset = scratch;
    scratch += Aligned(static_cast<size_t>(operand.count) * sizeof(float));
  }
  return operand;
}

Status WidenInput(const Plan& plan, size_t i, const KernelContext& k, WideningState& state) {
  const Operand& operand = plan.inputs[i];
  void* given = const_cast<void*>(k.input<void>(i));
  state.inputs[i] = given;
  if (!operand.narrow || given == nullptr) return Status::Ok();
  if (!operand.dense) {
    ONNXD_ASSIGN_OR_RETURN(state.values[i], Converted(k.input_value(i).tensor(), DataType::kFloat));
    state.inputs[i] = &state.values[i];
    return Status::Ok();
  }
  state.inputs[i] = k.scratch<std::byte>() + operand.offset;
  ConvertFloats(operand.type, given, DataType::kFloat, state.inputs[i], operand.count);
  return Status::Ok();
}

Status NarrowOutput(const Plan& plan, size_t i, const KernelContext& k, WideningState& state) {
  const Operand& operand = plan.outputs[i];
  if (!operand.narrow || k.output<void>(i) == nullptr) return Status::Ok();
  if (operand.dense) {
    ConvertFloats(DataType::kFloat, state.outputs[i], operand.type, k.output<void>(i),
                    operand.count);
    return Status::Ok();
  }
  Value& value = state.values[plan.inputs.size() + i];
  if (value.is_tensor()) {
    ONNXD_ASSIGN_OR_RETURN(k.output_value(i), Converted(value.tensor(), operand.type));
  }
  value = Value();
  return Status::Ok();
}

Status Compute(const Plan& plan, const KernelContext& k) {
  auto& state = k.state<WideningState>();
  for (size_t i = 0; i < plan.inputs.size(); ++i) {
    ONNXD_RETURN_IF_ERROR(WidenInput(plan, i, k, state));
  }
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    const Operand& operand = plan.outputs[i];
    state.outputs[i] = k.output<void>(i);
    if (!operand.narrow || state.outputs[i] == nullptr) continue;
    state.outputs[i] = operand.dense ? static_cast<void*>(k.scratch<std::byte>() + operand.offset)
                                     : static_cast<void*>(&state.values[plan.inputs.size() + i]);
  }
  // What the inner kernel would leave to the planner as a view is copied here.
  for (const auto& [output, input] : plan.inner.views) {
    const auto to = static_cast<size_t>(output), from = static_cast<size_t>(input);
    const Operand& operand = plan.outputs[to];
    const size_t bytes =
        static_cast<size_t>(TensorBytes(Wide(operand.type), operand.count).value_or(0));
    if (bytes > 0) std::memcpy(state.outputs[to], state.inputs[from], bytes);
  }
  const KernelContext inner(state.inputs, state.outputs,
                            k.scratch<std::byte>() + plan.inner_scratch, state.inner.get(),
                            &k.pool());
  ONNXD_RETURN_IF_ERROR(plan.inner.compute(inner));
  for (size_t i = 0; i < plan.outputs.size(); ++i) {
    ONNXD_RETURN_IF_ERROR(NarrowOutput(plan, i, k, state));
  }
  return Status::Ok();
}

class WideningKernel : public Kernel {
 public:
  explicit WideningKernel(std::unique_ptr<Kernel> inner) : inner_(std::move(inner)) {}

  bool ReadsInput(size_t i) const override { return inner_->ReadsInput(i); }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    auto plan = std::make_shared<Plan>();
    std::vector<OperandInfo> inputs(context.inputs.begin(), context.inputs.end());
    std::vector<OperandInfo> outputs(context.outputs.begin(), context.outputs.end());
    std::vector<Tensor> known(inputs.size());
    size_t scratch = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      plan->inputs.push_back(Place(inputs[i], scratch));
      if (plan->inputs[i].narrow && inputs[i].value != nullptr) {
        ONNXD_ASSIGN_OR_RETURN(known[i], Converted(*inputs[i].value, DataType::kFloat));
        inputs[i].value = &known[i];
      }
      inputs[i].type = Wide(inputs[i].type);
    }
    for (OperandInfo& output : outputs) {
      plan->outputs.push_back(Place(output, scratch));
      output.type = Wide(output.type);
    }
    ONNXD_ASSIGN_OR_RETURN(plan->inner,
                           inner_->Prepare({context.node, inputs, outputs, context.threads}));
    plan->inner_scratch = scratch;
    PreparedKernel prepared;
    prepared.scratch_bytes = scratch + plan->inner.scratch_bytes;
    prepared.make_state = [plan]() -> Result<std::unique_ptr<KernelState>> {
      auto state = std::make_unique<WideningState>();
      state->inputs.resize(plan->inputs.size());
      state->outputs.resize(plan->outputs.size());
      state->values.resize(plan->inputs.size() + plan->outputs.size());
      if (plan->inner.make_state) {
        ONNXD_ASSIGN_OR_RETURN(state->inner, plan->inner.make_state());
      }
      return std::unique_ptr<KernelState>(std::move(state));
    };
    prepared.compute = [plan](const KernelContext& k) { return Compute(*plan, k); };
    return prepared;
  }

 private:
  std::unique_ptr<Kernel> inner_;
};

}  // namespace

bool HasNarrowFloats(const KernelInfo& info) {
  for (const auto& types : {info.input_types, info.output_types}) {
    for (const ValueType& type : types) {
      if (type.is_tensor() && IsNarrow(type.element)) return true;
    }
  }
  return false;
}

Result<std::unique_ptr<Kernel>> MakeWideningKernel(const KernelInfo& info, KernelFactory make) {
  const std::vector<ValueType> inputs = Widened(info.input_types);
  const std::vector<ValueType> outputs = Widened(info.output_types);
  std::map<size_t, Initializer> constants;
  Status failure;
  const auto constant_input = [&](size_t i) -> const Initializer* {
    const Initializer* narrow = info.constant_input(i);
    if (narrow == nullptr || !IsNarrow(narrow->type())) return narrow;
    if (const auto found = constants.find(i); found != constants.end()) return &found->second;
    auto tensor = narrow->Materialize();
    if (tensor.ok()) tensor = Converted(*tensor, DataType::kFloat);
    if (!tensor.ok()) {
      failure = tensor.status();
      return nullptr;
    }
    return &constants.emplace(i, Initializer(std::move(*tensor))).first->second;
  };
  auto kernel = make({info.node, inputs, outputs, constant_input});
  ONNXD_RETURN_IF_ERROR(failure);
  ONNXD_RETURN_IF_ERROR(kernel.status());
  return std::unique_ptr<Kernel>(std::make_unique<WideningKernel>(std::move(*kernel)));
}

}  // namespace onnxd
