// Products of few rows with oneDNN's own layout of a constant matrix, which oneDNN itself computes
// in up to twice the time: they take what it takes to read the matrix.
#pragma once

#include <dnnl.hpp>
#include <optional>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/activation.h"

namespace onnxd::onednn {

// Where panels of math::kFewRowsPanel columns lie in packed weights.
struct Panels {
  const float* data;
  int64_t stride;  // elements
};

// The layout of such panels, of a matrix [k, n].
dnnl::memory::desc PanelLayout(int64_t k, int64_t n);

// nullopt where the layout is another one, or this processor has no kernel for it.
std::optional<Panels> PanelsOf(const dnnl::memory& weights);

struct FewRowsProduct {
  int64_t m, k, n;
  Panels panels;
  Activation activation;
  bool has_sum;
  int threads;
};

// Of a node with the inputs A [m, k], anything, a bias [n] or none and, with has_sum, Z [m, n].
PreparedKernel PrepareFewRows(const FewRowsProduct& product);

}  // namespace onnxd::onednn
