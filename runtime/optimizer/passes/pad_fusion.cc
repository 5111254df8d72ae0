#include <algorithm>
#include <functional>

#include "runtime/graph/graph_match.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

constexpr int64_t kMostPadding = 1 << 20;  // along one axis, of both together

// The rows and columns of zeros that a Pad node adds, as attribute pads of Conv: those at the begin
// of each spatial axis, then those at its end. Nullopt for any other padding.
std::optional<std::vector<int64_t>> ZerosAround(const Graph& graph, const Node& pad) {
  const auto rank = RankOf(graph, pad.inputs[0]);
  if (!rank || *rank < 3 || pad.since_version < 2 ||
      pad.attributes.String("mode", "constant") != "constant" || pad.input(3) != kNoValue) {
    return std::nullopt;
  }
  const bool by_attributes = pad.since_version < 11;
  const auto pads = by_attributes ? pad.attributes.Ints("pads") : IntsConstant(graph, pad.input(1));
  std::optional<float> value = pad.attributes.Float("value", 0);
  if (pad.input(2) != kNoValue) value = ScalarConstant(graph, pad.input(2));
  const auto axes = static_cast<size_t>(*rank);
  if (!pads || pads->size() != 2 * axes || value != 0.0f) return std::nullopt;
  std::vector<int64_t> spatial;
  for (const size_t side : {size_t{0}, axes}) {
    if ((*pads)[side] != 0 || (*pads)[side + 1] != 0) return std::nullopt;
    spatial.insert(spatial.end(), pads->begin() + static_cast<std::ptrdiff_t>(side) + 2,
                   pads->begin() + static_cast<std::ptrdiff_t>(side + axes));
  }
  const bool within = std::all_of(spatial.begin(), spatial.end(), [](int64_t zeros) {
    return zeros >= 0 && zeros <= kMostPadding;
  });
  return within ? std::optional(std::move(spatial)) : std::nullopt;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "pad_fusion"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  Result<bool> Run(Graph& graph, const PassContext&) const override {
    const GraphMatcher match(graph);
    bool changed = false;
    for (Node& node : graph.nodes) {
      if (!node.Is("Conv")) continue;
      const Node* pad = match.Producer(node.inputs[0], "Pad");
      if (pad == nullptr) continue;
      const auto zeros = ZerosAround(graph, *pad);
      const std::string auto_pad = node.attributes.String("auto_pad", "NOTSET");
      if (!zeros || (auto_pad != "NOTSET" && auto_pad != "VALID" && !auto_pad.empty())) continue;
      std::vector<int64_t> pads = *zeros;
      const std::vector<int64_t> own = node.attributes.Ints("pads");
      if (auto_pad != "VALID" && !own.empty()) {
        if (own.size() != pads.size()) continue;
        std::transform(own.begin(), own.end(), pads.begin(), pads.begin(), std::plus<>());
      }
      node.attributes.Erase("auto_pad");
      node.attributes.Set("pads", std::move(pads));
      node.inputs[0] = pad->inputs[0];
      changed = true;
    }
    return changed;
  }
};

}  // namespace

const GraphPass* PadFusion() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
