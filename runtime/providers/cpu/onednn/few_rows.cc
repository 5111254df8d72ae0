#include "runtime/providers/cpu/onednn/few_rows.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/ceil_divide.h"
#include "runtime/math/simd.h"

namespace onnxd::onednn {
namespace {

// Elements of the matrix, times tiles of rows, that are worth a thread.
constexpr int64_t kLeastOfOneTile = 1 << 16, kLeastOfTiles = 1 << 15;
constexpr int64_t kTileRows = 6;  // that few_rows takes at a time

// Rows [row, row + rows), panels [first, last).
void RunPanels(const FewRowsProduct& product, const KernelContext& k, int64_t row, int64_t rows,
               int64_t first, int64_t last) {
  const int64_t n = product.n, column = first * math::kFewRowsPanel;
  const int64_t width = std::min(n, last * math::kFewRowsPanel) - column;
  float* const y = k.output<float>(0) + row * n;
  const float* const z = product.has_sum ? k.input<float>(3) + row * n : y;
  for (int64_t i = 0; z != y && i < rows; ++i) {
    std::memcpy(y + i * n + column, z + i * n + column, static_cast<size_t>(width) * sizeof(float));
  }
  math::CurrentSimd().few_rows(
      {rows, n, product.k, k.input<float>(0) + row * product.k, product.k, product.panels.data,
       product.panels.stride, y, n, k.input<float>(2), product.has_sum},
      first, last);
  for (int64_t i = 0; i < rows; ++i) product.activation.Apply(y + i * n + column, width);
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
  const int64_t panels = CeilDivide(product.n, math::kFewRowsPanel);
  const int64_t tiles = CeilDivide(product.m, kTileRows);
  const int64_t elements = std::max<int64_t>(panels * product.k * math::kFewRowsPanel, 1);
  const int64_t least = tiles == 1 ? kLeastOfOneTile : kLeastOfTiles;
  const int64_t threads = std::clamp<int64_t>(elements * tiles / least, 1, product.threads);
  // Panels first, whose elements are read once then; rows where there are fewer of them.
  const int64_t parts = std::min(panels, threads), blocks = std::min(tiles, threads / parts);
  prepared.compute = [=](const KernelContext& k) {
    const auto run = [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t block = unit / parts, part = unit % parts;
        const int64_t row = product.m * block / blocks;
        RunPanels(product, k, row, product.m * (block + 1) / blocks - row, panels * part / parts,
                  panels * (part + 1) / parts);
      }
    };
    if (parts * blocks == 1) {
      run(0, 1);
    } else {
      k.pool().ParallelFor(parts * blocks, 1, run);
    }
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd::onednn
