#include "runtime/graph/repetition.h"

#include <algorithm>

namespace onnxd {
namespace {

bool IsAllTrue(const Graph& graph, const GraphMatcher& match, ValueId id) {
  if (const Node* expand = match.Producer(id, "Expand")) id = expand->inputs[0];
  const auto found = graph.initializers.find(id);
  if (found == graph.initializers.end() || found->second.type() != DataType::kBool) return false;
  const auto tensor = found->second.Materialize();
  if (!tensor.ok()) return false;
  const auto elements = tensor->elements<bool>();
  return std::all_of(elements.begin(), elements.end(), [](bool element) { return element; });
}

}  // namespace

ValueId BeforeRepetition(const Graph& graph, const GraphMatcher& match, ValueId id) {
  while (true) {
    ValueId before = kNoValue;
    if (const Node* expand = match.Producer(id, "Expand")) before = expand->inputs[0];
    if (const Node* both = match.Producer(id, "And")) {
      for (size_t i = 0; i < 2; ++i) {
        if (IsAllTrue(graph, match, both->inputs[i])) before = both->inputs[1 - i];
      }
    }
    if (before == kNoValue || RankOf(graph, before).value_or(0) < 2) break;
    id = before;
  }
  return id;
}

}  // namespace onnxd
