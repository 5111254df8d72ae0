#include "runtime/providers/cpu/onednn/few_rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/math/simd.h"

namespace onnxd::onednn {
namespace {

constexpr int64_t kLeastElements = 1 << 16;  // of the matrix, for a thread

void RunPanels(const FewRowsProduct& product, const KernelContext& k, int64_t first, int64_t last) {
  const int64_t n = product.n, column = first * math::kFewRowsPanel;
  const int64_t width = std::min(n, last * math::kFewRowsPanel) - column;
  float* const y = k.output<float>(0);
  const float* const z = product.has_sum ? k.input<float>(3) : y;
  for (int64_t row = 0; z != y && row < product.m; ++row) {
    std::memcpy(y + row * n + column, z + row * n + column,
                static_cast<size_t>(width) * sizeof(float));
  }
  math::CurrentSimd().few_rows(
      {product.m, n, product.k, k.input<float>(0), product.k, product.panels.data,
       product.panels.stride, y, n, k.input<float>(2), product.has_sum},
      first, last);
  for (int64_t row = 0; row < product.m; ++row) {
    product.activation.Apply(y + row * n + column, width);
  }
}

}  // namespace

dnnl::memory::desc PanelLayout(int64_t k, int64_t n) {
  return {{k, n}, dnnl::memory::data_type::f32, dnnl::memory::format_tag::BA16a64b};
}

// In the fields of oneDNN's descriptor: blocks of rows within blocks of columns, of which all rows
// follow each other.
std::optional<Panels> PanelsOf(const dnnl::memory& weights) {
  const dnnl::memory::desc layout = weights.get_desc();
  const auto& blocks = layout.data.format_desc.blocking;
  if (math::CurrentSimd().few_rows == nullptr || layout.data.format_kind != dnnl_blocked ||
      layout.data.data_type != dnnl_f32 || layout.data.ndims != 2 || layout.data.offset0 != 0 ||
      blocks.inner_nblks != 2 || blocks.inner_idxs[0] != 0 || blocks.inner_idxs[1] != 1 ||
      blocks.inner_blks[1] != math::kFewRowsPanel ||
      blocks.strides[0] != blocks.inner_blks[0] * blocks.inner_blks[1]) {
    return std::nullopt;
  }
  return Panels{static_cast<const float*>(weights.get_data_handle()), blocks.strides[1]};
}

PreparedKernel PrepareFewRows(const FewRowsProduct& product) {
  PreparedKernel prepared;
  if (product.has_sum) prepared.in_place = {{0, 3}};
  const int64_t panels = (product.n + math::kFewRowsPanel - 1) / math::kFewRowsPanel;
  const int64_t each = std::max<int64_t>(product.k * math::kFewRowsPanel, 1);
  const int64_t threads = std::clamp<int64_t>(panels * each / kLeastElements, 1, product.threads);
  const int64_t grain = (panels + threads - 1) / threads;
  prepared.compute = [product, panels, grain](const KernelContext& k) {
    if (grain == panels) {
      RunPanels(product, k, 0, panels);
    } else {
      k.pool().ParallelFor(
          panels, grain, [&](int64_t first, int64_t last) { RunPanels(product, k, first, last); });
    }
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd::onednn
