#include "runtime/session/function_expansion.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/ops/functions.h"
#include "runtime/ops/op_schema.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/session/partitioner.h"

namespace onnxd {
namespace {

using Providers = std::span<const std::shared_ptr<const ExecutionProvider>>;

// A pass expands what the types that the one before inferred allow: nodes in a row, or inside of
// each other, take one each.
constexpr int kMaxPasses = 256;
constexpr size_t kMaxNodes = 1 << 20;
constexpr size_t kMaxVisits = 1 << 24;  // nodes, over all passes

// Shapes, constants and what makes numbers of them are the host's anyway.
bool StaysOnHost(const Node& node) {
  static constexpr std::string_view kHost[] = {"Constant", "ConstantOfShape", "Range", "Shape",
                                               "Size"};
  return std::find(std::begin(kHost), std::end(kHost), node.op_type) != std::end(kHost);
}

// Whether a device computes the body's parts, where it would leave the node itself to the host.
bool SuitsDevice(const Graph& graph, const Node& node, const FunctionBody& body,
                 Providers providers) {
  for (const auto& provider : providers) {
    if (provider->device() == nullptr) return false;
    if (CanTake(graph, node, *provider).ok()) return false;
    const auto known = [&](const Node& part) {
      return provider->Knows(part) || StaysOnHost(part) || FindFunction(part) != nullptr;
    };
    if (body.All(known)) return true;
  }
  return false;
}

// A body for the node, in its place; 1 when it stays as it is, which `refusal` explains when no
// provider takes it.
Result<size_t> ExpandNode(Graph& graph, size_t position, Providers providers, Status& refusal) {
  const Node& node = graph.nodes[position];
  const FunctionExpansion expand = FindFunction(node);
  if (expand == nullptr) return size_t{1};
  const Status taken = CanAssignProvider(graph, node, providers);
  const bool needed = taken.code() == StatusCode::kUnimplemented;
  if (!needed && (!taken.ok() || providers.front()->device() == nullptr)) return size_t{1};
  std::vector<ValueType> types;
  for (const ValueId id : node.inputs) {
    types.push_back(id == kNoValue ? ValueType{} : graph.value(id).type);
  }
  FunctionBody body(node, types);
  const Status filled = expand(body);
  if (filled.code() == StatusCode::kUnimplemented) {
    if (needed && refusal.ok()) {
      refusal = Unimplemented(
          StrCat(taken.message(), "; it cannot be said in other operators: ", filled.message()));
    }
    return size_t{1};
  }
  ONNXD_RETURN_IF_ERROR(filled.WithContext(Describe(node)));
  if (!needed && !SuitsDevice(graph, node, body, providers)) return size_t{1};
  return body.Replace(graph, position);
}

Result<bool> ExpandOnce(Graph& graph, Providers providers, Status& refusal) {
  bool changed = false;
  for (size_t i = 0; i < graph.nodes.size();) {
    for (auto& [name, attribute] : graph.nodes[i].attributes.entries()) {
      auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (subgraph == nullptr) continue;
      ONNXD_ASSIGN_OR_RETURN(const bool inner, ExpandOnce(**subgraph, providers, refusal));
      changed |= inner;
    }
    const std::string replaced = graph.nodes[i].op_type;
    ONNXD_ASSIGN_OR_RETURN(const size_t count, ExpandNode(graph, i, providers, refusal));
    changed |= count != 1 || graph.nodes[i].op_type != replaced;
    i += count;
    if (graph.nodes.size() > kMaxNodes) {
      return ResourceExhausted(StrCat("function bodies grow beyond ", kMaxNodes, " nodes"));
    }
  }
  return changed;
}

}  // namespace

Status ExpandFunctions(Graph& graph, Providers providers) {
  size_t visits = 0;
  for (int pass = 0; pass < kMaxPasses && visits < kMaxVisits; ++pass) {
    Status refusal;
    ONNXD_ASSIGN_OR_RETURN(const bool changed, ExpandOnce(graph, providers, refusal));
    if (!changed) return refusal;
    visits += graph.nodes.size();
    ONNXD_RETURN_IF_ERROR(InferGraph(graph));
    ONNXD_RETURN_IF_ERROR(CheckGraph(graph));
  }
  return Status::Ok();
}

}  // namespace onnxd
