// onnxd::ConvChannelsLast by products of our own, where these are faster than oneDNN's
// convolutions: a row of A is the window of a pixel, in pieces that lie in the image as they are
// (math::GemmArguments::pieces). Only where rows of few channels reach into padding are they
// copied.
#include <algorithm>
#include <optional>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/packed_product.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kLeastChannels = 32;     // that are a piece; fewer: a row of the window is one
constexpr int64_t kMostCopied = 64 << 10;  // floats of a window, where padding has rows copied
constexpr int64_t kLeastPiece = 24;  // floats: shorter ones take as long to find as to multiply

// Results wider than that, which are signals, take oneDNN tens of milliseconds and megabytes to
// prepare.
constexpr int64_t kWideSignal = 256;

bool HasFewOutputs(const Shape& weights) { return weights[0] <= math::kMostFewColumns; }

// Of unknown width or a large one.
bool IsWideSignal(const KernelInfo& info) {
  const auto& y = info.output_types[0].shape;
  if (!y || y->size() != 4 || (*y)[1].value != 1) return false;
  return !(*y)[2].known() || (*y)[2].value >= kWideSignal;
}

struct Plan : onednn::ConvGeometry {
  int64_t m, k;  // rows, and elements of a row
  // A window is `piece_rows` times `piece_columns` pieces of as many elements.
  int64_t piece_rows, piece_columns, piece;
  bool is_plain;   // A is the image
  bool is_padded;  // to the left or right
  bool has_sum;
  ProductCut cut;
  int64_t worker_bytes;  // of scratch

  int64_t pieces() const { return piece_rows * piece_columns; }
};

// Rows of the window: [first, end).
struct WindowRows {
  int64_t first, end;
};

// Those that meet the image somewhere in `count` rows of A; the others are zeros for all of them.
WindowRows RowsThatMeet(const Plan& plan, int64_t first, int64_t count) {
  const int64_t image = first / plan.pixels();
  if ((first + count - 1) / plan.pixels() != image) return {0, plan.piece_rows};
  const Window& window = plan.window;
  const auto top = [&](int64_t row) {
    return row % plan.pixels() / plan.out_width * window.strides[0] - window.pads_begin[0];
  };
  const int64_t highest = top(first), lowest = top(first + count - 1), step = window.dilations[0];
  WindowRows rows{0, plan.piece_rows};
  while (rows.first + 1 < rows.end && lowest + rows.first * step < 0) ++rows.first;
  while (rows.first + 1 < rows.end && highest + (rows.end - 1) * step >= plan.height) --rows.end;
  return rows;
}

// The addresses of the pieces of some rows of A.
class PieceFinder {
 public:
  // `copies` takes what has to be copied; `zeros` is as long as a piece.
  PieceFinder(const Plan& plan, WindowRows rows, const float* x, const float* zeros, float* copies)
      : plan_(plan), rows_(rows), x_(x), zeros_(zeros), copies_(copies) {}

  void Find(int64_t first, int64_t count, const float** to) {
    int64_t image = first / plan_.pixels(), row = first % plan_.pixels() / plan_.out_width;
    int64_t column = first % plan_.out_width;
    const int64_t pieces = (rows_.end - rows_.first) * plan_.piece_columns;
    for (int64_t i = 0; i < count; ++i, to += pieces) {
      FindWindow(x_ + image * plan_.height * plan_.width * plan_.in,
                 row * plan_.window.strides[0] - plan_.window.pads_begin[0],
                 column * plan_.window.strides[1] - plan_.window.pads_begin[1], to);
      if (++column < plan_.out_width) continue;
      column = 0;
      if (++row < plan_.out_height) continue;
      row = 0;
      ++image;
    }
  }

 private:
  void FindWindow(const float* image, int64_t top, int64_t left, const float** to) {
    const Window& window = plan_.window;
    const int64_t bottom = top + (window.kernel[0] - 1) * window.dilations[0];
    const int64_t right = left + (window.kernel[1] - 1) * window.dilations[1];
    const int64_t columns = plan_.piece_columns, row_step = window.dilations[0] * plan_.width;
    if (top >= 0 && left >= 0 && bottom < plan_.height && right < plan_.width) {
      const float* row = image + (top * plan_.width + left + rows_.first * row_step) * plan_.in;
      const int64_t step = window.dilations[1] * plan_.in;
      for (int64_t i = rows_.first; i < rows_.end; ++i, row += row_step * plan_.in) {
        for (int64_t j = 0; j < columns; ++j) *to++ = row + j * step;
      }
      return;
    }
    for (int64_t i = rows_.first; i < rows_.end; ++i, to += columns) {
      const int64_t y = top + i * window.dilations[0];
      FindInRow(y >= 0 && y < plan_.height ? image + y * plan_.width * plan_.in : nullptr, left,
                to);
    }
  }

  // `row` is one of the image, null outside of it.
  void FindInRow(const float* row, int64_t left, const float** to) {
    if (plan_.piece_columns == 1) {
      *to = row == nullptr ? zeros_ : WholeRow(row, left);
      return;
    }
    for (int64_t j = 0; j < plan_.piece_columns; ++j) {
      const int64_t column = left + j * plan_.window.dilations[1];
      const bool inside = row != nullptr && column >= 0 && column < plan_.width;
      to[j] = inside ? row + column * plan_.in : zeros_;
    }
  }

  const float* WholeRow(const float* row, int64_t left) {
    const int64_t right = left + plan_.piece / plan_.in;
    if (left >= 0 && right <= plan_.width) return row + left * plan_.in;
    const int64_t begin = std::clamp<int64_t>(left, 0, plan_.width);
    const int64_t end = std::clamp<int64_t>(right, begin, plan_.width);
    float* copy = copies_;
    copies_ += plan_.piece;
    std::fill_n(copy, plan_.piece, 0.0f);
    if (begin < end) {
      std::copy_n(row + begin * plan_.in, (end - begin) * plan_.in,
                  copy + (begin - left) * plan_.in);
    }
    return copy;
  }

  const Plan& plan_;
  const WindowRows rows_;
  const float* x_;
  const float* zeros_;
  float* copies_;
};

class ProductConv : public Kernel {
 public:
  ProductConv(const Activation& activation, Initializer weights, const math::Simd& simd)
      : activation_(BoundsOf(activation)),
        weight_shape_(weights.shape()),
        by_column_(HasFewOutputs(weight_shape_)),
        weights_(std::make_unique<LazyForm>(
            std::move(weights),
            by_column_ ? "windows by channel" : StrCat("windows in one, ", simd.name))),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0), &w = weight_shape_;
    Plan plan{};
    ONNXD_ASSIGN_OR_RETURN(static_cast<onednn::ConvGeometry&>(plan),
                           onednn::GeometryOf(context.node, x, y, w));
    ONNXD_RETURN_IF_ERROR(onednn::CheckBiasAndSum(context, plan.out));
    PreparedKernel prepared;
    plan.has_sum = context.HasInput(3);
    if (plan.has_sum) prepared.in_place = {{0, 3}};
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    plan.m = plan.images * plan.pixels();
    plan.k = w[1] * w[2] * w[3];
    CutWindows(&plan);
    const int64_t panels = (plan.out + simd_.gemm_width - 1) / simd_.gemm_width;
    plan.cut =
        CutProduct(plan.m, panels, SaturatingMultiply(SaturatingMultiply(plan.m, plan.k), plan.out),
                   context.threads);
    const auto bytes = ScratchBytes(plan);
    if (!bytes) return ResourceExhausted(StrCat(Describe(context.node), ": too large windows"));
    plan.worker_bytes = *bytes;
    prepared.scratch_bytes = static_cast<size_t>(plan.cut.workers * plan.worker_bytes);
    ONNXD_ASSIGN_OR_RETURN(const Tensor packed, weights_->Get([&](const Tensor& plain) {
      return by_column_ ? onednn::ConvWeightRows(plain)
                        : onednn::PackConvWeights(simd_, plain, plan.k);
    }));
    prepared.compute = [plan, packed, this](const KernelContext& k) {
      k.pool().ParallelFor(plan.cut.workers, 1, [&](int64_t first, int64_t last) {
        for (int64_t worker = first; worker < last; ++worker) RunWorker(plan, packed, k, worker);
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  static void CutWindows(Plan* plan) {
    const Window& window = plan->window;
    plan->is_padded = window.pads_begin[1] > 0 || window.pads_end[1] > 0;
    const bool whole_rows =
        window.dilations[1] == 1 &&
        (!plan->is_padded || (plan->in < kLeastChannels && plan->k <= kMostCopied));
    plan->piece_rows = window.kernel[0];
    plan->piece_columns = whole_rows ? 1 : window.kernel[1];
    plan->piece = whole_rows ? window.kernel[1] * plan->in : plan->in;
    plan->is_plain = plan->k == plan->in && !plan->is_padded && window.pads_begin[0] == 0 &&
                     window.pads_end[0] == 0 && AreAll(window.strides, 1);
  }

  // Of a worker: zeros for padding, copies, and the addresses of pieces. nullopt where all of it is
  // more than can be addressed.
  static std::optional<int64_t> ScratchBytes(const Plan& plan) {
    if (plan.is_plain) return 0;
    const auto bytes = CheckedMultiply(
        SaturatingAdd(ZerosAndCopies(plan) / 2, SaturatingMultiply(plan.cut.rows, plan.pieces())),
        int64_t{sizeof(float*)});
    if (!bytes || !CheckedMultiply(*bytes + 64, plan.cut.workers)) return std::nullopt;
    return (*bytes + 63) / 64 * 64;
  }

  // Floats, an even number.
  static int64_t ZerosAndCopies(const Plan& plan) {
    const bool copies = plan.piece_columns == 1 && plan.is_padded;
    const int64_t floats = copies ? SaturatingMultiply(plan.cut.rows, plan.k) : 0;
    return SaturatingAdd(floats, plan.piece + 1) / 2 * 2;
  }

  void RunWorker(const Plan& plan, const Tensor& packed, const KernelContext& k,
                 int64_t worker) const {
    std::byte* scratch = k.scratch<std::byte>() + worker * plan.worker_bytes;
    const ProductResult result{k.input<float>(2), plan.has_sum ? k.input<float>(3) : nullptr,
                               activation_, k.output<float>(0)};
    if (!plan.is_plain) std::fill_n(reinterpret_cast<float*>(scratch), plan.piece, 0.0f);
    const Share share = ShareOf(plan.cut.units(), worker, plan.cut.workers);
    for (int64_t i = share.begin; i < share.end; ++i) {
      ProductUnit unit = UnitOf(plan.cut, i, plan.m, plan.out, simd_.gemm_width);
      const WindowRows rows = RowsThatMeet(plan, unit.first_row, unit.rows);
      const int64_t row_depth = plan.k / plan.piece_rows;
      unit.first_depth = rows.first * row_depth;
      unit.depth = (rows.end - rows.first) * row_depth;
      RunProductUnit(simd_, unit, {packed.data<float>(), plan.k, plan.out, by_column_}, result,
                     RowsOf(plan, k.input<float>(0), unit, rows, scratch));
    }
  }

  static math::GemmArguments RowsOf(const Plan& plan, const float* x, const ProductUnit& unit,
                                    WindowRows rows, std::byte* scratch) {
    math::GemmArguments g{};
    if (plan.is_plain) {
      g.lda = plan.k;
      g.a = x + unit.first_row * plan.k;
      return g;
    }
    auto* zeros = reinterpret_cast<float*>(scratch);
    auto** addresses = reinterpret_cast<const float**>(zeros + ZerosAndCopies(plan));
    PieceFinder(plan, rows, x, zeros, zeros + plan.piece)
        .Find(unit.first_row, unit.rows, addresses);
    g.pieces = addresses;
    g.piece = plan.piece;
    return g;
  }

  ActivationBounds activation_;
  Shape weight_shape_;
  bool by_column_;
  std::unique_ptr<LazyForm> weights_;
  const math::Simd& simd_;
};

}  // namespace

bool TakesProductConv(const KernelInfo& info) {
  const Shape& weights = info.constant_input(1)->shape();
  if (info.node.attributes.Int("group", 1) != 1) return false;
  const bool is_wide = math::CurrentSimd().few_rows != nullptr;  // 512 bits
  if (is_wide && IsWideSignal(info)) return true;
  if (SaturatingMultiply(weights[1], weights[3]) < kLeastPiece) return false;
  return onednn::OwnProductsAreFaster() || (is_wide && HasFewOutputs(weights));
}

// Requires weights of floats, [out, in, height, width].
Result<std::unique_ptr<Kernel>> MakeProductConv(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer& weights = *info.constant_input(1);
  ONNXD_RETURN_IF_ERROR(weights.Load());
  return std::unique_ptr<Kernel>(
      std::make_unique<ProductConv>(activation, weights, math::CurrentSimd()));
}

}  // namespace onnxd
