#include "runtime/providers/gpu/gpu_provider.h"

#include <algorithm>
#include <map>

#include "runtime/base/str_cat.h"
#include "runtime/fusion/attention.h"
#include "runtime/fusion/dequantize_folding.h"
#include "runtime/fusion/matmul_add.h"
#include "runtime/fusion/merged_products.h"
#include "runtime/fusion/narrow_masks.h"
#include "runtime/fusion/quantized_operators.h"
#include "runtime/fusion/rotary_positions.h"
#include "runtime/fusion/weight_casts.h"
#include "runtime/kernel/kernel_registry.h"
#include "runtime/providers/gpu/depthwise_product.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {

#define KERNEL(domain, op, first, last, factory) \
  Result<std::unique_ptr<Kernel>> factory(const KernelInfo&, GpuDevice&);
#include "runtime/providers/gpu/kernel_list.inc"
#undef KERNEL

namespace {

constexpr BasicKernelEntry<GpuKernelFactory> kKernels[] = {
#define KERNEL(domain, op, first, last, factory) {domain, #op, first, last, factory},
#include "runtime/providers/gpu/kernel_list.inc"
#undef KERNEL
};

// Strings, sequences, maps and optionals stay on the host.
Status CheckTensors(const KernelInfo& info) {
  for (const auto* types : {&info.input_types, &info.output_types}) {
    for (const ValueType& type : *types) {
      if (!type.known() || (type.is_tensor() && type.element != DataType::kString)) continue;
      return Unimplemented(StrCat(ToString(type), " is not for the device"));
    }
  }
  return Status::Ok();
}

// The layout has kernels of one group, and of a filter for each channel.
bool HasKernel(const Graph& graph, const Node& conv) {
  if (conv.attributes.Int("group", 1) == 1) return true;
  const auto weights = graph.initializers.find(conv.inputs[1]);
  return weights != graph.initializers.end() &&
         IsDepthwise(conv.attributes, weights->second.shape()) &&
         IsForDepthwise(conv.attributes, weights->second.shape()[3]);
}

// Whether no convolution needs the plain layout, and none is part of another node yet.
bool PaysOnDevice(const Graph& graph) {
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
    const bool is_conv = node.Is("Conv") || node.Is("FusedConv", "com.microsoft");
    return !node.Is("Fused", "onnxd") && (!is_conv || HasKernel(graph, node));
  });
}

class GpuProvider : public ExecutionProvider {
 public:
  GpuProvider(std::string name, std::shared_ptr<GpuDevice> device)
      : name_(std::move(name)),
        device_(std::move(device)),
        kernels_(kKernels),
        channels_last_(ChannelsLastOnDevice(*device_)) {}

  std::string_view name() const override { return name_; }
  Device* device() const override { return device_.get(); }
  bool Knows(const Node& node) const override { return kernels_.Find(node) != nullptr; }

  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    const GpuKernelFactory factory = kernels_.Find(info.node);
    if (factory == nullptr) {
      return Unimplemented(StrCat("it has no kernel for ", info.node.op_type));
    }
    ONNXD_RETURN_IF_ERROR(CheckTensors(info));
    return factory(info, *device_);
  }

  std::vector<const GraphPass*> Passes() const override {
    return {RotaryPositionsFusion(true),
            AttentionFusion(true),
            NarrowMasks(),
            MergedProducts(),
            WeightCasts(),
            &quantized_operators_,
            DequantizeFolding(),
            MatMulAddFusion(),
            &channels_last_};
  }

 private:
  const std::string name_;
  const std::shared_ptr<GpuDevice> device_;
  const BasicKernelRegistry<GpuKernelFactory> kernels_;
  const ChannelsLastPass channels_last_;
  const QuantizedOperatorsPass quantized_operators_{QuantizedFormsOnDevice()};
};

}  // namespace

ChannelsLastRules ChannelsLastOnDevice(const GpuDevice& device) {
  std::vector<DataType> types = {DataType::kFloat16, DataType::kBfloat16};
  if (device.properties().use_tf32) types.push_back(DataType::kFloat);
  const auto takes = [types](const Graph& graph, const Node& node) {
    const DataType type = graph.value(node.inputs[0]).type.element;
    const bool has_bias = node.input(2) != kNoValue;
    return std::find(types.begin(), types.end(), type) != types.end() && HasKernel(graph, node) &&
           (!has_bias || graph.value(node.inputs[2]).type.element == type);
  };
  // Images between a Cast and another may be floats.
  return {.types = {DataType::kFloat16, DataType::kBfloat16, DataType::kFloat},
          .conv = takes,
          .byte_conv = nullptr,
          .normalizes = false,
          .filters_last = true,
          .channels_of = 8,
          .pays = PaysOnDevice};
}

QuantizedForms QuantizedFormsOnDevice(std::set<std::string> float_layers) {
  const auto takes_conv = [](const Graph&, const Node&) { return true; };
  return {
      .takes_conv = takes_conv, .pairs_and_pools = false, .float_layers = std::move(float_layers)};
}

std::shared_ptr<const ExecutionProvider> MakeGpuProvider(std::string name,
                                                         std::shared_ptr<GpuDevice> device) {
  return std::make_shared<GpuProvider>(std::move(name), std::move(device));
}

}  // namespace onnxd
