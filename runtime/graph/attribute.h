// Attribute: a named constant of a node.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/graph/initializer.h"
#include "runtime/tensor/value.h"

namespace onnxd {

class Graph;

// A graph that a provider compiles as a whole: nothing else looks into it.
using FusedGraph = std::shared_ptr<const Graph>;

// The alternatives stand in the order of ONNX's AttributeType names, but for the last, which no
// model file has.
using Attribute = std::variant<float, int64_t, std::string, Initializer, std::shared_ptr<Graph>,
                               std::vector<float>, std::vector<int64_t>, std::vector<std::string>,
                               std::vector<Initializer>, std::vector<std::shared_ptr<Graph>>,
                               ValueType, FusedGraph>;

// "FLOAT", "INTS", ...: as schemas and messages spell the alternative.
std::string_view AttributeKindName(const Attribute& attribute);

// The attributes of one node by name. Typed getters return the default when the attribute is
// missing; one of another kind was refused by the checker, so they treat it as missing.
class Attributes {
 public:
  bool Has(std::string_view name) const { return entries_.find(name) != entries_.end(); }
  void Set(std::string name, Attribute value) {
    entries_.insert_or_assign(std::move(name), std::move(value));
  }
  void Erase(std::string_view name);
  const auto& entries() const { return entries_; }
  auto& entries() { return entries_; }

  int64_t Int(std::string_view name, int64_t fallback) const;
  float Float(std::string_view name, float fallback) const;
  std::string String(std::string_view name, std::string_view fallback) const;
  std::vector<int64_t> Ints(std::string_view name, std::vector<int64_t> fallback = {}) const;
  std::vector<float> Floats(std::string_view name, std::vector<float> fallback = {}) const;
  std::vector<std::string> Strings(std::string_view name) const;
  const Initializer* TensorValue(std::string_view name) const { return Find<Initializer>(name); }
  std::shared_ptr<Graph> Subgraph(std::string_view name) const;

  template <typename T>
  const T* Find(std::string_view name) const {
    const auto entry = entries_.find(name);
    return entry == entries_.end() ? nullptr : std::get_if<T>(&entry->second);
  }

 private:
  std::map<std::string, Attribute, std::less<>> entries_;
};

}  // namespace onnxd
