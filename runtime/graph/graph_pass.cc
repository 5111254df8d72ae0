#include "runtime/graph/graph_pass.h"

#include <array>

namespace onnxd {
namespace {
constexpr std::array<std::string_view, 4> kNames = {"disable", "basic", "extended", "all"};
}

std::optional<OptimizationLevel> OptimizationLevelFromName(std::string_view name) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<OptimizationLevel>(i);
  }
  return std::nullopt;
}

std::string_view OptimizationLevelName(OptimizationLevel level) {
  return kNames[static_cast<size_t>(level)];
}

}  // namespace onnxd
