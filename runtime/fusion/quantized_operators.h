// Operators between DequantizeLinear and QuantizeLinear become operators on bytes.
#pragma once

#include <functional>
#include <set>
#include <string>

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// What a provider computes of bytes.
struct QuantizedForms {
  // Whether it has a kernel for this QLinearConv-10, whose weights are constant; may add
  // initializers.
  std::function<bool(Graph&, const Node&)> takes_conv;
  // com.microsoft QLinearAdd, QLinearMul, QLinearConcat, QLinearGlobalAveragePool and
  // MatMulIntegerToFloat.
  bool pairs_and_pools = true;
  // Names of values: what makes them stays as it is.
  std::set<std::string> float_layers = {};
};

// Conv, MatMul and Gemm become QLinearConv, QLinearMatMul and com.microsoft QGemm, Add, Mul, Concat
// and GlobalAveragePool their forms where there are such; what only moves elements moves bytes.
// Activations between that only bound become bounds of bytes. Level extended.
class QuantizedOperatorsPass : public GraphPass {
 public:
  explicit QuantizedOperatorsPass(QuantizedForms forms) : forms_(std::move(forms)) {}

  std::string_view name() const override { return "quantized_operators"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }
  Result<bool> Run(Graph& graph, const PassContext& context) const override;

 private:
  const QuantizedForms forms_;
};

}  // namespace onnxd
