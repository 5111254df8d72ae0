// onnxd::QLinearConvChannelsLast by products of our own, where these are faster than oneDNN's
// convolutions: the rows of x that a block of pixels needs are widened to 16-bit integers, with
// their padding written out, and windows are pieces of them (math::ByteGemmArguments::pieces).
#include <algorithm>
#include <optional>

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"
#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/onednn/quantized_conv.h"
#include "runtime/providers/cpu/packed_product.h"

namespace onnxd {

bool TakesQuantizedWinograd(const KernelInfo&, const Shape& weights);
Result<std::unique_ptr<Kernel>> MakeQuantizedWinograd(onednn::QuantizedConvConstants,
                                                      std::vector<int32_t> offsets,
                                                      Initializer weights);

namespace {

constexpr size_t kX = 0;

int64_t RoundedUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// How a window lies in a row of A: `rows` times `columns` pieces of `size` elements, an even
// number. Columns that follow each other are one piece; behind it there may be one more element.
struct Pieces {
  int64_t rows, columns, size;

  int64_t count() const { return rows * columns; }
  int64_t k() const { return count() * size; }
};

// Of weights [out, in, height, width].
Pieces PiecesOf(const Shape& weights, bool has_holes) {
  const int64_t in = weights[1], width = weights[3];
  if (has_holes) return {weights[2], width, RoundedUp(in, 2)};
  return {weights[2], 1, RoundedUp(in * width, 2)};
}

struct Plan : onednn::ConvGeometry {
  Pieces pieces;
  bool is_plain;  // rows of A are pixels
  int64_t padded_width;
  ProductCut cut;  // of one image
  // Of a worker's scratch: widened elements, addresses, floats.
  int64_t wide, addresses, tile;

  int64_t units() const { return images * cut.units(); }
  int64_t worker_bytes() const { return wide * 2 + addresses * 8 + tile * 4; }
};

// [out, in, height, width] as B[pieces.k(), out] of byte_gemm.
Result<Tensor> PackWindows(const math::Simd& simd, const Tensor& weights, const Pieces& pieces) {
  const Shape& w = weights.shape();
  const int64_t in_piece = w[3] / pieces.columns, k = pieces.k();
  ONNXD_ASSIGN_OR_RETURN(Tensor rows, Tensor::Create(DataType::kInt8, Shape{w[0], k}));
  ONNXD_ASSIGN_OR_RETURN(
      Tensor packed, Tensor::Create(DataType::kInt8, Shape{math::PackedBytesSize(simd, k, w[0])}));
  const int8_t* from = weights.data<int8_t>();
  std::fill_n(rows.mutable_data<int8_t>(), w[0] * k, int8_t{0});
  for (int64_t o = 0; o < w[0]; ++o) {
    int8_t* to = rows.mutable_data<int8_t>() + o * k;
    for (int64_t c = 0; c < w[1]; ++c) {
      for (int64_t i = 0; i < w[2] * w[3]; ++i) {
        to[i / in_piece * pieces.size + i % in_piece * w[1] + c] = *from++;
      }
    }
  }
  simd.pack_bytes(rows.data<int8_t>(), true, k, w[0], packed.mutable_data<int8_t>());
  return packed;
}

// One unit of an image.
class UnitRun {
 public:
  UnitRun(const Plan& plan, const math::Simd& simd, math::Quantization x, const uint8_t* image,
          std::byte* scratch)
      : plan_(plan),
        simd_(simd),
        x_(x),
        image_(image),
        wide_(reinterpret_cast<int16_t*>(scratch)),
        addresses_(reinterpret_cast<const int16_t**>(scratch + plan.wide * 2)),
        tile_(reinterpret_cast<float*>(scratch + plan.wide * 2 + plan.addresses * 8)) {}

  // Where the unit's rows of A are.
  void SetRows(const ProductUnit& unit, math::ByteGemmArguments* g) {
    if (plan_.is_plain) {
      Widen(image_ + unit.first_row * plan_.in, unit.rows, wide_);
      g->wide = wide_;
      g->lda = plan_.in;
      return;
    }
    WidenBand(unit);
    FindPieces(unit);
    g->pieces = addresses_;
    g->piece = plan_.pieces.size;
  }

  float* tile() const { return tile_; }

 private:
  void Widen(const uint8_t* from, int64_t pixels, int16_t* to) const {
    simd_.widen_bytes(from, to, pixels * plan_.in, x_.is_signed);
  }

  // The rows of x that the unit's windows reach, padded.
  void WidenBand(const ProductUnit& unit) const {
    const Window& window = plan_.window;
    const int64_t first = unit.first_row / plan_.out_width;
    const int64_t last = (unit.first_row + unit.rows - 1) / plan_.out_width;
    const int64_t top = first * window.strides[0] - window.pads_begin[0];
    const int64_t bottom = last * window.strides[0] - window.pads_begin[0] +
                           (window.kernel[0] - 1) * window.dilations[0];
    const auto zero = static_cast<int16_t>(x_.zero);
    const int64_t left = window.pads_begin[1] * plan_.in;
    const int64_t inner = plan_.width * plan_.in, row = plan_.padded_width * plan_.in;
    int16_t* to = wide_;
    for (int64_t y = top; y <= bottom; ++y, to += row) {
      if (y < 0 || y >= plan_.height) {
        std::fill_n(to, row, zero);
        continue;
      }
      std::fill_n(to, left, zero);
      Widen(image_ + y * plan_.width * plan_.in, plan_.width, to + left);
      std::fill(to + left + inner, to + row, zero);
    }
  }

  void FindPieces(const ProductUnit& unit) const {
    const Window& window = plan_.window;
    const int64_t first = unit.first_row / plan_.out_width;
    const int64_t row_step = window.dilations[0] * plan_.padded_width * plan_.in;
    const int64_t column_step = window.dilations[1] * plan_.in;
    const int16_t** to = addresses_;
    for (int64_t i = 0; i < unit.rows; ++i) {
      const int64_t pixel = unit.first_row + i;
      const int64_t y = (pixel / plan_.out_width - first) * window.strides[0];
      const int64_t x = pixel % plan_.out_width * window.strides[1];
      const int16_t* corner = wide_ + (y * plan_.padded_width + x) * plan_.in;
      for (int64_t r = 0; r < plan_.pieces.rows; ++r) {
        for (int64_t c = 0; c < plan_.pieces.columns; ++c) {
          *to++ = corner + r * row_step + c * column_step;
        }
      }
    }
  }

  const Plan& plan_;
  const math::Simd& simd_;
  math::Quantization x_;
  const uint8_t* image_;
  int16_t* wide_;
  const int16_t** addresses_;
  float* tile_;  // [rows of a unit, gemm_width]
};

class QuantizedProductConv : public Kernel {
 public:
  QuantizedProductConv(onednn::QuantizedConvConstants constants, std::vector<int32_t> offsets,
                       Initializer weights)
      : simd_(math::CurrentSimd()),
        x_(constants.x),
        y_(constants.y),
        weight_shape_(constants.weights.shape()),
        scales_(std::move(constants.scales)),
        offsets_(std::move(offsets)),
        weights_(std::make_unique<LazyForm>(std::move(weights),
                                            StrCat("windows of bytes, ", simd_.name))) {}

  bool ReadsInput(size_t i) const override { return i == kX; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(kX), &y = context.OutputShape(0), &w = weight_shape_;
    Plan plan{};
    ONNXD_ASSIGN_OR_RETURN(static_cast<onednn::ConvGeometry&>(plan),
                           onednn::GeometryOf(context.node, x, y, w));
    plan.pieces = PiecesOf(w, plan.window.dilations[1] != 1);
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    ONNXD_RETURN_IF_ERROR(CutWork(context, &plan));
    prepared.scratch_bytes = static_cast<size_t>(plan.cut.workers * plan.worker_bytes());
    ONNXD_ASSIGN_OR_RETURN(const Tensor packed, weights_->Get([&](const Tensor& plain) {
      return PackWindows(simd_, plain, plan.pieces);
    }));
    prepared.compute = [plan, packed, this](const KernelContext& k) {
      k.pool().ParallelFor(plan.cut.workers, 1, [&](int64_t first, int64_t last) {
        for (int64_t worker = first; worker < last; ++worker) {
          std::byte* scratch = k.scratch<std::byte>() + worker * plan.worker_bytes();
          const Share share = ShareOf(plan.units(), worker, plan.cut.workers);
          for (int64_t i = share.begin; i < share.end; ++i) {
            RunUnit(plan, packed, k, i, scratch);
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  Status CutWork(const PrepareContext& context, Plan* plan) const {
    const Window& window = plan->window;
    plan->is_plain = weight_shape_[2] * weight_shape_[3] == 1 && AreAll(window.strides, 1) &&
                     AreAll(window.pads_begin, 0) && AreAll(window.pads_end, 0);
    plan->padded_width = plan->width + window.pads_begin[1] + window.pads_end[1];
    const int64_t panels = RoundedUp(plan->out, simd_.gemm_width) / simd_.gemm_width;
    const int64_t products =
        SaturatingMultiply(SaturatingMultiply(plan->pixels(), plan->pieces.k()), plan->out);
    plan->cut = CutProduct(plan->pixels(), panels, products, context.threads, plan->images);
    const auto wide = WideElements(*plan);
    const auto addresses =
        plan->is_plain ? 0 : CheckedMultiply(plan->cut.rows, plan->pieces.count());
    plan->tile = plan->cut.rows * simd_.gemm_width;
    const auto fits = [&](std::optional<int64_t> elements) {
      return elements && *elements < (int64_t{1} << 40) / context.threads;
    };
    if (!fits(wide) || !fits(addresses)) {
      return ResourceExhausted(StrCat(Describe(context.node), ": too large windows"));
    }
    plan->wide = RoundedUp(*wide, 32);
    plan->addresses = RoundedUp(*addresses, 8);
    return Status::Ok();
  }

  // That a unit reads: behind the last pixel one more.
  std::optional<int64_t> WideElements(const Plan& plan) const {
    if (plan.is_plain) return plan.cut.rows * plan.in + 1;
    const Window& window = plan.window;
    const int64_t rows_of_y =
        std::min(plan.out_height, (plan.cut.rows + plan.out_width - 2) / plan.out_width + 1);
    const int64_t rows = SaturatingAdd(
        (rows_of_y - 1) * window.strides[0],
        SaturatingAdd(SaturatingMultiply(window.kernel[0] - 1, window.dilations[0]), 1));
    const auto elements = CheckedMultiply(rows, SaturatingMultiply(plan.padded_width, plan.in));
    return elements ? CheckedAdd(*elements, 1) : std::nullopt;
  }

  void RunUnit(const Plan& plan, const Tensor& packed, const KernelContext& k, int64_t index,
               std::byte* scratch) const {
    const int64_t image = index / plan.cut.units(), pixels = plan.pixels();
    const ProductUnit unit =
        UnitOf(plan.cut, index % plan.cut.units(), pixels, plan.out, simd_.gemm_width);
    UnitRun run(plan, simd_, x_, k.input<uint8_t>(kX) + image * plan.height * plan.width * plan.in,
                scratch);
    math::ByteGemmArguments g{};
    g.m = unit.rows;
    g.k = plan.pieces.k();
    run.SetRows(unit, &g);
    g.c = run.tile();
    g.ldc = simd_.gemm_width;
    const math::Quantization to{y_.is_signed, 1.0f, y_.zero};
    const int64_t panel_bytes = math::PackedBytesSize(simd_, plan.pieces.k(), simd_.gemm_width);
    uint8_t* y = k.output<uint8_t>(0) + (image * pixels + unit.first_row) * plan.out;
    const int64_t end = unit.first_column + unit.columns;
    for (int64_t column = unit.first_column; column < end; column += simd_.gemm_width) {
      g.n = std::min(simd_.gemm_width, end - column);
      g.packed_b = packed.data<int8_t>() + column / simd_.gemm_width * panel_bytes;
      g.offsets = offsets_.data() + column;
      g.scales = scales_.data() + column;
      simd_.byte_gemm(g, 0, 1);
      simd_.quantize_rows(run.tile(), simd_.gemm_width, to, y + column, plan.out, unit.rows, g.n);
    }
  }

  const math::Simd& simd_;
  math::Quantization x_, y_;
  Shape weight_shape_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
  std::unique_ptr<LazyForm> weights_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeQuantizedProductConv(const KernelInfo& info,
                                                         onednn::QuantizedConvConstants constants,
                                                         Initializer weights) {
  std::vector<int32_t> offsets =
      onednn::CompensatedBias(constants, static_cast<int32_t>(constants.x.zero));
  for (int32_t& offset : offsets) offset = static_cast<int32_t>(0 - static_cast<uint32_t>(offset));
  if (TakesQuantizedWinograd(info, constants.weights.shape())) {
    return MakeQuantizedWinograd(std::move(constants), std::move(offsets), std::move(weights));
  }
  return std::unique_ptr<Kernel>(std::make_unique<QuantizedProductConv>(
      std::move(constants), std::move(offsets), std::move(weights)));
}

}  // namespace onnxd
