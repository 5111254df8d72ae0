#include "runtime/plugin/plugin_kernel.h"

#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin_host.h"
#include "runtime/plugin/plugin_operands.h"

namespace onnxd {
namespace {

std::string What(const std::string& plugin, const Node& node, std::string_view callback) {
  return StrCat(Describe(node), ": plug-in '", plugin, "', ", callback);
}

// A node's state, made by create.
class State {
 public:
  State(const OnnxdOperator& op, void* state) : op_(op), state_(state) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    if (op_.destroy == nullptr) return;
    OnnxdContext context;
    // There is nobody to tell.
    static_cast<void>(CallPlugin(context, "destroy", [&] {
      op_.destroy(state_);
      return ONNXD_OK;
    }));
  }
  void* get() const { return state_; }

 private:
  const OnnxdOperator& op_;
  void* state_;
};

struct PreparedNode {
  const OnnxdOperator& op;
  std::shared_ptr<const State> state;
  std::string what;
  PluginOperands operands;

  Status Compute(const KernelContext& kernel) const {
    PluginOperands::Tensors tensors;
    operands.Fill(kernel, tensors);
    OnnxdContext context;
    return CallPlugin(context, what, [&] {
      return op.compute(&PluginHost(), &context, state->get(), tensors.inputs.data(),
                        operands.input_count(), tensors.outputs.data(), operands.output_count());
    });
  }
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakePluginKernel(const std::string& plugin, const OnnxdOperator& op,
                                                 const KernelInfo& info) {
  for (const ValueType& type : info.input_types) {
    if (type.known() && (!type.is_tensor() || type.element == DataType::kString)) {
      return Unimplemented(StrCat(What(plugin, info.node, "input"), " of type ", ToString(type)));
    }
  }
  void* made = nullptr;
  if (op.create != nullptr) {
    OnnxdContext context;
    context.node = &info.node;
    ONNXD_RETURN_IF_ERROR(CallPlugin(context, What(plugin, info.node, "create"),
                                     [&] { return op.create(&PluginHost(), &context, &made); }));
  }
  auto state = std::make_shared<const State>(op, made);
  return MakeKernel([&op, plugin, state](const PrepareContext& context) -> Result<PreparedKernel> {
    const std::string what = What(plugin, context.node, "compute");
    ONNXD_ASSIGN_OR_RETURN(PluginOperands operands, PluginOperands::Create(context, what));
    auto node = std::make_shared<PreparedNode>(PreparedNode{op, state, what, std::move(operands)});
    PreparedKernel prepared;
    prepared.compute = [node](const KernelContext& kernel) { return node->Compute(kernel); };
    return prepared;
  });
}

Status InferWithPlugin(const std::string& plugin, const OnnxdOperator& op,
                       InferenceContext& inference) {
  OnnxdContext context;
  context.node = &inference.node();
  context.inference = &inference;
  const std::string what = What(plugin, inference.node(), "infer");
  ONNXD_RETURN_IF_ERROR(
      CallPlugin(context, what, [&] { return op.infer(&PluginHost(), &context); }));
  for (size_t i = 0; i < inference.input_count(); ++i) {
    const SymbolicShape* shape = inference.shape(i);
    if (inference.HasInput(i) && (shape == nullptr || !ToConcrete(*shape))) return Status::Ok();
  }
  for (size_t i = 0; i < inference.output_count(); ++i) {
    const ValueType& type = inference.outputs()[i];
    const bool asked_for = inference.node().outputs[i] != kNoValue;
    if (!asked_for || (type.is_tensor() && type.shape && ToConcrete(*type.shape))) continue;
    return Internal(StrCat(what, " leaves output ", i, " open though all inputs are known"));
  }
  return Status::Ok();
}

}  // namespace onnxd
