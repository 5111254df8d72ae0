#include "runtime/providers/cpu/cpu_provider.h"

#include "runtime/base/str_cat.h"
#include "runtime/fusion/attention.h"
#include "runtime/fusion/dequantize_folding.h"
#include "runtime/fusion/narrow_masks.h"
#include "runtime/fusion/rotary_positions.h"
#include "runtime/fusion/weight_casts.h"
#include "runtime/kernel/kernel_registry.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/fast_kernels.h"
#include "runtime/providers/cpu/passes/constant_captures.h"
#include "runtime/providers/cpu/passes/cpu_conv_activation.h"
#include "runtime/providers/cpu/passes/elementwise_chain.h"
#include "runtime/providers/cpu/passes/expanded_indices.h"
#include "runtime/providers/cpu/passes/float_computation.h"
#include "runtime/providers/cpu/passes/hard_swish.h"
#include "runtime/providers/cpu/passes/quantized_operators.h"
#include "runtime/providers/cpu/passes/signal_rows.h"
#include "runtime/providers/cpu/string_movement.h"
#include "runtime/providers/cpu/widening.h"

namespace onnxd {

#define KERNEL(domain, op, first, last, factory) \
  Result<std::unique_ptr<Kernel>> factory(const KernelInfo&);
#include "runtime/providers/cpu/kernel_list.inc"
#undef KERNEL

namespace {

constexpr KernelEntry kKernels[] = {
#define KERNEL(domain, op, first, last, factory) {domain, #op, first, last, factory},
#include "runtime/providers/cpu/kernel_list.inc"
#undef KERNEL
};

class CpuProvider : public ExecutionProvider {
 public:
  CpuProvider() : kernels_(kKernels), fast_kernels_(FastKernels()) {}

  std::string_view name() const override { return "cpu"; }
  bool Computes(Precision precision) const override {
    return precision == Precision::kFloat32 || FastKernelsCompute(precision);
  }
  std::string cache_identity() const override {
    return StrCat("cpu ", math::CurrentSimd().name, " ", FastKernelsIdentity());
  }

  bool Knows(const Node& node) const override {
    return kernels_.Find(node) != nullptr || fast_kernels_.Find(node) != nullptr;
  }

  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    // A fast kernel may decline what the plain one takes.
    if (const KernelFactory factory = fast_kernels_.Find(info.node)) {
      auto kernel = factory(info);
      if (kernel.ok() || kernel.status().code() != StatusCode::kUnimplemented) return kernel;
    }
    const KernelFactory factory = kernels_.Find(info.node);
    if (factory == nullptr) {
      return Unimplemented(StrCat(Describe(info.node), ": operator version ",
                                  info.node.since_version, " is not supported"));
    }
    auto kernel = factory(info);
    const bool declined = !kernel.ok() && kernel.status().code() == StatusCode::kUnimplemented;
    if (declined && HasNarrowFloats(info)) return MakeWideningKernel(info, factory);
    if (declined && MovesStrings(info)) return MakeStringMovementKernel(info, factory);
    return kernel;
  }

  std::vector<const GraphPass*> Passes() const override {
    std::vector<const GraphPass*> passes = {
        FloatComputation(),        ConstantCaptures(),      RotaryPositionsFusion(false),
        AttentionFusion(false),    NarrowMasks(),           HardSwishFusion(),
        CpuConvActivationFusion(), WeightCasts(),           QuantizedOperators(),
        QuantizedSignals(),        QuantizedConvInFloats(), DynamicQuantizedProducts(),
        DynamicQuantizedConvs(),   DequantizeFolding(),     ExpandedIndices()};
    const auto fast = FastPasses();
    passes.insert(passes.end(), fast.begin(), fast.end());
    passes.push_back(ElementwiseChains());
    return passes;
  }

 private:
  KernelRegistry kernels_;
  KernelRegistry fast_kernels_;
};

}  // namespace

std::shared_ptr<const ExecutionProvider> MakeCpuProvider() {
  return std::make_shared<CpuProvider>();
}

}  // namespace onnxd
