#include "runtime/providers/fused/fused_provider.h"

#include "runtime/fusion/attention.h"
#include "runtime/fusion/channels_last.h"
#include "runtime/fusion/dequantize_folding.h"
#include "runtime/fusion/merged_products.h"
#include "runtime/fusion/narrow_masks.h"
#include "runtime/fusion/rotary_positions.h"
#include "runtime/fusion/weight_casts.h"
#include "runtime/providers/fused/fused_kernels.h"
#include "runtime/providers/fused/passes/fusion.h"
#include "runtime/providers/fused/passes/gemm_rows.h"
#include "runtime/providers/fused/passes/narrow_products.h"
#include "runtime/providers/fused/passes/reduction_axes.h"
#include "runtime/providers/fused/passes/transposed_rows.h"
#include "runtime/providers/gpu/gpu_provider.h"

namespace onnxd {
namespace {

class FusedProvider : public ExecutionProvider {
 public:
  FusedProvider(std::shared_ptr<GpuDevice> device, std::set<std::string> float_layers)
      : device_(device),
        single_(MakeGpuProvider("fused", std::move(device))),
        channels_last_(ChannelsLastOnDevice(*device_)),
        quantized_operators_(QuantizedFormsOnDevice(float_layers)),
        narrow_products_(std::move(float_layers)) {}

  std::string_view name() const override { return "fused"; }
  Device* device() const override { return device_.get(); }
  bool Computes(Precision precision) const override { return precision != Precision::kBfloat16x3; }
  bool Knows(const Node& node) const override {
    return node.Is("Fused", "onnxd") || single_->Knows(node);
  }

  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    if (info.node.Is("Fused", "onnxd")) return MakeFused(info, *device_);
    return single_->CreateKernel(info);
  }

  std::vector<const GraphPass*> Passes() const override {
    return {RotaryPositionsFusion(true),
            AttentionFusion(true),
            NarrowMasks(),
            MergedProducts(),
            GemmOfRows(),
            TransposedRows(),
            WeightCasts(),
            &quantized_operators_,
            DequantizeFolding(),
            &narrow_products_,
            ReductionAxesAsAttribute(),
            &channels_last_,
            NeighbourFusion()};
  }

 private:
  const std::shared_ptr<GpuDevice> device_;
  const std::shared_ptr<const ExecutionProvider> single_;
  const ChannelsLastPass channels_last_;
  const QuantizedOperatorsPass quantized_operators_;
  const NarrowProducts narrow_products_;
};

}  // namespace

std::shared_ptr<const ExecutionProvider> MakeFusedProvider(std::shared_ptr<GpuDevice> device,
                                                           std::set<std::string> float_layers) {
  return std::make_shared<FusedProvider>(std::move(device), std::move(float_layers));
}

}  // namespace onnxd
