#include "runtime/graph/graph.h"

#include <algorithm>
#include <queue>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

template <typename Visit>
void ForEachOperand(const Node& node, Visit visit) {
  for (const ValueId id : node.inputs) {
    if (id != kNoValue) visit(id);
  }
  for (const ValueId id : node.captures) {
    if (id != kNoValue) visit(id);
  }
}

}  // namespace

std::string Describe(const Node& node) {
  const std::string op =
      node.domain.empty() ? node.op_type : StrCat(node.domain, "::", node.op_type);
  return StrCat("node '", node.name, "' (", op, ")");
}

ValueId Graph::AddValue(std::string value_name, ValueType type) {
  const auto id = static_cast<ValueId>(values_.size());
  if (!value_name.empty()) names_.insert_or_assign(value_name, id);
  values_.push_back({std::move(value_name), std::move(type)});
  return id;
}

ValueId Graph::AddUniqueValue(const std::string& hint, ValueType type) {
  std::string candidate = hint;
  while (candidate.empty() || names_.contains(candidate)) {
    candidate = StrCat(hint, "__", ++unique_);
  }
  return AddValue(std::move(candidate), std::move(type));
}

ValueId Graph::AddInitializer(const std::string& hint, Tensor tensor) {
  return AddInitializer(hint, Initializer(std::move(tensor)));
}

ValueId Graph::AddInitializer(const std::string& hint, Initializer initializer) {
  const ValueId id = AddUniqueValue(
      hint, ValueType::TensorOf(initializer.type(), ToSymbolic(initializer.shape())));
  initializers[id] = std::move(initializer);
  return id;
}

ValueId Graph::FindValue(const std::string& value_name) const {
  const auto found = names_.find(value_name);
  return found == names_.end() ? kNoValue : found->second;
}

bool Graph::IsOutput(ValueId id) const {
  return std::find(outputs.begin(), outputs.end(), id) != outputs.end();
}

void Graph::ReplaceUses(ValueId from, ValueId to) {
  if (IsOutput(from)) {
    std::swap(value(from).name, value(to).name);
    names_[value(from).name] = from;
    names_[value(to).name] = to;
  }
  for (Node& node : nodes) {
    std::replace(node.inputs.begin(), node.inputs.end(), from, to);
    std::replace(node.captures.begin(), node.captures.end(), from, to);
  }
  std::replace(outputs.begin(), outputs.end(), from, to);
}

Status Graph::SortNodes() {
  std::vector<int> producers(values_.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const ValueId id : nodes[i].outputs) {
      if (id != kNoValue) producers[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }
  std::vector<int> waiting(nodes.size(), 0);
  std::vector<std::vector<int>> dependents(nodes.size());
  for (size_t i = 0; i < nodes.size(); ++i) {
    ForEachOperand(nodes[i], [&](ValueId id) {
      const int producer = producers[static_cast<size_t>(id)];
      if (producer < 0) return;
      ++waiting[i];
      dependents[static_cast<size_t>(producer)].push_back(static_cast<int>(i));
    });
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (waiting[i] == 0) ready.push(static_cast<int>(i));
  }
  std::vector<Node> sorted;
  sorted.reserve(nodes.size());
  std::vector<bool> placed(nodes.size(), false);
  while (!ready.empty()) {
    const auto i = static_cast<size_t>(ready.top());
    ready.pop();
    placed[i] = true;
    for (const int next : dependents[i]) {
      if (--waiting[static_cast<size_t>(next)] == 0) ready.push(next);
    }
    sorted.push_back(std::move(nodes[i]));
  }
  if (sorted.size() != nodes.size()) {
    const auto stuck = std::find(placed.begin(), placed.end(), false) - placed.begin();
    return InvalidArgument(
        StrCat(Describe(nodes[static_cast<size_t>(stuck)]), " is part of a cycle"));
  }
  nodes = std::move(sorted);
  return Status::Ok();
}

Status Graph::Verify() const {
  std::vector<bool> defined(values_.size(), false);
  const auto in_range = [&](ValueId id) {
    return id >= 0 && static_cast<size_t>(id) < values_.size();
  };
  const auto define = [&](ValueId id) -> Status {
    if (!in_range(id)) return Internal(StrCat("value id ", id, " is out of range"));
    if (defined[static_cast<size_t>(id)]) {
      return InvalidArgument(StrCat("value '", value(id).name, "' has more than one producer"));
    }
    defined[static_cast<size_t>(id)] = true;
    return Status::Ok();
  };
  for (const ValueId id : inputs) ONNXD_RETURN_IF_ERROR(define(id));
  for (const ValueId id : captures) {
    if (id != kNoValue) ONNXD_RETURN_IF_ERROR(define(id));
  }
  for (const auto& [id, initializer] : initializers) ONNXD_RETURN_IF_ERROR(define(id));
  for (const Node& node : nodes) {
    Status operands;
    ForEachOperand(node, [&](ValueId id) {
      if (operands.ok() && (!in_range(id) || !defined[static_cast<size_t>(id)])) {
        operands = InvalidArgument(StrCat(Describe(node), " uses '",
                                          in_range(id) ? value(id).name : StrCat(id),
                                          "', which nothing before it produces"));
      }
    });
    ONNXD_RETURN_IF_ERROR(operands);
    for (const auto& [attribute_name, attribute] : node.attributes.entries()) {
      if (const auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
        ONNXD_RETURN_IF_ERROR((*subgraph)->Verify().WithContext(
            StrCat(Describe(node), " attribute '", attribute_name, "'")));
      }
    }
    for (const ValueId id : node.outputs) {
      if (id == kNoValue) continue;
      const Status defined = define(id);
      if (!defined.ok()) return defined.WithContext(Describe(node));
    }
  }
  for (const ValueId id : outputs) {
    if (!in_range(id) || !defined[static_cast<size_t>(id)]) {
      return InvalidArgument(StrCat("graph output '", in_range(id) ? value(id).name : StrCat(id),
                                    "' is produced by nothing"));
    }
  }
  return Status::Ok();
}

GraphIndex::GraphIndex(const Graph& graph)
    : producers_(graph.value_count(), -1),
      uses_(graph.value_count(), 0),
      consumers_(graph.value_count()) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    ForEachOperand(node, [&](ValueId id) {
      ++uses_[static_cast<size_t>(id)];
      consumers_[static_cast<size_t>(id)].push_back(static_cast<int>(i));
    });
    for (const ValueId id : node.outputs) {
      if (id != kNoValue) producers_[static_cast<size_t>(id)] = static_cast<int>(i);
    }
  }
  for (const ValueId id : graph.outputs) ++uses_[static_cast<size_t>(id)];
}

}  // namespace onnxd
