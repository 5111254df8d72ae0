#include "runtime/providers/cpu/onednn/digits_product.h"

#include <algorithm>

#include "runtime/base/ceil_divide.h"
#include "runtime/math/simd.h"

namespace onnxd::onednn {
namespace {

constexpr int64_t kBlockRows = 16, kMostRows = 512, kLeastRows = 64;
// Bytes: of the digits of rows, which pass by for all columns, and of these and panels.
constexpr int64_t kCachedBytes = 1280 << 10, kCachedPanels = 1536 << 10;
constexpr int64_t kPanel = math::kFewRowsPanel, kStrip = math::kDigitColumns;
constexpr int64_t kSplitElements = 1 << 14;  // of rows, which are worth a thread

// In a tensor of floats: whether digits stand for the matrix, whether elements of k have factors,
// the inverse factors, the factors, and the scales of columns, of whole panels.
struct ScaleLayout {
  static constexpr int64_t kFlags = 16;  // floats, of a line; the others begin with one, too
  int64_t k, columns;

  ScaleLayout(int64_t depth, int64_t n)
      : k(CeilDivide(depth, kFlags) * kFlags), columns(CeilDivide(n, kPanel) * kPanel) {}
  int64_t inverse() const { return kFlags; }
  int64_t factors() const { return inverse() + k; }
  int64_t scales() const { return factors() + k; }
  int64_t size() const { return scales() + columns; }
};

// The sides of a panel that are there: a narrow matrix ends with gemm_width columns.
int64_t SidesOf(int64_t n, int64_t panel) {
  return CeilDivide(std::min(kPanel, n - panel * kPanel), math::CurrentSimd().gemm_width);
}

const uint16_t* NarrowSide(const NarrowPanels& from, int64_t k, int64_t panel, int64_t side) {
  return from.data + (panel * kPanel + side * math::CurrentSimd().gemm_width) * k;
}

// The floats of a panel's columns: a strip's from `at` on, `row_step` from row to row.
struct StripFloats {
  const float* at;
  int64_t row_step;
};

// Of any panels; `wide` takes kPanel columns where they are narrow.
class PanelFloats {
 public:
  PanelFloats(const MatrixPanels& panels, int64_t k, int64_t n, int64_t panel, float* wide)
      : k_(k), floats_(std::get_if<Panels>(&panels)) {
    if (floats_ != nullptr) {
      at_ = floats_->data + panel * floats_->stride;
      return;
    }
    const math::Simd& simd = math::CurrentSimd();
    const auto& narrow = std::get<NarrowPanels>(panels);
    const auto widen = narrow.type == math::NarrowFloat::kFloat16 ? simd.widen_float16 : simd.widen;
    for (int64_t side = 0; side < SidesOf(n, panel); ++side) {
      widen(NarrowSide(narrow, k, panel, side), wide + side * k * simd.gemm_width,
            k * simd.gemm_width);
    }
    at_ = wide;
  }

  StripFloats Strip(int64_t strip) const {
    if (floats_ != nullptr) return {at_ + strip * kStrip, kPanel};
    const int64_t width = math::CurrentSimd().gemm_width, column = strip * kStrip;
    return {at_ + column / width * k_ * width + column % width, width};
  }

 private:
  int64_t k_;
  const Panels* floats_;
  const float* at_ = nullptr;
};

struct Plan {
  DigitsProduct product;
  int64_t rows, block_rows;  // of a group, and of each of its blocks but the last one
  int64_t chunks, panels;
  int64_t row_bytes, column_bytes, wide_bytes;  // of scratch: a row's place, a chunk

  int64_t blocks() const { return CeilDivide(rows, block_rows); }
  int64_t place_bytes() const { return blocks() * block_rows * row_bytes; }
  int64_t digit_bytes() const { return math::kDigitPlaces * place_bytes(); }
  int64_t scale_bytes() const { return CeilDivide(rows * 5, int64_t{64}) * 64; }
  size_t scratch_bytes() const {
    return static_cast<size_t>(digit_bytes() + scale_bytes() +
                               chunks * (column_bytes + wide_bytes));
  }
};

// Rows [begin, begin + count) of A in digits.
struct Group {
  int64_t begin, count;
  std::byte* digits;
  float* scales;
  bool* fits;  // of blocks
};

// Where numbers of a plan's scales are.
struct Scales {
  bool fit;
  const float *inverse, *factors, *of_columns;

  explicit Scales(const DigitsProduct& p) {
    const ScaleLayout layout(p.k, p.n);
    const auto* data = p.scales.data<float>();
    fit = data[0] != 0;
    inverse = data[1] != 0 ? data + layout.inverse() : nullptr;
    factors = data[1] != 0 ? data + layout.factors() : nullptr;
    of_columns = data + layout.scales();
  }
};

void SplitBlocks(const Plan& plan, const KernelContext& k, const Group& group, int64_t first,
                 int64_t last) {
  const math::Simd& simd = math::CurrentSimd();
  const Scales scales(plan.product);
  const int64_t depth = plan.product.k;
  for (int64_t block = first; block < last; ++block) {
    const int64_t begin = block * plan.block_rows;
    const int64_t end = std::min(group.count, begin + plan.block_rows);
    bool fits = scales.fit;
    for (int64_t row = begin; fits && row < end; ++row) {
      fits = simd.split_digits(k.input<float>(0) + (group.begin + row) * depth, scales.factors,
                               depth, group.digits + row * plan.row_bytes, plan.place_bytes(),
                               group.scales + row);
    }
    group.fits[block] = fits;
  }
}

Group SplitRows(const Plan& plan, const KernelContext& k, int64_t begin, int64_t count) {
  std::byte* scratch = k.scratch<std::byte>();
  auto* scales = reinterpret_cast<float*>(scratch + plan.digit_bytes());
  const Group group{begin, count, scratch, scales, reinterpret_cast<bool*>(scales + plan.rows)};
  const int64_t grain = 1 + kSplitElements / (plan.product.k * plan.block_rows);
  k.pool().ParallelFor(CeilDivide(count, plan.block_rows), grain, [&](int64_t first, int64_t last) {
    SplitBlocks(plan, k, group, first, last);
  });
  return group;
}

// A block's columns of one panel as floats.
void MultiplyFloats(const Plan& plan, const KernelContext& k, int64_t row, int64_t rows,
                    int64_t panel) {
  const DigitsProduct& p = plan.product;
  const math::Simd& simd = math::CurrentSimd();
  const float* a = k.input<float>(0) + row * p.k;
  float* c = k.output<float>(0) + row * p.n;
  if (p.has_sum) {
    const int64_t column = panel * kPanel, width = std::min(kPanel, p.n - column);
    const float* z = k.input<float>(3) + row * p.n;
    for (int64_t i = 0; z != c && i < rows; ++i) {
      std::copy_n(z + i * p.n + column, width, c + i * p.n + column);
    }
  }
  if (const auto* floats = std::get_if<Panels>(&p.panels)) {
    for (int64_t i = 0; i < rows; i += math::kMostFewRows) {
      simd.few_rows({std::min(math::kMostFewRows, rows - i), p.n, p.k, a + i * p.k, p.k,
                     floats->data, floats->stride, c + i * p.n, p.n, k.input<float>(2), p.has_sum},
                    panel, panel + 1);
    }
    return;
  }
  const auto& narrow = std::get<NarrowPanels>(p.panels);
  for (int64_t side = 0; side < SidesOf(p.n, panel); ++side) {
    const int64_t column = panel * kPanel + side * simd.gemm_width;
    math::GemmArguments g{};
    g.m = rows;
    g.n = std::min(simd.gemm_width, p.n - column);
    g.k = p.k;
    g.a = a;
    g.lda = p.k;
    g.c = c + column;
    g.ldc = p.n;
    if (k.input<float>(2) != nullptr) g.bias = k.input<float>(2) + column;
    g.accumulate = p.has_sum;
    simd.narrow_gemm(g, NarrowSide(narrow, p.k, panel, side), narrow.type);
  }
}

// What one thread works in.
struct Workplace {
  std::byte* columns;
  float* wide;
};

// What strips bring near: a part each of the next panel where two stay cached beside the digits of
// rows, or the next strip.
void FetchNext(const Plan& plan, const PanelFloats& floats, int64_t panel, int64_t strip,
               int64_t strips, bool has_next, math::DigitsGemmArguments& g) {
  const DigitsProduct& p = plan.product;
  const auto* all = std::get_if<Panels>(&p.panels);
  const int64_t panel_bytes = p.k * kPanel * static_cast<int64_t>(sizeof(float));
  if (all != nullptr && 2 * panel_bytes + plan.digit_bytes() <= kCachedPanels) {
    if (!has_next) return;
    g.next = all->data + (panel + 1) * all->stride + p.k * kPanel / strips * strip;
    g.next_bytes = panel_bytes / strips;
  } else if (strip + 1 < strips) {
    g.next = floats.Strip(strip + 1).at;
  } else if (all != nullptr && has_next) {
    g.next = all->data + (panel + 1) * all->stride;
  }
}

void MultiplyStrips(const Plan& plan, const KernelContext& k, const Group& group, int64_t panel,
                    bool has_next, const Workplace& place) {
  const DigitsProduct& p = plan.product;
  const Scales scales(p);
  const PanelFloats floats(p.panels, p.k, p.n, panel, place.wide);
  const int64_t first = panel * kPanel, strips = CeilDivide(std::min(kPanel, p.n - first), kStrip);
  for (int64_t strip = 0; strip < strips; ++strip) {
    const int64_t column = first + strip * kStrip, at = group.begin * p.n + column;
    const StripFloats from = floats.Strip(strip);
    math::DigitsGemmArguments g{};
    g.m = group.count;
    g.n = std::min(kStrip, p.n - column);
    g.k = p.k;
    g.a = group.digits;
    g.place_bytes = plan.place_bytes();
    g.row_scales = group.scales;
    g.block_rows = plan.block_rows;
    g.fits = group.fits;
    g.b = from.at;
    g.ldb = from.row_step;
    g.inverse = scales.inverse;
    g.column_scales = scales.of_columns + column;
    g.c = k.output<float>(0) + at;
    g.ldc = p.n;
    if (k.input<float>(2) != nullptr) g.bias = k.input<float>(2) + column;
    if (p.has_sum) g.sum = k.input<float>(3) + at;
    FetchNext(plan, floats, panel, strip, strips, has_next, g);
    g.scratch = place.columns;
    math::CurrentSimd().digits_gemm(g);
  }
}

// The columns of panels [first, last).
void RunChunk(const Plan& plan, const KernelContext& k, const Group& group, int64_t first,
              int64_t last, const Workplace& place) {
  const DigitsProduct& p = plan.product;
  const int64_t blocks = CeilDivide(group.count, plan.block_rows);
  const bool any_fits = std::find(group.fits, group.fits + blocks, true) != group.fits + blocks;
  for (int64_t panel = first; panel < last; ++panel) {
    if (any_fits) MultiplyStrips(plan, k, group, panel, panel + 1 < last, place);
    for (int64_t block = 0; block < blocks; ++block) {
      if (group.fits[block]) continue;
      const int64_t row = block * plan.block_rows;
      MultiplyFloats(plan, k, group.begin + row, std::min(plan.block_rows, group.count - row),
                     panel);
    }
    const int64_t column = panel * kPanel;
    float* const y = k.output<float>(0) + group.begin * p.n + column;
    for (int64_t row = 0; row < group.count; ++row) {
      p.activation.Apply(y + row * p.n, std::min(kPanel, p.n - column));
    }
  }
}

Plan MakePlan(const DigitsProduct& product) {
  Plan plan{};
  plan.product = product;
  plan.row_bytes = math::DigitRowBytes(product.k);
  const int64_t most =
      std::clamp(kCachedBytes / (math::kDigitPlaces * plan.row_bytes), kLeastRows, kMostRows);
  plan.rows = CeilDivide(product.m, CeilDivide(product.m, most));
  plan.block_rows = CeilDivide(plan.rows, CeilDivide(plan.rows, kBlockRows));
  plan.column_bytes = math::DigitColumnBytes(product.k);
  const bool is_narrow = std::holds_alternative<NarrowPanels>(product.panels);
  plan.wide_bytes = is_narrow ? product.k * kPanel * static_cast<int64_t>(sizeof(float)) : 0;
  plan.panels = CeilDivide(product.n, kPanel);
  plan.chunks = std::clamp<int64_t>(plan.panels, 1, product.threads);
  return plan;
}

// Adds what columns weigh, or scales them: f(a strip's floats, its first column).
template <typename F>
void ForStrips(const MatrixPanels& panels, int64_t k, int64_t n, float* wide, F f) {
  for (int64_t panel = 0; panel * kPanel < n; ++panel) {
    const PanelFloats floats(panels, k, n, panel, wide);
    for (int64_t column = panel * kPanel; column < std::min(n, (panel + 1) * kPanel);
         column += kStrip) {
      f(floats.Strip((column - panel * kPanel) / kStrip), column);
    }
  }
}

}  // namespace

bool DigitsAreFaster(int64_t m, int64_t k, int64_t n) {
  constexpr int64_t kLeastDepth = 128, kLeastColumns = 64;
  const math::Simd& simd = math::CurrentSimd();
  return simd.digits_gemm != nullptr && m >= kLeastRows && k >= kLeastDepth && n >= kLeastColumns &&
         k <= math::kMostDigitDepth;
}

Result<Tensor> MakeDigitScales(const MatrixPanels& panels, int64_t k, int64_t n) {
  const math::Simd& simd = math::CurrentSimd();
  const ScaleLayout layout(k, n);
  ONNXD_ASSIGN_OR_RETURN(Tensor made, Tensor::Create(DataType::kFloat, Shape{layout.size()}));
  Tensor wide;
  if (std::holds_alternative<NarrowPanels>(panels)) {
    ONNXD_ASSIGN_OR_RETURN(wide, Tensor::Create(DataType::kFloat, Shape{k * kPanel}));
  }
  float* const room = wide.defined() ? wide.mutable_data<float>() : nullptr;
  auto* data = made.mutable_data<float>();
  std::fill_n(data, layout.size(), 0.0f);
  float* const inverse = data + layout.inverse();
  ForStrips(panels, k, n, room, [&](const StripFloats& from, int64_t) {
    simd.add_magnitudes(from.at, from.row_step, k, inverse);
  });
  data[1] = simd.balance_digits(k, inverse) ? 1 : 0;
  for (int64_t i = 0; i < k; ++i) {
    data[layout.factors() + i] = inverse[i] == 0 ? 0 : 1 / inverse[i];
  }
  bool fit = true;
  ForStrips(panels, k, n, room, [&](const StripFloats& from, int64_t column) {
    fit &= simd.scale_digits(from.at, from.row_step, k, data[1] != 0 ? inverse : nullptr,
                             data + layout.scales() + column);
  });
  data[0] = fit ? 1 : 0;
  return made;
}

PreparedKernel PrepareDigitsProduct(const DigitsProduct& product) {
  const Plan plan = MakePlan(product);
  PreparedKernel prepared;
  if (product.has_sum) prepared.in_place = {{0, 3}};
  prepared.scratch_bytes = plan.scratch_bytes();
  prepared.compute = [plan](const KernelContext& k) {
    std::byte* const places = k.scratch<std::byte>() + plan.digit_bytes() + plan.scale_bytes();
    for (int64_t begin = 0; begin < plan.product.m; begin += plan.rows) {
      const Group group = SplitRows(plan, k, begin, std::min(plan.rows, plan.product.m - begin));
      k.pool().ParallelFor(plan.chunks, 1, [&](int64_t first, int64_t last) {
        for (int64_t chunk = first; chunk < last; ++chunk) {
          std::byte* const place = places + chunk * (plan.column_bytes + plan.wide_bytes);
          RunChunk(plan, k, group, plan.panels * chunk / plan.chunks,
                   plan.panels * (chunk + 1) / plan.chunks,
                   {place, reinterpret_cast<float*>(place + plan.column_bytes)});
        }
      });
    }
    return Status::Ok();
  };
  return prepared;
}

}  // namespace onnxd::onednn
