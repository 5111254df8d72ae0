#include "runtime/session/device_partition.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "runtime/base/str_cat.h"
#include "runtime/graph/shape_nodes.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/session/control_flow_nodes.h"
#include "runtime/session/minimum_cut.h"
#include "runtime/session/partitioner.h"

namespace onnxd {
namespace {

using Providers = std::span<const std::shared_ptr<const ExecutionProvider>>;

// Crossing costs a copy and, on the way back, a wait: more than any number of light nodes saves.
constexpr int64_t kCrossing = 1 << 20;
constexpr int64_t kLightNode = 1;
constexpr int64_t kShapeNode = 1 << 30;

// Operators whose time is their arithmetic's: those a device is there for. The time of all others
// is that of the memory they touch, and where they run matters less than a copy.
bool IsHeavy(const Node& node) {
  static constexpr std::string_view kHeavy[] = {"Attention",
                                                "AveragePool",
                                                "BatchNormalization",
                                                "Conv",
                                                "ConvInteger",
                                                "ConvTranspose",
                                                "DeformConv",
                                                "Einsum",
                                                "GRU",
                                                "Gemm",
                                                "GroupNormalization",
                                                "InstanceNormalization",
                                                "LRN",
                                                "LSTM",
                                                "LayerNormalization",
                                                "LogSoftmax",
                                                "LpPool",
                                                "MatMul",
                                                "MatMulInteger",
                                                "MaxPool",
                                                "QLinearConv",
                                                "QLinearMatMul",
                                                "RMSNormalization",
                                                "RNN",
                                                "RotaryEmbedding",
                                                "SimplifiedLayerNormalization",
                                                "Softmax"};
  if (!node.domain.empty()) return true;
  return std::find(std::begin(kHeavy), std::end(kHeavy), node.op_type) != std::end(kHeavy);
}

// What the sides would do with a node.
struct Offers {
  const ExecutionProvider* host = nullptr;
  const ExecutionProvider* device = nullptr;
  std::unique_ptr<Kernel> device_kernel;
};

class DevicePartition {
 public:
  // `body`: of control flow, which hands in and takes out values of the host.
  DevicePartition(Graph& graph, Providers providers, bool body)
      : graph_(graph), providers_(providers), body_(body), index_(graph) {}

  Status Run() {
    for (Node& node : graph_.nodes) {
      node.provider.clear();
      ONNXD_ASSIGN_OR_RETURN(Offers offers, Ask(node));
      offers_.push_back(std::move(offers));
    }
    shape_values_ = FindShapeValues(graph_);
    AddVertices();
    AddCrossings();
    const std::vector<bool> on_device = cut_.SourceSide();
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      Node& node = graph_.nodes[n];
      if (IsControlFlow(node)) {
        node.provider = "session";
      } else {
        const bool device = on_device[static_cast<size_t>(vertices_[n])];
        node.provider = (device ? offers_[n].device : offers_[n].host)->name();
      }
    }
    return Status::Ok();
  }

 private:
  Result<Offers> Ask(const Node& node) {
    Offers offers;
    if (IsControlFlow(node)) return offers;
    Status refused;
    for (const auto& provider : providers_) {
      const bool device = provider->device() != nullptr;
      if ((device ? offers.device : offers.host) != nullptr) continue;
      auto compiled = AssignProvider(graph_, node, std::span(&provider, 1));
      if (compiled.ok()) {
        (device ? offers.device : offers.host) = provider.get();
        if (device) offers.device_kernel = std::move(compiled->kernel);
      } else if (compiled.status().code() != StatusCode::kUnimplemented) {
        return compiled.status();
      }
    }
    if (offers.device == nullptr && offers.host == nullptr) {
      return CanAssignProvider(graph_, node, providers_);
    }
    return offers;
  }

  void AddVertices() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      const int vertex = cut_.AddVertex();
      vertices_.push_back(vertex);
      if (offers_[n].device == nullptr) {
        cut_.AddEdge(vertex, cut_.sink(), MinimumCut::kNever);
      } else if (offers_[n].host == nullptr) {
        cut_.AddEdge(cut_.source(), vertex, MinimumCut::kNever);
      } else if (ComputesShapes(node, shape_values_)) {
        cut_.AddEdge(vertex, cut_.sink(), kShapeNode);
      } else {
        cut_.AddEdge(cut_.source(), vertex, IsHeavy(node) ? MinimumCut::kNever : kLightNode);
      }
    }
  }

  // Whether the consumer, wherever it runs, wants the value in the host's memory.
  bool OnHostAnyway(size_t consumer, ValueId id) const {
    const Kernel* kernel = offers_[consumer].device_kernel.get();
    if (kernel == nullptr) return false;
    const Node& node = graph_.nodes[consumer];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == id && !kernel->ReadsOnHost(i)) return false;
    }
    return true;
  }

  // A value that both sides read costs one copy, however many read it: readers hang on a vertex of
  // the value that parts from its producer once.
  void AddCrossings() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      for (const ValueId id : graph_.nodes[n].outputs) {
        if (id != kNoValue) AddReaders(id, vertices_[n]);
      }
    }
    if (!body_) return;
    for (const ValueId id : graph_.inputs) AddReaders(id, cut_.sink());
    for (const ValueId id : graph_.captures) {
      if (id != kNoValue) AddReaders(id, cut_.sink());
    }
    for (const ValueId id : graph_.outputs) {
      const int producer = index_.producer(id);
      if (producer < 0) continue;
      cut_.AddEdge(vertices_[static_cast<size_t>(producer)], cut_.sink(), kCrossing);
    }
  }

  void AddReaders(ValueId id, int producer) {
    int to_host = -1, to_device = -1;
    for (const int consumer : index_.consumers(id)) {
      const auto c = static_cast<size_t>(consumer);
      if (ReadsOnlyShapes(graph_.nodes[c])) continue;
      if (to_host < 0) {
        to_host = cut_.AddVertex();
        to_device = cut_.AddVertex();
        cut_.AddEdge(producer, to_host, kCrossing);
        cut_.AddEdge(to_device, producer, kCrossing);
      }
      if (OnHostAnyway(c, id)) {
        cut_.AddEdge(to_host, cut_.sink(), MinimumCut::kNever);
        continue;
      }
      cut_.AddEdge(to_host, vertices_[c], MinimumCut::kNever);
      cut_.AddEdge(vertices_[c], to_device, MinimumCut::kNever);
    }
  }

  Graph& graph_;
  const Providers providers_;
  const bool body_;
  const GraphIndex index_;
  std::vector<Offers> offers_;  // one per node
  std::vector<bool> shape_values_;
  std::vector<int> vertices_;  // one per node
  MinimumCut cut_;
};

Status Partition(Graph& graph, Providers providers, bool body) {
  ONNXD_RETURN_IF_ERROR(DevicePartition(graph, providers, body).Run());
  for (Node& node : graph.nodes) {
    for (auto& [name, attribute] : node.attributes.entries()) {
      auto* inner = std::get_if<std::shared_ptr<Graph>>(&attribute);
      if (inner != nullptr) ONNXD_RETURN_IF_ERROR(Partition(**inner, providers, true));
    }
  }
  return Status::Ok();
}

}  // namespace

Device* DeviceOf(Providers providers) {
  for (const auto& provider : providers) {
    if (provider->device() != nullptr) return provider->device();
  }
  return nullptr;
}

Status PartitionGraph(Graph& graph, Providers providers) {
  if (DeviceOf(providers) == nullptr) return Status::Ok();
  return Partition(graph, providers, false);
}

std::vector<Placement> ExplainPartition(const Graph& graph, Providers providers) {
  std::vector<Placement> placements;
  for (const Node& node : graph.nodes) {
    Placement placement;
    placement.provider = node.provider;
    if (IsControlFlow(node)) placement.provider = "session";
    for (const auto& provider : providers) {
      if (provider->name() == placement.provider || placement.provider == "session") break;
      const Status taken = CanTake(graph, node, *provider);
      if (placement.provider.empty() && taken.ok()) {
        placement.provider = provider->name();
        break;
      }
      placement.reason += StrCat(placement.reason.empty() ? "" : "; ", provider->name(), ": ",
                                 taken.ok() ? "fewer values cross this way" : taken.message());
    }
    placements.push_back(std::move(placement));
  }
  return placements;
}

}  // namespace onnxd
