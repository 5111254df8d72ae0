// The nodes that bring values from one side to the other.
#include <algorithm>
#include <iterator>
#include <map>

#include "runtime/base/str_cat.h"
#include "runtime/graph/shape_nodes.h"
#include "runtime/session/device_partition.h"
#include "runtime/session/partitioner.h"

namespace onnxd {
namespace {

using Providers = std::span<const std::shared_ptr<const ExecutionProvider>>;

constexpr std::string_view kToDevice = "CopyToDevice", kToHost = "CopyToHost";

class CopyInsertion {
 public:
  CopyInsertion(Graph& graph, Providers providers) : graph_(graph), providers_(providers) {}

  Status Run() {
    on_device_.assign(graph_.value_count(), false);
    std::vector<Node> nodes = std::move(graph_.nodes);
    graph_.nodes.clear();
    for (Node& node : nodes) {
      ONNXD_ASSIGN_OR_RETURN(const std::vector<bool> wants_device, SidesOf(node));
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        if (!ReadsOnlyShapes(node)) Bring(node.inputs[i], wants_device[i]);
      }
      for (ValueId& id : node.captures) Bring(id, false);
      const bool device = RunsOnDevice(node);
      for (const ValueId id : node.outputs) {
        if (id != kNoValue) on_device_[static_cast<size_t>(id)] = device;
      }
      graph_.nodes.push_back(std::move(node));
    }
    for (ValueId& id : graph_.outputs) Bring(id, false);
    // What the device does after its inputs came is then one piece, which it may record.
    graph_.nodes.insert(graph_.nodes.begin(), std::make_move_iterator(of_inputs_.begin()),
                        std::make_move_iterator(of_inputs_.end()));
    return Status::Ok();
  }

 private:
  bool RunsOnDevice(const Node& node) const {
    for (const auto& provider : providers_) {
      if (provider->name() == node.provider) return provider->device() != nullptr;
    }
    return false;
  }

  // Per input, whether the node's kernel reads it on the device.
  Result<std::vector<bool>> SidesOf(const Node& node) {
    std::vector<bool> sides(node.inputs.size(), false);
    if (!RunsOnDevice(node)) return sides;
    ONNXD_ASSIGN_OR_RETURN(const CompiledNode compiled,
                           MakeAssignedKernel(graph_, node, providers_));
    for (size_t i = 0; i < sides.size(); ++i) sides[i] = !compiled.kernel->ReadsOnHost(i);
    return sides;
  }

  // Lets `id` be the value on the wanted side. Constants are on both.
  void Bring(ValueId& id, bool wants_device) {
    if (id == kNoValue || graph_.IsInitializer(id)) return;
    if (on_device_[static_cast<size_t>(id)] == wants_device) return;
    auto [copy, added] = copies_.emplace(id, kNoValue);
    if (added) {
      const ValueInfo info = graph_.value(id);
      const std::string_view op = wants_device ? kToDevice : kToHost;
      copy->second = graph_.AddUniqueValue(
          StrCat(info.name, wants_device ? "_on_device" : "_on_host"), info.type);
      on_device_.resize(graph_.value_count(), wants_device);
      Node node;
      node.name = StrCat(op, " ", info.name);
      node.domain = "onnxd";
      node.op_type = op;
      node.since_version = 1;
      node.inputs = {id};
      node.outputs = {copy->second};
      node.provider = "session";
      const bool of_input =
          std::find(graph_.inputs.begin(), graph_.inputs.end(), id) != graph_.inputs.end();
      (wants_device && of_input ? of_inputs_ : graph_.nodes).push_back(std::move(node));
    }
    id = copy->second;
  }

  Graph& graph_;
  const Providers providers_;
  std::vector<bool> on_device_;        // by value
  std::map<ValueId, ValueId> copies_;  // the value on the other side
  std::vector<Node> of_inputs_;        // copies of graph inputs to the device
};

}  // namespace

bool IsCopyNode(const Node& node) {
  return node.Is(kToDevice, "onnxd") || node.Is(kToHost, "onnxd");
}

std::unique_ptr<Kernel> MakeCopyKernel(const Node& node) {
  return MakeKernel(
      [in = node.op_type == kToDevice](const PrepareContext& context) -> Result<PreparedKernel> {
        const auto bytes = static_cast<size_t>(
            TensorBytes(context.inputs[0].type, context.InputShape(0).ElementCount()).value_or(0));
        PreparedKernel prepared;
        prepared.compute = [in, bytes](const KernelContext& k) {
          void* const to = k.output<void>(0);
          const void* const from = k.input<void>(0);
          return in ? k.stream().CopyIn(to, from, bytes) : k.stream().CopyOut(to, from, bytes);
        };
        return prepared;
      });
}

Status InsertCopies(Graph& graph, Providers providers) {
  if (DeviceOf(providers) == nullptr) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(CopyInsertion(graph, providers).Run());
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes.entries()) {
      auto* inner = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (inner != nullptr) ONNXD_RETURN_IF_ERROR(InsertCopies(**inner, providers));
    }
  }
  return graph.Verify();
}

}  // namespace onnxd
