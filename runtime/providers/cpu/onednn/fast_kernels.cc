#include "runtime/providers/cpu/fast_kernels.h"

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/onednn/passes/channels_last.h"
#include "runtime/providers/cpu/onednn/passes/matmul_epilogue.h"
#include "runtime/providers/cpu/onednn/passes/quantized_operators.h"
#include "runtime/providers/cpu/onednn/passes/winograd.h"
#include "runtime/providers/cpu/passes/dequantize_folding.h"

namespace onnxd {

Result<std::unique_ptr<Kernel>> MakeByteDynamicQuantizeMatMul(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeByteMatMulInteger(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeByteMatMulIntegerToFloat(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeByteQGemm(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeByteQLinearMatMul(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeConstantGemm(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeConstantMatMul(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeConvChannelsLast(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeMatMulBiasActivation(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakePoolChannelsLast(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeGlobalAveragePoolChannelsLast(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeQLinearConvChannelsLast(const KernelInfo&);

std::span<const KernelEntry> FastKernels() {
  static constexpr KernelEntry kEntries[] = {
      {"", "Gemm", 1, kLatestVersion, MakeConstantGemm},
      {"", "MatMul", 1, kLatestVersion, MakeConstantMatMul},
      {"", "MatMulInteger", 10, kLatestVersion, MakeByteMatMulInteger},
      {"", "QLinearMatMul", 10, kLatestVersion, MakeByteQLinearMatMul},
      {"com.microsoft", "DynamicQuantizeMatMul", 1, kLatestVersion, MakeByteDynamicQuantizeMatMul},
      {"com.microsoft", "MatMulIntegerToFloat", 1, kLatestVersion, MakeByteMatMulIntegerToFloat},
      {"com.microsoft", "QGemm", 1, kLatestVersion, MakeByteQGemm},
      {"onnxd", "AveragePoolChannelsLast", 1, kLatestVersion, MakePoolChannelsLast},
      {"onnxd", "ConvChannelsLast", 1, kLatestVersion, MakeConvChannelsLast},
      {"onnxd", "GlobalAveragePoolChannelsLast", 1, kLatestVersion,
       MakeGlobalAveragePoolChannelsLast},
      {"onnxd", "MatMulBiasActivation", 1, kLatestVersion, MakeMatMulBiasActivation},
      {"onnxd", "MaxPoolChannelsLast", 1, kLatestVersion, MakePoolChannelsLast},
      {"onnxd", "QLinearConvChannelsLast", 1, kLatestVersion, MakeQLinearConvChannelsLast},
  };
  return kEntries;
}

std::vector<const GraphPass*> FastPasses() {
  std::vector<const GraphPass*> passes;
  if (math::HasByteProducts()) passes = {QuantizedOperators(), DynamicQuantizedProducts()};
  passes.insert(passes.end(),
                {DequantizeFolding(), ChannelsLast(), WinogradSelection(), MatMulEpilogue()});
  return passes;
}

}  // namespace onnxd
