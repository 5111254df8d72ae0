// What follows a product with constant weights becomes part of it.
#pragma once

#include <optional>

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// MatMul or Gemm with a large constant matrix (+ Add of a constant row) (+ Add of a tensor of the
// result's shape) (+ activation): onnxd::MatMulBiasActivation. Level extended.
const GraphPass* MatMulEpilogue();

// Products with large constant matrices that have no epilogue, as MatMulBiasActivation all the
// same. Returns whether there were any.
bool BareProductsAsFused(Graph& graph);

// A product of floats with a large constant matrix as MatMulBiasActivation; nullopt where the node
// is none.
std::optional<Node> ProductAsFused(const Graph& graph, const Node& node);

}  // namespace onnxd
