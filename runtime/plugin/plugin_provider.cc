#include "runtime/plugin/plugin_provider.h"

#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin_device.h"
#include "runtime/plugin/plugin_host.h"
#include "runtime/plugin/plugin_operands.h"

namespace onnxd {
namespace {

// A node that the plug-in took.
class PluginNode {
 public:
  PluginNode(const OnnxdExecutionProvider& described, std::string what, void* kernel)
      : described_(described), what_(std::move(what)), kernel_(kernel) {}
  PluginNode(const PluginNode&) = delete;
  PluginNode& operator=(const PluginNode&) = delete;
  ~PluginNode() {
    if (described_.destroy == nullptr) return;
    OnnxdContext context;
    // There is nobody to tell.
    static_cast<void>(CallPlugin(context, what_, [&] {
      described_.destroy(kernel_);
      return ONNXD_OK;
    }));
  }

  const std::string& what() const { return what_; }
  OnnxdStatus Compute(OnnxdContext& context, void* stream, const PluginOperands& operands,
                      PluginOperands::Tensors& tensors) const {
    return described_.compute(&PluginHost(), &context, kernel_, stream, tensors.inputs.data(),
                              operands.input_count(), tensors.outputs.data(),
                              operands.output_count());
  }

 private:
  const OnnxdExecutionProvider& described_;
  const std::string what_;
  void* const kernel_;
};

class PluginProviderKernel : public Kernel {
 public:
  PluginProviderKernel(std::shared_ptr<const PluginNode> node, PluginDevice* device,
                       std::vector<bool> on_host)
      : node_(std::move(node)), device_(device), on_host_(std::move(on_host)) {}

  bool ReadsOnHost(size_t input) const override {
    return input < on_host_.size() && on_host_[input];
  }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    ONNXD_ASSIGN_OR_RETURN(PluginOperands operands, PluginOperands::Create(context, node_->what()));
    PreparedKernel prepared;
    prepared.compute = [node = node_, device = device_,
                        operands = std::move(operands)](const KernelContext& kernel) {
      PluginOperands::Tensors tensors;
      operands.Fill(kernel, tensors);
      void* const stream = device == nullptr ? nullptr : PluginStreamOf(kernel.stream());
      OnnxdContext context;
      Status status = CallPlugin(context, node->what(),
                                 [&] { return node->Compute(context, stream, operands, tensors); });
      return device == nullptr ? status : device->Watched(std::move(status));
    };
    return prepared;
  }

 private:
  const std::shared_ptr<const PluginNode> node_;
  PluginDevice* const device_;  // null: the host's memory
  const std::vector<bool> on_host_;
};

class PluginProvider : public ExecutionProvider {
 public:
  PluginProvider(std::string plugin, const OnnxdExecutionProvider& described, void* provider)
      : plugin_(std::move(plugin)), described_(described), provider_(provider) {
    if (described.device != nullptr) {
      device_ = std::make_unique<PluginDevice>(plugin_, *described.device, provider);
    }
  }

  std::string_view name() const override { return described_.name; }
  Device* device() const override { return device_.get(); }

  bool Knows(const Node& node) const override {
    OnnxdContext context;
    int32_t knows = 0;
    const Status status = CallPlugin(context, "knows", [&] {
      knows = described_.knows(provider_, node.domain.c_str(), node.op_type.c_str(),
                               node.since_version);
      return ONNXD_OK;
    });
    return status.ok() && knows != 0;
  }

  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    if (info.node.inputs.size() > kMaxPluginOperands ||
        info.node.outputs.size() > kMaxPluginOperands) {
      return Unimplemented(
          StrCat(Describe(info.node), " has more than ", kMaxPluginOperands, " operands"));
    }
    for (const auto types : {info.input_types, info.output_types}) {
      for (const ValueType& type : types) {
        if (!type.known() || (type.is_tensor() && type.element != DataType::kString)) continue;
        return Unimplemented(StrCat(Describe(info.node), " has an operand of type ", ToString(type),
                                    ", plug-ins compute tensors of numbers"));
      }
    }
    std::vector<bool> on_host(info.node.inputs.size());
    OnnxdContext context;
    context.node = &info.node;
    context.kernel = &info;
    context.on_host = &on_host;
    void* kernel = nullptr;
    const std::string what = StrCat(Describe(info.node), ": plug-in '", plugin_, "', ");
    ONNXD_RETURN_IF_ERROR(CallPlugin(context, what + "create", [&] {
      return described_.create(&PluginHost(), &context, provider_, info.only_asks ? 1 : 0, &kernel);
    }));
    auto node = std::make_shared<const PluginNode>(described_, what + "compute", kernel);
    return std::unique_ptr<Kernel>(
        std::make_unique<PluginProviderKernel>(std::move(node), device_.get(), std::move(on_host)));
  }

 private:
  const std::string plugin_;
  const OnnxdExecutionProvider& described_;
  void* const provider_;
  std::unique_ptr<PluginDevice> device_;
};

}  // namespace

Status CheckPluginProvider(const OnnxdExecutionProvider& described) {
  if (described.struct_size < sizeof(OnnxdExecutionProvider)) {
    return InvalidArgument("its provider's description is too short");
  }
  if (described.open == nullptr || described.knows == nullptr || described.create == nullptr ||
      described.compute == nullptr) {
    return InvalidArgument("its provider lacks open, knows, create or compute");
  }
  const OnnxdDevice* const device = described.device;
  if (device == nullptr) return Status::Ok();
  if (device->struct_size < sizeof(OnnxdDevice)) {
    return InvalidArgument("its device's description is too short");
  }
  if (device->allocate == nullptr || device->free == nullptr || device->make_stream == nullptr ||
      device->destroy_stream == nullptr || device->copy_in == nullptr ||
      device->copy_out == nullptr || device->copy_within == nullptr ||
      device->synchronize == nullptr) {
    return InvalidArgument("its device lacks functions");
  }
  return Status::Ok();
}

Result<std::shared_ptr<const ExecutionProvider>> OpenPluginProvider(
    const std::string& plugin, const OnnxdExecutionProvider& described,
    const PluginOptions& options) {
  OnnxdContext context;
  context.options = &options;
  void* provider = nullptr;
  ONNXD_RETURN_IF_ERROR(
      CallPlugin(context, StrCat("provider ", described.name, " of plug-in '", plugin, "', open"),
                 [&] { return described.open(&PluginHost(), &context, &provider); }));
  return std::shared_ptr<const ExecutionProvider>(
      std::make_shared<const PluginProvider>(plugin, described, provider));
}

}  // namespace onnxd
