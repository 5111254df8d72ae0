// onnxd::ConvChannelsLast by products of our own, where these are faster than oneDNN's
// convolutions (conv_pieces.h).
#include <algorithm>
#include <limits>

#include "runtime/base/checked_math.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/filter_rows.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/conv_pieces.h"
#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/packed_product.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kLeastPiece = 24;  // floats: shorter ones take as long to find as to multiply

// Results of one row and at least that width, which are signals, take oneDNN milliseconds and up to
// a megabyte each to prepare; with the second, even where windows are short.
constexpr int64_t kWideSignal = 64, kWidestSignal = 256;

bool HasFewOutputs(const Shape& weights) { return weights[0] <= math::kMostFewColumns; }

// The result's width where it is one row, the largest where that is unknown; of others 0.
int64_t SignalWidth(const KernelInfo& info) {
  const auto& y = info.output_types[0].shape;
  if (!y || y->size() != 4 || (*y)[1].value != 1) return 0;
  return (*y)[2].known() ? (*y)[2].value : std::numeric_limits<int64_t>::max();
}

struct Plan : onednn::ConvPieces {
  bool has_sum;
  ProductCut cut;
  int64_t worker_bytes;  // of scratch
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
    ONNXD_ASSIGN_OR_RETURN(onednn::ConvGeometry geometry,
                           onednn::GeometryOf(context.node, x, y, w));
    const bool whole_rows = y.ElementCount() > 0 && onednn::TakesWholeRows(geometry, w);
    static_cast<onednn::ConvPieces&>(plan) = onednn::PiecesOf(std::move(geometry), w, whole_rows);
    ONNXD_RETURN_IF_ERROR(onednn::CheckBiasAndSum(context, plan.out));
    PreparedKernel prepared;
    plan.has_sum = context.HasInput(3);
    if (plan.has_sum) prepared.in_place = {{0, 3}};
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    const int64_t panels = (plan.out + simd_.gemm_width - 1) / simd_.gemm_width;
    plan.cut =
        CutProduct(plan.m, panels, SaturatingMultiply(SaturatingMultiply(plan.m, plan.k), plan.out),
                   context.threads);
    const auto bytes = plan.ScratchBytes(plan.cut.rows);
    if (!bytes || !CheckedMultiply(*bytes, plan.cut.workers)) {
      return ResourceExhausted(StrCat(Describe(context.node), ": too large windows"));
    }
    plan.worker_bytes = *bytes;
    prepared.scratch_bytes = static_cast<size_t>(plan.cut.workers * plan.worker_bytes);
    ONNXD_ASSIGN_OR_RETURN(const Tensor packed, weights_->Get([&](const Tensor& plain) {
      return by_column_ ? FilterRows(plain) : onednn::PackConvWeights(simd_, plain, plan.k);
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
  void RunWorker(const Plan& plan, const Tensor& packed, const KernelContext& k,
                 int64_t worker) const {
    std::byte* scratch = k.scratch<std::byte>() + worker * plan.worker_bytes;
    const ProductResult result{k.input<float>(2), plan.has_sum ? k.input<float>(3) : nullptr,
                               activation_, k.output<float>(0)};
    const Share share = ShareOf(plan.cut.units(), worker, plan.cut.workers);
    for (int64_t i = share.begin; i < share.end; ++i) {
      ProductUnit unit = UnitOf(plan.cut, i, plan.m, plan.out, simd_.gemm_width);
      const onednn::WindowRows rows = onednn::RowsThatMeet(plan, unit.first_row, unit.rows);
      const int64_t row_depth = plan.k / plan.piece_rows;
      unit.first_depth = rows.first * row_depth;
      unit.depth = (rows.end - rows.first) * row_depth;
      RunProductUnit(
          simd_, unit, {packed.data<float>(), plan.k, plan.out, by_column_}, result,
          onednn::FindRows(plan, rows, k.input<float>(0), unit.first_row, unit.rows, scratch));
    }
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
  const int64_t signal = SignalWidth(info);
  if (is_wide && signal >= kWidestSignal) return true;
  if (SaturatingMultiply(weights[1], weights[3]) < kLeastPiece) return false;
  return onednn::OwnProductsAreFaster() ||
         (is_wide && (HasFewOutputs(weights) || signal >= kWideSignal));
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
