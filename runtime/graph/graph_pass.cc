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

std::optional<Precision> PrecisionFromName(std::string_view name) {
  for (const Precision precision :
       {Precision::kFloat32, Precision::kFloat16, Precision::kBfloat16, Precision::kBfloat16x3}) {
    if (PrecisionName(precision) == name) return precision;
  }
  return std::nullopt;
}

std::string_view PrecisionName(Precision precision) {
  switch (precision) {
    case Precision::kFloat16:
      return "fp16";
    case Precision::kBfloat16:
      return "bf16";
    case Precision::kBfloat16x3:
      return "bf16x3";
    case Precision::kFloat32:
      break;
  }
  return "fp32";
}

}  // namespace onnxd
