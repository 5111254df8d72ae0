#include "runtime/providers/cpu/onednn/parts_product.h"

#include <algorithm>
#include <array>
#include <atomic>

#include "runtime/math/simd.h"

namespace onnxd::onednn {
namespace {

constexpr int64_t kMostRows = 256;             // whose parts are made at once
constexpr int64_t kCachedElements = 96 << 10;  // of A, whose parts pass by again for each panel
constexpr int64_t kLeastDepth = 256, kDepthStep = 32;

using Parts = std::array<uint16_t*, math::kFloatParts>;

struct Plan {
  PartsProduct product;
  int64_t rows;   // of a group
  int64_t depth;  // of k that is multiplied at once, but for the last part
  int64_t lda;
  int64_t row_elements, panel_elements;  // of one of the parts
  int64_t wide_floats;                   // of a chunk: a part of a narrow panel
  int64_t chunks, panels;

  size_t parts_bytes() const {
    return static_cast<size_t>(math::kFloatParts * (row_elements + chunks * panel_elements)) *
           sizeof(uint16_t);
  }
  size_t scratch_bytes() const {
    return parts_bytes() + static_cast<size_t>(chunks * wide_floats) * sizeof(float);
  }
  float* WideFloats(const KernelContext& k, int64_t chunk) const {
    return reinterpret_cast<float*>(k.scratch<std::byte>() + parts_bytes()) + chunk * wide_floats;
  }
  Parts RowParts(const KernelContext& k) const {
    return PartsAt(k.scratch<uint16_t>(), row_elements);
  }
  Parts PanelParts(const KernelContext& k, int64_t chunk) const {
    const int64_t before = row_elements + chunk * panel_elements;
    return PartsAt(k.scratch<uint16_t>() + math::kFloatParts * before, panel_elements);
  }
  static Parts PartsAt(uint16_t* first, int64_t elements) {
    return {first, first + elements, first + 2 * elements};
  }
};

// Rows [begin, begin + count) of A and whether their parts stand for them.
struct Group {
  int64_t begin, count;
  bool fits;
};

// Elements [from, from + depth) of k.
struct Slice {
  int64_t from, depth;
};

bool SplitRows(const Plan& plan, const KernelContext& k, int64_t begin, int64_t count) {
  const math::Simd& simd = math::CurrentSimd();
  const Parts parts = plan.RowParts(k);
  const int64_t depth = plan.product.k;
  std::atomic<bool> fits{true};
  k.pool().ParallelFor(count, 1 + (1 << 14) / depth, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      Parts to = parts;
      for (uint16_t*& part : to) {
        part += row * plan.lda;
        std::fill_n(part + depth, plan.lda - depth, uint16_t{0});
      }
      if (!simd.split_row(k.input<float>(0) + (begin + row) * depth, depth, to.data())) {
        fits.store(false, std::memory_order_relaxed);
      }
    }
  });
  return fits.load(std::memory_order_relaxed);
}

// Where the floats of a slice of a panel are: those of `side`, gemm_width columns of it, begin
// side * side_step after `at`, in rows of `row_step`.
struct PanelFloats {
  const float* at;
  int64_t row_step, side_step;
};

// What one thread works in.
struct Workplace {
  Parts parts;
  float* wide;
};

// The sides of a panel that are there: a narrow matrix ends with gemm_width columns.
int64_t SidesOf(const PartsProduct& p, int64_t panel) {
  const int64_t width = math::CurrentSimd().gemm_width;
  const int64_t columns = std::min(math::kFewRowsPanel, p.n - panel * math::kFewRowsPanel);
  return (columns + width - 1) / width;
}

const uint16_t* NarrowSlice(const NarrowPanels& from, const PartsProduct& p, int64_t panel,
                            int64_t side, const Slice& slice) {
  const int64_t width = math::CurrentSimd().gemm_width;
  return from.data + (panel * math::kFewRowsPanel + side * width) * p.k + slice.from * width;
}

PanelFloats FloatsOf(const PartsProduct& p, int64_t panel, const Slice& slice, float* wide) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t width = simd.gemm_width;
  if (const auto* floats = std::get_if<Panels>(&p.panels)) {
    return {floats->data + panel * floats->stride + slice.from * math::kFewRowsPanel,
            math::kFewRowsPanel, width};
  }
  const auto& narrow = std::get<NarrowPanels>(p.panels);
  const auto widen = narrow.type == math::NarrowFloat::kFloat16 ? simd.widen_float16 : simd.widen;
  for (int64_t side = 0; side < SidesOf(p, panel); ++side) {
    widen(NarrowSlice(narrow, p, panel, side, slice), wide + side * slice.depth * width,
          slice.depth * width);
  }
  return {wide, width, slice.depth * width};
}

// The columns of one panel without parts.
void MultiplyFloats(const Plan& plan, const KernelContext& k, const Group& group,
                    const Slice& slice, int64_t panel, bool accumulate) {
  const PartsProduct& p = plan.product;
  const math::Simd& simd = math::CurrentSimd();
  const float* a = k.input<float>(0) + group.begin * p.k + slice.from;
  float* c = k.output<float>(0) + group.begin * p.n;
  const float* bias = slice.from == 0 ? k.input<float>(2) : nullptr;
  if (const auto* floats = std::get_if<Panels>(&p.panels)) {
    for (int64_t row = 0; row < group.count; row += math::kMostFewRows) {
      simd.few_rows({std::min(math::kMostFewRows, group.count - row), p.n, slice.depth,
                     a + row * p.k, p.k, floats->data + slice.from * math::kFewRowsPanel,
                     floats->stride, c + row * p.n, p.n, bias, accumulate},
                    panel, panel + 1);
    }
    return;
  }
  const auto& narrow = std::get<NarrowPanels>(p.panels);
  for (int64_t side = 0; side < SidesOf(p, panel); ++side) {
    const int64_t column = panel * math::kFewRowsPanel + side * simd.gemm_width;
    math::GemmArguments g{};
    g.m = group.count;
    g.n = std::min(simd.gemm_width, p.n - column);
    g.k = slice.depth;
    g.a = a;
    g.lda = p.k;
    g.c = c + column;
    g.ldc = p.n;
    if (bias != nullptr) g.bias = bias + column;
    g.accumulate = accumulate;
    simd.narrow_gemm(g, NarrowSlice(narrow, p, panel, side, slice), narrow.type);
  }
}

// What the tiles of a panel bring near meanwhile: a side of the next one.
void FetchNext(const PartsProduct& p, int64_t panel, int64_t side, const Slice& slice,
               math::PartsGemmArguments& g) {
  const int64_t width = math::CurrentSimd().gemm_width;
  if (const auto* floats = std::get_if<Panels>(&p.panels)) {
    g.next_floats = slice.depth * width;
    g.next = floats->data + (panel + 1) * floats->stride + slice.from * math::kFewRowsPanel +
             side * g.next_floats;
  } else if (side < SidesOf(p, panel + 1)) {
    g.next_floats = slice.depth * width / 2;
    g.next = reinterpret_cast<const float*>(
        NarrowSlice(std::get<NarrowPanels>(p.panels), p, panel + 1, side, slice));
  }
}

// The columns of one panel; `has_next`: those of the one that follows come next.
void MultiplyPanel(const Plan& plan, const KernelContext& k, const Group& group, const Slice& slice,
                   int64_t panel, bool has_next, const Workplace& place) {
  const math::Simd& simd = math::CurrentSimd();
  const PartsProduct& p = plan.product;
  const bool accumulate = p.has_sum || slice.from > 0;
  const int64_t sides = SidesOf(p, panel);
  const int64_t side_elements = math::PackedBfloat16Size(simd, slice.depth, simd.gemm_width);
  bool fits = group.fits;
  if (fits) {
    const PanelFloats floats = FloatsOf(p, panel, slice, place.wide);
    for (int64_t side = 0; fits && side < sides; ++side) {
      Parts to = place.parts;
      for (uint16_t*& part : to) part += side * side_elements;
      fits = simd.split_panels(floats.at + side * floats.side_step, floats.row_step, slice.depth, 1,
                               to.data());
    }
  }
  if (!fits) return MultiplyFloats(plan, k, group, slice, panel, accumulate);
  const Parts rows = plan.RowParts(k);
  for (int64_t side = 0; side < sides; ++side) {
    const int64_t column = panel * math::kFewRowsPanel + side * simd.gemm_width;
    math::PartsGemmArguments g{};
    g.m = group.count;
    g.n = std::min(simd.gemm_width, p.n - column);
    g.k = slice.depth;
    g.lda = plan.lda;
    for (size_t part = 0; part < math::kFloatParts; ++part) {
      g.a[part] = rows[part] + slice.from;
      g.b[part] = place.parts[part] + side * side_elements;
    }
    g.c = k.output<float>(0) + group.begin * p.n + column;
    g.ldc = p.n;
    if (slice.from == 0 && k.input<float>(2) != nullptr) g.bias = k.input<float>(2) + column;
    g.accumulate = accumulate;
    if (has_next) FetchNext(p, panel, side, slice, g);
    simd.parts_gemm(g);
  }
}

// The columns of panels [first, last).
void RunChunk(const Plan& plan, const KernelContext& k, const Group& group, int64_t first,
              int64_t last, const Workplace& place) {
  const PartsProduct& p = plan.product;
  const int64_t column = first * math::kFewRowsPanel;
  const int64_t width = std::min(p.n, last * math::kFewRowsPanel) - column;
  float* const y = k.output<float>(0) + group.begin * p.n + column;
  const float* const z = p.has_sum ? k.input<float>(3) + group.begin * p.n + column : y;
  for (int64_t row = 0; z != y && row < group.count; ++row) {
    std::copy_n(z + row * p.n, width, y + row * p.n);
  }
  for (int64_t from = 0; from < p.k; from += plan.depth) {
    const Slice slice{from, std::min(plan.depth, p.k - from)};
    for (int64_t panel = first; panel < last; ++panel) {
      MultiplyPanel(plan, k, group, slice, panel, panel + 1 < last, place);
    }
  }
  for (int64_t row = 0; row < group.count; ++row) p.activation.Apply(y + row * p.n, width);
}

Plan MakePlan(const PartsProduct& product) {
  const math::Simd& simd = math::CurrentSimd();
  Plan plan{};
  plan.product = product;
  const int64_t groups = (product.m + kMostRows - 1) / kMostRows;
  plan.rows = (product.m + groups - 1) / groups;
  const int64_t fit = std::max(kCachedElements / plan.rows, kLeastDepth);
  const int64_t slices = (product.k + fit - 1) / fit;
  plan.depth = ((product.k + slices - 1) / slices + kDepthStep - 1) / kDepthStep * kDepthStep;
  plan.lda = math::PaddedBytes(simd, 2 * product.k) / 2;
  plan.row_elements = (plan.rows * plan.lda + 31) / 32 * 32;
  plan.panel_elements = math::PackedBfloat16Size(simd, plan.depth, math::kFewRowsPanel);
  const bool is_narrow = std::holds_alternative<NarrowPanels>(product.panels);
  plan.wide_floats = is_narrow ? plan.depth * math::kFewRowsPanel : 0;
  plan.panels = (product.n + math::kFewRowsPanel - 1) / math::kFewRowsPanel;
  plan.chunks = std::clamp<int64_t>(plan.panels, 1, product.threads);
  return plan;
}

}  // namespace

bool PartsAreFaster(int64_t m, int64_t k, int64_t n) {
  constexpr int64_t kLeastRows = 64, kLeastSize = 192;
  const math::Simd& simd = math::CurrentSimd();
  return simd.fast_bfloat16 && simd.few_rows != nullptr && m >= kLeastRows && k >= kLeastSize &&
         n >= kLeastSize;
}

PreparedKernel PreparePartsProduct(const PartsProduct& product) {
  const Plan plan = MakePlan(product);
  PreparedKernel prepared;
  if (product.has_sum) prepared.in_place = {{0, 3}};
  prepared.scratch_bytes = plan.scratch_bytes();
  prepared.compute = [plan](const KernelContext& k) {
    for (int64_t begin = 0; begin < plan.product.m; begin += plan.rows) {
      const int64_t count = std::min(plan.rows, plan.product.m - begin);
      const Group group{begin, count, SplitRows(plan, k, begin, count)};
      k.pool().ParallelFor(plan.chunks, 1, [&](int64_t first, int64_t last) {
        for (int64_t chunk = first; chunk < last; ++chunk) {
          RunChunk(plan, k, group, plan.panels * chunk / plan.chunks,
                   plan.panels * (chunk + 1) / plan.chunks,
                   {plan.PanelParts(k, chunk), plan.WideFloats(k, chunk)});
        }
      });
    }
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd::onednn
