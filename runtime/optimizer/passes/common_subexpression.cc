#include <bit>
#include <set>
#include <unordered_map>

#include "runtime/base/str_cat.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// Operators whose results differ from call to call.
bool IsRandom(const Node& node) {
  static const std::set<std::string_view> random = {
      "Bernoulli",        "Dropout",       "Multinomial",      "RandomNormal",
      "RandomNormalLike", "RandomUniform", "RandomUniformLike"};
  return random.contains(node.op_type);
}

// A text that equals another node's only if both compute the same; empty when that cannot be told.
std::string KeyOf(const Node& node) {
  if (!node.domain.empty() || IsRandom(node) || !node.captures.empty() || node.inputs.empty()) {
    return "";
  }
  std::string key = StrCat(node.op_type, "|", node.since_version, "|", node.outputs.size());
  for (const ValueId id : node.inputs) key += StrCat("|", id);
  for (const auto& [name, attribute] : node.attributes.entries()) {
    key += StrCat("|", name, "=");
    if (const auto* number = std::get_if<int64_t>(&attribute)) {
      key += StrCat(*number);
    } else if (const auto* numbers = std::get_if<std::vector<int64_t>>(&attribute)) {
      for (const int64_t each : *numbers) key += StrCat(each, ",");
    } else if (const auto* text = std::get_if<std::string>(&attribute)) {
      key += StrCat(text->size(), ":", *text);
    } else if (const auto* real = std::get_if<float>(&attribute)) {
      key += StrCat(std::bit_cast<uint32_t>(*real));
    } else {
      return "";
    }
  }
  return key;
}

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "common_subexpression"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }

  // In order, so that what uses a dropped node's result is seen with the kept one's.
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    std::unordered_map<std::string, size_t> first;  // position in `kept`
    std::unordered_map<ValueId, ValueId> replaced;
    const std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());
    std::vector<Node> kept;
    for (Node& node : graph.nodes) {
      for (auto* list : {&node.inputs, &node.captures}) {
        for (ValueId& id : *list) {
          if (const auto found = replaced.find(id); found != replaced.end()) id = found->second;
        }
      }
      const std::string key = KeyOf(node);
      bool drops = !key.empty();
      for (const ValueId id : node.outputs) drops = drops && !outputs.contains(id);
      const auto found = drops ? first.find(key) : first.end();
      if (found != first.end() && SameOutputs(kept[found->second], node)) {
        for (size_t i = 0; i < node.outputs.size(); ++i) {
          if (node.outputs[i] != kNoValue) {
            replaced[node.outputs[i]] = kept[found->second].outputs[i];
          }
        }
        continue;
      }
      if (!key.empty()) first.try_emplace(key, kept.size());
      kept.push_back(std::move(node));
    }
    graph.nodes = std::move(kept);
    return !replaced.empty();
  }

 private:
  // Optional outputs absent from the same places.
  static bool SameOutputs(const Node& a, const Node& b) {
    for (size_t i = 0; i < a.outputs.size(); ++i) {
      if ((a.outputs[i] == kNoValue) != (b.outputs[i] == kNoValue)) return false;
    }
    return true;
  }
};

}  // namespace

const GraphPass* CommonSubexpressionElimination() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
