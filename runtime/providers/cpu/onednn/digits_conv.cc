// onnxd::ConvChannelsLast where tiles multiply the digits of floats faster than vectors multiply
// floats (math::Simd::packed_digits_gemm): as a product with the windows of pixels
// (conv_pieces.h).
#include <algorithm>
#include <cstring>

#include "runtime/base/ceil_divide.h"
#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/filter_rows.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/conv_pieces.h"

namespace onnxd {
namespace {

constexpr int64_t kMostRows = 4096;          // of a unit, whose pieces are found at once
constexpr int64_t kMostFound = 1 << 20;      // elements of their windows, unless few rows have more
constexpr int64_t kUsualRows = 128;          // that share a reading of the weights, at least
constexpr int64_t kCachedFloats = 96 << 10;  // of results that are read again
constexpr int64_t kLeastProducts = 1 << 20;  // multiply-adds that are worth a thread
constexpr int64_t kBlockRows = 32;           // that tiles take together
constexpr int64_t kLeastBlocks = 2;          // of a thread; fewer: threads share columns

// Where it is faster: from so many elements of a window, results and pixels on.
constexpr int64_t kLeastDepth = 64, kLeastOutputs = 64, kLeastPixels = 40;

struct Plan : onednn::ConvPieces {
  bool has_sum;
  int64_t rows;                       // of a unit, but for the last one
  int64_t row_units, parts;           // units: of rows, each in parts of neighbouring panels
  int64_t workers;                    // threads
  int64_t found_bytes, worker_bytes;  // of scratch: for what is found, and all

  int64_t units() const { return row_units * parts; }
};

// Units are cut so that threads get as many of them.
void Cut(Plan& plan, int64_t panels, int threads, bool reads_again) {
  const int64_t products = SaturatingMultiply(SaturatingMultiply(plan.m, plan.k), plan.out);
  const int64_t worth = std::clamp<int64_t>(products / kLeastProducts, 1, threads);
  const int64_t blocks = CeilDivide(plan.m, kBlockRows);
  const bool by_rows = blocks >= kLeastBlocks * worth || panels < worth;
  const int64_t row_threads = by_rows ? std::min(worth, blocks) : 1;
  plan.parts = by_rows ? 1 : worth;
  int64_t most = kMostRows;
  if (!plan.is_plain) most = std::clamp<int64_t>(kMostFound / plan.k, kUsualRows, kMostRows);
  if (reads_again) most = std::clamp<int64_t>(kCachedFloats / plan.out, kUsualRows, most);
  const int64_t units = CeilDivide(CeilDivide(plan.m, most), row_threads) * row_threads;
  plan.rows = CeilDivide(plan.m, std::min(units, plan.m));
  plan.row_units = CeilDivide(plan.m, plan.rows);
  plan.workers = std::min(worth, plan.units());
}

class DigitsConv : public Kernel {
 public:
  // Packed weights are for one kind of pieces, whatever the padding of an image is.
  DigitsConv(const Activation& activation, Initializer weights, bool whole_rows,
             const math::Simd& simd)
      : activation_(BoundsOf(activation)),
        weight_shape_(weights.shape()),
        whole_rows_(whole_rows),
        weights_(std::make_unique<LazyForm>(
            std::move(weights),
            StrCat(whole_rows ? "rows" : "pixels", " of windows in digits, ", simd.name))),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(0), &y = context.OutputShape(0);
    Plan plan{};
    ONNXD_ASSIGN_OR_RETURN(onednn::ConvGeometry geometry,
                           onednn::GeometryOf(context.node, x, y, weight_shape_));
    static_cast<onednn::ConvPieces&>(plan) =
        onednn::PiecesOf(std::move(geometry), weight_shape_, whole_rows_);
    ONNXD_RETURN_IF_ERROR(onednn::CheckBiasAndSum(context, plan.out));
    PreparedKernel prepared;
    plan.has_sum = context.HasInput(3);
    if (plan.has_sum) prepared.in_place = {{0, 3}};
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    Cut(plan, Panels(plan), context.threads, activation_.rest.kind != Activation::Kind::kNone);
    const auto found = plan.ScratchBytes(plan.rows);
    if (!found) return ResourceExhausted(StrCat(Describe(context.node), ": too large windows"));
    plan.found_bytes = *found;
    plan.worker_bytes = *found + simd_.packed_digits_scratch(plan.rows, plan.k, plan.out);
    if (!CheckedMultiply(plan.worker_bytes, plan.workers)) {
      return ResourceExhausted(StrCat(Describe(context.node), ": too large windows"));
    }
    prepared.scratch_bytes = static_cast<size_t>(plan.workers * plan.worker_bytes);
    ONNXD_ASSIGN_OR_RETURN(const Tensor packed,
                           weights_->Get([&](const Tensor& plain) { return Pack(plan, plain); }));
    prepared.compute = [plan, packed, this](const KernelContext& k) {
      k.pool().ParallelFor(plan.workers, 1, [&](int64_t first, int64_t last) {
        for (int64_t worker = first; worker < last; ++worker) RunWorker(plan, packed, k, worker);
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  int64_t Panels(const Plan& plan) const { return CeilDivide(plan.out, simd_.gemm_width); }

  Result<Tensor> Pack(const Plan& plan, const Tensor& plain) const {
    Tensor rows = plain;
    if (plan.k != plan.in) {
      ONNXD_ASSIGN_OR_RETURN(rows, FilterRows(plain));
    }
    const int64_t size = simd_.packed_digits_size(plan.k, plan.out);
    ONNXD_ASSIGN_OR_RETURN(Tensor packed, Tensor::Create(DataType::kUint8, Shape{size}));
    auto* to = reinterpret_cast<std::byte*>(packed.mutable_data<uint8_t>());
    std::memset(to, 0, static_cast<size_t>(size));
    simd_.pack_digits(rows.data<float>(), plan.k, plan.out, to);
    return packed;
  }

  void RunWorker(const Plan& plan, const Tensor& packed, const KernelContext& k,
                 int64_t worker) const {
    std::byte* scratch = k.scratch<std::byte>() + worker * plan.worker_bytes;
    const Share share = ShareOf(plan.units(), worker, plan.workers);
    for (int64_t i = share.begin; i < share.end; ++i) {
      const int64_t row = i / plan.parts * plan.rows;
      const Share panels = ShareOf(Panels(plan), i % plan.parts, plan.parts);
      RunUnit(plan, packed, k, {row, std::min(plan.m, row + plan.rows)}, panels, scratch);
    }
  }

  void RunUnit(const Plan& plan, const Tensor& packed, const KernelContext& k, Share rows,
               Share panels, std::byte* scratch) const {
    const int64_t count = rows.end - rows.begin, at = rows.begin * plan.out;
    const math::GemmArguments found =
        onednn::FindRows(plan, {0, plan.piece_rows}, k.input<float>(0), rows.begin, count, scratch);
    math::PackedDigitsArguments g{};
    g.m = count;
    g.n = plan.out;
    g.k = plan.k;
    g.a = found.a;
    g.lda = found.lda;
    g.pieces = found.pieces;
    g.piece = plan.piece;
    g.packed = reinterpret_cast<const std::byte*>(packed.data<uint8_t>());
    g.c = k.output<float>(0) + at;
    g.ldc = plan.out;
    g.bias = k.input<float>(2);
    if (plan.has_sum) g.sum = k.input<float>(3) + at;
    g.low = activation_.low;
    g.high = activation_.high;
    g.shares_results = plan.workers > 1;
    g.scratch = scratch + plan.found_bytes;
    simd_.packed_digits_gemm(g, panels.begin, panels.end);
    const Activation& rest = activation_.rest;
    if (rest.kind == Activation::Kind::kNone) return;
    const int64_t first = panels.begin * simd_.gemm_width;
    const int64_t width = std::min(plan.out, panels.end * simd_.gemm_width) - first;
    if (width == plan.out) return rest.Apply(g.c, count * plan.out);
    for (int64_t i = 0; i < count; ++i) rest.Apply(g.c + i * plan.out + first, width);
  }

  ActivationBounds activation_;
  Shape weight_shape_;
  bool whole_rows_;
  std::unique_ptr<LazyForm> weights_;
  const math::Simd& simd_;
};

}  // namespace

bool TakesDigitsConv(const KernelInfo& info, const Shape& weights) {
  const math::Simd& simd = math::CurrentSimd();
  if (simd.packed_digits_gemm == nullptr || info.node.attributes.Int("group", 1) != 1) return false;
  const int64_t depth = SaturatingMultiply(weights[1], SaturatingMultiply(weights[2], weights[3]));
  if (depth < kLeastDepth || depth > math::kMostDigitDepth || weights[0] < kLeastOutputs) {
    return false;
  }
  const auto& y = info.output_types[0].shape;
  return y && y->size() == 4 && onednn::UsualPixels(*y) >= kLeastPixels;
}

// Requires weights of floats, [out, in, height, width].
Result<std::unique_ptr<Kernel>> MakeDigitsConv(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer& weights = *info.constant_input(1);
  ONNXD_RETURN_IF_ERROR(weights.Load());
  const auto dilations = info.node.attributes.Ints("dilations");
  const bool whole_rows =
      onednn::AlwaysTakesWholeRows(dilations.size() == 2 ? dilations[1] : 1, weights.shape());
  return std::unique_ptr<Kernel>(
      std::make_unique<DigitsConv>(activation, weights, whole_rows, math::CurrentSimd()));
}

}  // namespace onnxd
