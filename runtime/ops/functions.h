// Operators that can be said in terms of others. ONNX's own function bodies
// (https://onnx.ai/onnx/operators/, "Function Body"), and contrib operators whose cost lies in
// operators that have kernels. A session expands a node where no provider
// takes it, or where a device knows the body and not the node.
#pragma once

#include <span>

#include "runtime/ops/function_body.h"

namespace onnxd {

// Fills the body. kUnimplemented when the node's attributes or types have no expansion.
using FunctionExpansion = Status (*)(FunctionBody& body);

struct FunctionEntry {
  std::string_view domain;
  std::string_view op;
  int first_version;  // since_version range, inclusive
  int last_version;
  FunctionExpansion expand;
};

std::span<const FunctionEntry> ActivationFunctions();
std::span<const FunctionEntry> AttentionFunctions();
std::span<const FunctionEntry> GeneratorFunctions();
std::span<const FunctionEntry> ImageFunctions();
std::span<const FunctionEntry> LossFunctions();
std::span<const FunctionEntry> NormalizationFunctions();
std::span<const FunctionEntry> ReductionFunctions();
std::span<const FunctionEntry> ContribArithmeticFunctions();
std::span<const FunctionEntry> ContribAttentionFunctions();
std::span<const FunctionEntry> ContribBlockedFunctions();
std::span<const FunctionEntry> ContribLayerFunctions();
std::span<const FunctionEntry> ContribPackingFunctions();
std::span<const FunctionEntry> ContribQuantizedFunctions();

// Null when the node's operator has none.
FunctionExpansion FindFunction(const Node& node);

}  // namespace onnxd
