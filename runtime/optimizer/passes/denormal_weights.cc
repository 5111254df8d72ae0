#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

constexpr int64_t kMostElements = 1 << 16;  // of what is worth looking through
constexpr float kLeastNormal = std::numeric_limits<float>::min();
// Beside a weight of this size, those below the least normal are less than 1e-18 of it.
constexpr float kLargeEnough = 1e-20f;

bool IsDenormal(float x) { return (x != 0.0f) & (std::abs(x) < kLeastNormal); }

// The weights with zeros in place of denormals; nullopt where there are none, or no others.
std::optional<Tensor> WithoutDenormals(const Tensor& weights) {
  const auto elements = weights.elements<float>();
  if (std::count_if(elements.begin(), elements.end(), IsDenormal) == 0) return std::nullopt;
  const bool has_large = std::any_of(elements.begin(), elements.end(),
                                     [](float x) { return std::abs(x) >= kLargeEnough; });
  auto out = has_large ? Tensor::Create(DataType::kFloat, weights.shape())
                       : Result<Tensor>(Unimplemented("all are small"));
  if (!out.ok()) return std::nullopt;
  std::transform(elements.begin(), elements.end(), out->mutable_data<float>(),
                 [](float x) { return IsDenormal(x) ? 0.0f : x; });
  return *std::move(out);
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "denormal_weights"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("MatMul") && !node.Is("Gemm") && !node.Is("Conv")) continue;
      for (size_t i = 0; i < 2; ++i) changed = TryReplace(graph, node.inputs[i]) || changed;
    }
    return changed;
  }

 private:
  static bool TryReplace(Graph& graph, ValueId& input) {
    const auto found = graph.initializers.find(input);
    if (found == graph.initializers.end() || found->second.type() != DataType::kFloat ||
        found->second.shape().ElementCount() > kMostElements) {
      return false;
    }
    const auto weights = found->second.Materialize();
    if (!weights.ok()) return false;
    auto without = WithoutDenormals(*weights);
    if (!without) return false;
    input = graph.AddInitializer(StrCat(graph.value(input).name, "_normal"), *std::move(without));
    return true;
  }
};

}  // namespace

const GraphPass* DenormalWeights() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
