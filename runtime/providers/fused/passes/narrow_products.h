// Pass: products in float16 or bfloat16, where the session asks for that precision.
#pragma once

#include <set>
#include <string>

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// MatMul, Gemm, Conv and their like.
bool IsNarrowableProduct(const Node& node);

// Products of floats read and write the narrow type, which tensor cores multiply with sums of
// floats; so does what only moves elements between them. Cast nodes stand where float begins and
// ends, and become part of the kernels beside them. All else stays float, and products that make
// one of `float_layers` do.
class NarrowProducts : public GraphPass {
 public:
  explicit NarrowProducts(std::set<std::string> float_layers = {})
      : float_layers_(std::move(float_layers)) {}

  std::string_view name() const override { return "narrow_products"; }
  OptimizationLevel level() const override { return OptimizationLevel::kAll; }
  Result<bool> Run(Graph& graph, const PassContext& context) const override;

 private:
  const std::set<std::string> float_layers_;  // names of values
};

}  // namespace onnxd
