#include "runtime/providers/fused/passes/region.h"

#include <algorithm>

#include "runtime/providers/fused/body_writer.h"

namespace onnxd {

FinishedRegions::FinishedRegions(size_t node_count)
    : members_(node_count), set_of_(node_count), reaches_(node_count) {
  for (size_t n = 0; n < node_count; ++n) {
    members_[n] = {n};
    set_of_[n] = reaches_[n] = n;
  }
}

void FinishedRegions::Add(std::vector<size_t> members) {
  const auto [first, last] = std::minmax_element(members.begin(), members.end());
  for (size_t n = *first; n <= *last; ++n) reaches_[n] = std::min(reaches_[n], *first);
  for (const size_t member : members) set_of_[member] = members_.size();
  members_.push_back(std::move(members));
}

size_t FinishedRegions::CutBefore(size_t node) const {
  while (reaches_[node] < node) node = reaches_[node];
  return node;
}

bool Region::Fits(size_t node, ValueId like) const {
  const Node& candidate = graph_.nodes[node];
  return !taken_[node] && !Has(node) && IsPointwise(graph_, candidate) &&
         shapes_.Same(candidate.outputs[0], like);
}

bool Region::DependsOnMembers(ValueId id) const {
  const size_t cut = finished_.CutBefore(*members_.begin());
  std::vector<ValueId> open = {id};
  std::set<size_t> seen;
  while (!open.empty()) {
    const int producer = open.back() == kNoValue ? -1 : index_.producer(open.back());
    open.pop_back();
    if (producer < static_cast<int>(cut)) continue;
    const auto position = static_cast<size_t>(producer);
    if (Has(position)) return true;
    if (!seen.insert(position).second) continue;
    for (const size_t together : finished_.Together(position)) {
      seen.insert(together);
      const Node& node = graph_.nodes[together];
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
      open.insert(open.end(), node.captures.begin(), node.captures.end());
    }
  }
  return false;
}

size_t Region::InputCount() const {
  std::set<ValueId> inputs;
  for (const size_t member : members_) {
    for (const ValueId id : graph_.nodes[member].inputs) {
      const int producer = id == kNoValue ? -1 : index_.producer(id);
      if (id != kNoValue && (producer < 0 || !Has(static_cast<size_t>(producer)))) {
        inputs.insert(id);
      }
    }
  }
  return inputs.size();
}

bool Region::Add(size_t node) {
  if (members_.size() >= kMostNodes) return false;
  members_.insert(node);
  if (InputCount() <= kMostInputs && Outputs().size() <= kMostOutputs) return true;
  members_.erase(node);
  return false;
}

void Region::GrowDown(ValueId like) {
  const auto independent = [&](const Node& node) {
    return std::all_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
      const int producer = id == kNoValue ? -1 : index_.producer(id);
      const bool inside = producer >= 0 && Has(static_cast<size_t>(producer));
      return inside || !DependsOnMembers(id);
    });
  };
  for (bool grown = true; grown;) {
    grown = false;
    for (const size_t member : std::set<size_t>(members_)) {
      for (const ValueId id : graph_.nodes[member].outputs) {
        if (id == kNoValue) continue;
        for (const int consumer : index_.consumers(id)) {
          const auto position = static_cast<size_t>(consumer);
          if (!Fits(position, like) || !independent(graph_.nodes[position])) continue;
          grown = Add(position) || grown;
        }
      }
    }
  }
}

void Region::GrowUp(ValueId like, size_t at) {
  // Others that read the value must not lead back: those behind a cut behind all members cannot.
  const auto leaves = [&](ValueId id) {
    for (const int consumer : index_.consumers(id)) {
      const auto position = static_cast<size_t>(consumer);
      if (!Has(position) && finished_.CutBefore(position) <= *members_.rbegin()) return false;
    }
    return true;
  };
  for (bool grown = true; grown;) {
    grown = false;
    for (const size_t member : std::set<size_t>(members_)) {
      const Node& node = graph_.nodes[member];
      const size_t looked = member == at ? 1 : node.inputs.size();
      for (size_t i = 0; i < looked; ++i) {
        const int producer = node.inputs[i] == kNoValue ? -1 : index_.producer(node.inputs[i]);
        if (producer < 0) continue;
        const auto position = static_cast<size_t>(producer);
        if (!Fits(position, like) || !leaves(node.inputs[i])) continue;
        grown = Add(position) || grown;
      }
    }
  }
}

std::vector<ValueId> Region::Outputs() const {
  std::vector<ValueId> outputs;
  for (const size_t member : members_) {
    for (const ValueId id : graph_.nodes[member].outputs) {
      if (id == kNoValue) continue;
      int inside = 0;  // graph outputs and captures count as uses, too
      const std::vector<int>& consumers = index_.consumers(id);
      const std::set<int> users(consumers.begin(), consumers.end());
      for (const int user : users) {
        if (!Has(static_cast<size_t>(user))) continue;
        const auto& inputs = graph_.nodes[static_cast<size_t>(user)].inputs;
        inside += static_cast<int>(std::count(inputs.begin(), inputs.end(), id));
      }
      if (inside != index_.use_count(id)) outputs.push_back(id);
    }
  }
  return outputs;
}

}  // namespace onnxd
