#include "runtime/ops/functions.h"

#include <map>

namespace onnxd {

FunctionExpansion FindFunction(const Node& node) {
  static const auto functions = [] {
    std::multimap<std::pair<std::string_view, std::string_view>, FunctionEntry> all;
    for (const auto& family :
         {ActivationFunctions(), AttentionFunctions(), GeneratorFunctions(), ImageFunctions(),
          LossFunctions(), NormalizationFunctions(), ReductionFunctions(),
          ContribArithmeticFunctions(), ContribAttentionFunctions(), ContribBlockedFunctions(),
          ContribLayerFunctions(), ContribPackingFunctions(), ContribQuantizedFunctions()}) {
      for (const FunctionEntry& entry : family) all.insert({{entry.domain, entry.op}, entry});
    }
    return all;
  }();
  const auto [begin, end] = functions.equal_range({node.domain, node.op_type});
  for (auto entry = begin; entry != end; ++entry) {
    const FunctionEntry& function = entry->second;
    if (node.since_version >= function.first_version &&
        node.since_version <= function.last_version) {
      return function.expand;
    }
  }
  return nullptr;
}

}  // namespace onnxd
