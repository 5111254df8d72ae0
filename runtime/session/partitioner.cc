#include "runtime/session/partitioner.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

std::vector<ValueType> TypesOf(const Graph& graph, const std::vector<ValueId>& ids) {
  std::vector<ValueType> types;
  for (const ValueId id : ids) {
    types.push_back(id == kNoValue ? ValueType{} : graph.value(id).type);
  }
  return types;
}

using Providers = std::span<const std::shared_ptr<const ExecutionProvider>>;

Result<std::unique_ptr<Kernel>> Ask(const Graph& graph, const Node& node,
                                    const ExecutionProvider& provider, bool only_asks) {
  const std::vector<ValueType> inputs = TypesOf(graph, node.inputs);
  const std::vector<ValueType> outputs = TypesOf(graph, node.outputs);
  const auto constant_input = [&](size_t i) -> const Initializer* {
    const auto found = graph.initializers.find(node.input(i));
    return found == graph.initializers.end() ? nullptr : &found->second;
  };
  return provider.CreateKernel({node, inputs, outputs, constant_input, only_asks});
}

Result<CompiledNode> Assign(const Graph& graph, const Node& node, Providers providers,
                            bool only_asks) {
  std::string reasons;
  for (const auto& provider : providers) {
    auto kernel = Ask(graph, node, *provider, only_asks);
    if (kernel.ok()) {
      CompiledNode compiled;
      compiled.kernel = std::move(*kernel);
      compiled.provider = provider->name();
      if (provider->device() != nullptr) compiled.side = Side::kDevice;
      return compiled;
    }
    if (kernel.status().code() != StatusCode::kUnimplemented) {
      return kernel.status().WithContext(Describe(node));
    }
    reasons +=
        StrCat(reasons.empty() ? "" : "; ", provider->name(), ": ", kernel.status().message());
  }
  return Unimplemented(StrCat(Describe(node), " runs on no provider (", reasons, ")"));
}

}  // namespace

Result<CompiledNode> AssignProvider(const Graph& graph, const Node& node, Providers providers) {
  return Assign(graph, node, providers, false);
}

Result<CompiledNode> MakeAssignedKernel(const Graph& graph, const Node& node, Providers providers) {
  for (const auto& provider : providers) {
    if (provider->name() == node.provider) {
      return Assign(graph, node, std::span(&provider, 1), false);
    }
  }
  return Assign(graph, node, providers, false);
}

Status CanTake(const Graph& graph, const Node& node, const ExecutionProvider& provider) {
  return Ask(graph, node, provider, true).status();
}

Status CanAssignProvider(const Graph& graph, const Node& node, Providers providers) {
  return Assign(graph, node, providers, true).status();
}

}  // namespace onnxd
