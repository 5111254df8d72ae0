#include "runtime/graph/attribute.h"

#include <array>

namespace onnxd {
namespace {

template <typename T, typename Fallback>
T Get(const Attributes& attributes, std::string_view name, Fallback&& fallback) {
  const T* found = attributes.Find<T>(name);
  return found ? *found : T(std::forward<Fallback>(fallback));
}

}  // namespace

std::string_view AttributeKindName(const Attribute& attribute) {
  static constexpr std::array<std::string_view, 12> kNames = {
      "FLOAT", "INT",     "STRING",  "TENSOR", "GRAPH",      "FLOATS",
      "INTS",  "STRINGS", "TENSORS", "GRAPHS", "TYPE_PROTO", "FUSED_GRAPH"};
  return kNames[attribute.index()];
}

void Attributes::Erase(std::string_view name) {
  if (const auto entry = entries_.find(name); entry != entries_.end()) entries_.erase(entry);
}

int64_t Attributes::Int(std::string_view name, int64_t fallback) const {
  return Get<int64_t>(*this, name, fallback);
}
float Attributes::Float(std::string_view name, float fallback) const {
  return Get<float>(*this, name, fallback);
}
std::string Attributes::String(std::string_view name, std::string_view fallback) const {
  return Get<std::string>(*this, name, fallback);
}
std::vector<int64_t> Attributes::Ints(std::string_view name, std::vector<int64_t> fallback) const {
  return Get<std::vector<int64_t>>(*this, name, std::move(fallback));
}
std::vector<float> Attributes::Floats(std::string_view name, std::vector<float> fallback) const {
  return Get<std::vector<float>>(*this, name, std::move(fallback));
}
std::vector<std::string> Attributes::Strings(std::string_view name) const {
  return Get<std::vector<std::string>>(*this, name, std::vector<std::string>());
}
std::shared_ptr<Graph> Attributes::Subgraph(std::string_view name) const {
  return Get<std::shared_ptr<Graph>>(*this, name, nullptr);
}

}  // namespace onnxd
