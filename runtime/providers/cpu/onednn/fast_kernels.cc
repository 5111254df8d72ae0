#include "runtime/providers/cpu/fast_kernels.h"

#include <algorithm>
#include <dnnl.hpp>

#include "runtime/base/str_cat.h"
#include "runtime/fusion/channels_last.h"
#include "runtime/graph/graph_match.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/onednn/bfloat16_speed.h"
#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/onednn/passes/expand_depthwise.h"
#include "runtime/providers/cpu/onednn/passes/gated_conv.h"
#include "runtime/providers/cpu/onednn/passes/group_normalization.h"
#include "runtime/providers/cpu/onednn/passes/matmul_epilogue.h"
#include "runtime/providers/cpu/onednn/passes/narrow_weights.h"
#include "runtime/providers/cpu/onednn/passes/planar_conv.h"
#include "runtime/providers/cpu/onednn/passes/reduced_precision.h"
#include "runtime/providers/cpu/onednn/passes/signal_images.h"
#include "runtime/providers/cpu/onednn/passes/sub_pixel_conv.h"
#include "runtime/providers/cpu/onednn/passes/volume_images.h"
#include "runtime/providers/cpu/onednn/passes/wide_groups.h"
#include "runtime/providers/cpu/onednn/passes/winograd.h"
#include "runtime/providers/cpu/onednn/quantized_conv.h"

namespace onnxd {

Result<std::unique_ptr<Kernel>> MakeConstantGemm(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeConstantMatMul(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeConvChannelsLast(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeExpandDepthwise(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeGatedConv(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeMatMulBiasActivation(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeMatMulNarrowWeights(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakePlanarConv(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakePoolChannelsLast(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeGlobalAveragePoolChannelsLast(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeGroupNormalizationChannelsLast(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeQLinearConvChannelsLast(const KernelInfo&);

std::span<const KernelEntry> FastKernels() {
  static constexpr KernelEntry kEntries[] = {
      {"", "Gemm", 1, kLatestVersion, MakeConstantGemm},
      {"", "MatMul", 1, kLatestVersion, MakeConstantMatMul},
      {"onnxd", "AveragePoolChannelsLast", 1, kLatestVersion, MakePoolChannelsLast},
      {"onnxd", "ConvChannelsLast", 1, kLatestVersion, MakeConvChannelsLast},
      {"onnxd", "ExpandDepthwise", 1, kLatestVersion, MakeExpandDepthwise},
      {"onnxd", "GatedConv", 1, kLatestVersion, MakeGatedConv},
      {"onnxd", "GlobalAveragePoolChannelsLast", 1, kLatestVersion,
       MakeGlobalAveragePoolChannelsLast},
      {"onnxd", "GroupNormalizationChannelsLast", 1, kLatestVersion,
       MakeGroupNormalizationChannelsLast},
      {"onnxd", "MatMulBiasActivation", 1, kLatestVersion, MakeMatMulBiasActivation},
      {"onnxd", "MatMulNarrowWeights", 1, kLatestVersion, MakeMatMulNarrowWeights},
      {"onnxd", "MaxPoolChannelsLast", 1, kLatestVersion, MakePoolChannelsLast},
      {"onnxd", "PlanarConv", 1, kLatestVersion, MakePlanarConv},
      {"onnxd", "PlanarDepthwise", 1, kLatestVersion, MakeExpandDepthwise},
      {"onnxd", "QLinearConvChannelsLast", 1, kLatestVersion, MakeQLinearConvChannelsLast},
  };
  return kEntries;
}

std::string FastKernelsIdentity() {
  const dnnl_version_t* version = dnnl_version();
  return StrCat("oneDNN ", version->major, ".", version->minor, ".", version->patch, " ",
                version->hash, " ", static_cast<int>(dnnl::get_effective_cpu_isa()));
}

bool FastKernelsCompute(Precision precision) {
  constexpr double kWorthIt = 1.4;  // conversions take back in part what products win
  switch (precision) {
    case Precision::kFloat32:
      return true;
    case Precision::kFloat16:
      return false;
    case Precision::kBfloat16:
      return math::CurrentSimd().fast_bfloat16 || onednn::Bfloat16Speed() > kWorthIt;
    case Precision::kBfloat16x3:
      return math::CurrentSimd().fast_bfloat16;
  }
  return false;
}

bool TakesQuantizedConv(const Graph& graph, const Node& node) {
  const auto pads = node.attributes.Ints("pads");
  const bool is_fast = !math::CurrentSimd().wide_bytes || onednn::OwnProductsAreFaster();
  return is_fast && std::none_of(pads.begin(), pads.end(), [](int64_t pad) { return pad < 0; }) &&
         onednn::IsQuantizedConv(graph, node);
}

std::vector<const GraphPass*> FastPasses() {
  static const ChannelsLastPass channels_last(
      {.types = {DataType::kFloat, DataType::kInt8, DataType::kUint8},
       .conv = [](const Graph& graph, const Node& node) { return IsFloat(graph, node.input(0)); },
       .byte_conv = TakesQuantizedConv});
  return {SubPixelConv(),      GroupNormalizationFusion(),
          VolumeImages(),      SignalImages(),
          &channels_last,      WideGroups(),
          WinogradSelection(), PlanarConvFusion(),
          GatedConvFusion(),   ExpandDepthwiseFusion(),
          MatMulEpilogue(),    ReducedPrecision(),
          NarrowWeights()};
}

}  // namespace onnxd
