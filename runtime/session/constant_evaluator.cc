#include "runtime/session/constant_evaluator.h"

#include <limits>

#include "runtime/ops/shape_inference.h"
#include "runtime/session/node_runner.h"

namespace onnxd {
namespace {
constexpr int64_t kNodeBudget = int64_t{64} << 20;
constexpr int64_t kTotalBudget = int64_t{256} << 20;

// Weights in 8 bits or fewer become floats, up to 16 times as large: all of them, or runs would do
// it.
bool IsBoundedByItsWeights(const Node& node) { return node.Is("DequantizeLinear"); }

}  // namespace

ConstantEvaluator MakeConstantEvaluator(
    std::vector<std::shared_ptr<const ExecutionProvider>> providers,
    std::shared_ptr<ThreadPool> pool) {
  // What is folded is a constant for every provider: the last one on the host takes every operator.
  std::erase_if(providers, [](const auto& provider) { return provider->device() != nullptr; });
  auto spent = std::make_shared<int64_t>(0);
  return [providers = std::move(providers), pool = std::move(pool), spent](
             const Node& node,
             const std::vector<Tensor>& inputs) -> std::optional<std::vector<Tensor>> {
    std::vector<ValueType> types;
    std::vector<const Tensor*> known;
    std::vector<Value> values;
    for (const Tensor& input : inputs) {
      types.push_back(input.defined() ? ValueType::TensorOf(input.type(), ToSymbolic(input.shape()))
                                      : ValueType{});
      known.push_back(input.defined() ? &input : nullptr);
      values.push_back(input.defined() ? Value(input) : Value());
    }
    const auto inferred = InferNode(node, types, known);
    if (!inferred.ok()) return std::nullopt;
    const auto no_initializers = [](size_t) -> const Initializer* { return nullptr; };
    const auto kernel = providers.back()->CreateKernel({node, types, *inferred, no_initializers});
    if (!kernel.ok()) return std::nullopt;
    const bool has_budget = !IsBoundedByItsWeights(node);
    const int64_t budget = has_budget ? std::min(kNodeBudget, kTotalBudget - *spent)
                                      : std::numeric_limits<int64_t>::max();
    auto results = RunNode({**kernel, node, values, *inferred, pool->threads(), budget}, *pool);
    if (!results.ok()) return std::nullopt;
    std::vector<Tensor> tensors;
    for (const Value& value : *results) {
      if (!value.absent() && !value.is_tensor()) return std::nullopt;
      tensors.push_back(value.absent() ? Tensor() : value.tensor());
      if (has_budget) *spent += static_cast<int64_t>(tensors.back().bytes());
    }
    return tensors;
  };
}

}  // namespace onnxd
