// Three products of bfloat16 make one of floats: low * high, high * high and high * low, added in
// floats; low * low is below what is kept. Errors are some 2^-16 of the operands' sizes. Source:
// Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
// Higher-Precision Computations", 2019.
#include "runtime/providers/cpu/bfloat16_product.h"

#include <algorithm>
#include <optional>

#include "runtime/base/checked_math.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/filter_rows.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr size_t kA = 0, kB = 1, kBias = 2, kZ = 3;
constexpr int64_t kRowBlock = 128;
constexpr int64_t kCachedBytes = 768 << 10;  // rows of A that pass by again for each panel
constexpr int64_t kDepth = 1024;          // of k that is taken at a time where sums stay in place
constexpr int64_t kMostCopied = 2 << 20;  // elements of windows
constexpr int64_t kLeastWork = 1 << 20;   // products that are worth several threads

// The right side, packed; `low` is undefined where the elements are bfloat16 themselves.
struct PackedHalves {
  const math::Simd* simd;
  int64_t k, n;
  Tensor high, low;

  bool split() const { return low.defined(); }
  int64_t panels() const { return (n + simd->gemm_width - 1) / simd->gemm_width; }
  int64_t panel_elements() const { return math::PackedBfloat16Size(*simd, k, simd->gemm_width); }
  int64_t lda() const { return math::PaddedBytes(*simd, 2 * k) / 2; }
};

enum class Half { kHigh, kLow };

// One half of B, which is floats, or B itself.
Result<Tensor> HalfOf(const Tensor& b, Half half) {
  if (b.type() == DataType::kBfloat16) return b;
  ONNXD_ASSIGN_OR_RETURN(Tensor high, Tensor::Create(DataType::kBfloat16, b.shape()));
  Tensor low;
  if (half == Half::kLow) {
    ONNXD_ASSIGN_OR_RETURN(low, Tensor::Create(DataType::kBfloat16, b.shape()));
  }
  math::CurrentSimd().narrow(b.data<float>(), static_cast<uint16_t*>(high.mutable_raw()),
                             low.defined() ? static_cast<uint16_t*>(low.mutable_raw()) : nullptr,
                             b.ElementCount());
  return low.defined() ? low : high;
}

Result<Tensor> PackHalf(const Initializer& b, bool transposed, const PackedHalves& sizes,
                        Half half) {
  const math::Simd& simd = *sizes.simd;
  const std::string form = StrCat(b.shape().rank() == 4 ? "filters, " : "", "bfloat16 ",
                                  half == Half::kLow ? "rest" : "rounded",
                                  transposed ? ", transposed, " : ", ", simd.name);
  return b.InForm(form, [&](const Tensor& plain) -> Result<Tensor> {
    ONNXD_ASSIGN_OR_RETURN(Tensor elements, HalfOf(plain, half));
    if (plain.shape().rank() == 4) {
      ONNXD_ASSIGN_OR_RETURN(elements, FilterRows(elements));
    }
    ONNXD_ASSIGN_OR_RETURN(
        Tensor packed,
        Tensor::Create(DataType::kUint16, Shape{math::PackedBfloat16Size(simd, sizes.k, sizes.n)}));
    simd.pack_bfloat16(static_cast<const uint16_t*>(elements.raw()), transposed ? sizes.k : sizes.n,
                       transposed, sizes.k, sizes.n, packed.mutable_data<uint16_t>());
    return packed;
  });
}

// What rows of A are windows of: [batch, height, width, in].
struct Image {
  Window window;
  int64_t height, width, in;
  int64_t out_height, out_width;
};

// What one call needs beside the matrix.
struct Call {
  int64_t m;
  int64_t rows;  // that are copied and multiplied at once
  std::optional<Image> image;
  bool has_sum;
  int64_t chunks;
  int64_t half_elements;  // of A's copy, or of each half of it, rounded up; 0: A is read as it is
  int64_t tile_floats;    // of a chunk; 0: the result is written where it belongs
  size_t scratch_bytes() const {
    return static_cast<size_t>(2 * half_elements) * sizeof(uint16_t) +
           static_cast<size_t>(chunks * tile_floats) * sizeof(float);
  }
};

class Bfloat16Product : public Kernel {
 public:
  // `wide`: Z and the result are floats; so are A and B where B is split. filters: [out, in,
  // height, width] of a convolution, whose windows are A's rows; or none.
  Bfloat16Product(PackedHalves b, bool wide, Activation activation,
                  std::optional<Shape> filters = std::nullopt)
      : b_(std::move(b)),
        wide_(wide),
        activation_(activation),
        bounds_(BoundsOf(activation)),
        filters_(std::move(filters)) {}

  bool ReadsInput(size_t i) const override { return i != kB; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    Call call{};
    call.has_sum = context.HasInput(kZ);
    if ((call.has_sum && !(context.InputShape(kZ) == context.OutputShape(0))) ||
        (context.HasInput(kBias) && context.InputShape(kBias).ElementCount() != b_.n)) {
      return InvalidArgument(StrCat(Describe(context.node), ": C or Z does not fit the product"));
    }
    PreparedKernel prepared;
    ONNXD_RETURN_IF_ERROR(FindRows(context, &call));
    if (call.m == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    call.chunks = call.m * b_.k * b_.n < kLeastWork
                      ? 1
                      : std::clamp<int64_t>(b_.panels(), 1, context.threads);
    call.rows = call.m;
    if (b_.split() || b_.lda() != b_.k || call.image) {
      if (call.image) call.rows = std::clamp<int64_t>(kMostCopied / b_.lda(), 1, call.m);
      call.half_elements = (call.rows * b_.lda() + 31) / 32 * 32;
    }
    const bool in_place = wide_ && activation_.kind == Activation::Kind::kNone;
    call.tile_floats = in_place ? 0 : std::min(kRowBlock, call.m) * b_.simd->gemm_width;
    if (call.has_sum) prepared.in_place = {{0, static_cast<int>(kZ)}};
    prepared.scratch_bytes = call.scratch_bytes();
    prepared.compute = [call, this](const KernelContext& k) {
      Run(call, k);
      return Status::Ok();
    };
    return prepared;
  }

 private:
  struct Rows {
    const uint16_t *high, *low;
    int64_t first, count;  // of A
  };

  Status FindRows(const PrepareContext& context, Call* call) const {
    const Shape &a = context.InputShape(kA), &y = context.OutputShape(0);
    const int64_t row = filters_ ? (*filters_)[1] : b_.k;
    if (a.rank() < (filters_ ? 4 : 1) || a[a.rank() - 1] != row) {
      return InvalidArgument(StrCat(Describe(context.node), ": rows of ", a.ToString(),
                                    " do not fit a matrix of ", row, " rows"));
    }
    call->m = b_.k == 0 ? 0 : a.ElementCount() / b_.k;
    if (!filters_) return Status::Ok();
    call->m = y.ElementCount() / b_.n;
    ONNXD_ASSIGN_OR_RETURN(
        Window window, PoolWindow(context.node, {a[1], a[2]}, {(*filters_)[2], (*filters_)[3]}));
    for (const auto& pads : {window.pads_begin, window.pads_end}) {
      if (std::any_of(pads.begin(), pads.end(), [](int64_t pad) { return pad < 0; })) {
        return InvalidArgument(StrCat(Describe(context.node), ": padding below 0"));
      }
    }
    const bool copies = b_.k != row || !AreAll(window.strides, 1) ||
                        !AreAll(window.pads_begin, 0) || !AreAll(window.pads_end, 0);
    if (copies) call->image = Image{std::move(window), a[1], a[2], a[3], y[1], y[2]};
    return Status::Ok();
  }

  void Run(const Call& call, const KernelContext& k) const {
    auto* tiles = reinterpret_cast<float*>(k.scratch<uint16_t>() + 2 * call.half_elements);
    const int64_t panels = b_.panels();
    for (int64_t first = 0; first < call.m; first += call.rows) {
      const Rows rows = PaddedRows(call, k, first, std::min(call.rows, call.m - first));
      k.pool().ParallelFor(call.chunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t chunk = begin; chunk < end; ++chunk) {
          RunChunk(call, k, rows, tiles + chunk * call.tile_floats, panels * chunk / call.chunks,
                   panels * (chunk + 1) / call.chunks);
        }
      });
    }
  }

  // Rows [first, first + count) of A as bfloat16_gemm wants them.
  Rows PaddedRows(const Call& call, const KernelContext& k, int64_t first, int64_t count) const {
    if (call.half_elements == 0) return {k.input<uint16_t>(kA), nullptr, first, count};
    auto* high = k.scratch<uint16_t>();
    uint16_t* low = b_.split() ? high + call.half_elements : nullptr;
    const int64_t lda = b_.lda();
    k.pool().ParallelFor(count, 1 + (1 << 16) / b_.k, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        uint16_t* to = high + row * lda;
        std::fill_n(to + b_.k, lda - b_.k, uint16_t{0});
        if (call.image) {
          CopyWindow(*call.image, k.input<uint16_t>(kA), first + row, to);
          continue;
        }
        const int64_t from = (first + row) * b_.k;
        if (low == nullptr) {
          std::copy_n(k.input<uint16_t>(kA) + from, b_.k, to);
          continue;
        }
        std::fill_n(low + row * lda + b_.k, lda - b_.k, uint16_t{0});
        b_.simd->narrow(k.input<float>(kA) + from, to, low + row * lda, b_.k);
      }
    });
    return {high, low, first, count};
  }

  // The window of one pixel of the result, and zeros where it is outside of its image.
  static void CopyWindow(const Image& image, const uint16_t* x, int64_t pixel, uint16_t* to) {
    const Window& window = image.window;
    const int64_t pixels = image.out_height * image.out_width, at = pixel % pixels;
    x += pixel / pixels * image.height * image.width * image.in;
    const int64_t top = at / image.out_width * window.strides[0] - window.pads_begin[0];
    const int64_t left = at % image.out_width * window.strides[1] - window.pads_begin[1];
    for (int64_t i = 0; i < window.kernel[0]; ++i) {
      const int64_t row = top + i * window.dilations[0];
      for (int64_t j = 0; j < window.kernel[1]; ++j, to += image.in) {
        const int64_t column = left + j * window.dilations[1];
        if (row >= 0 && row < image.height && column >= 0 && column < image.width) {
          std::copy_n(x + (row * image.width + column) * image.in, image.in, to);
        } else {
          std::fill_n(to, image.in, uint16_t{0});
        }
      }
    }
  }

  // Rows of the block and elements of k that are multiplied at once.
  struct Part {
    int64_t row, rows, depth, depths;
  };

  // The columns of panels [first, last).
  void RunChunk(const Call& call, const KernelContext& k, const Rows& a, float* tile, int64_t first,
                int64_t last) const {
    if (call.tile_floats > 0) std::fill_n(tile, call.tile_floats, 0.0f);
    const int64_t depth = call.tile_floats > 0 ? b_.k : std::min(b_.k, kDepth);
    const int64_t row_bytes = depth * (b_.split() ? 4 : 2);
    const int64_t group = std::max<int64_t>(kCachedBytes / row_bytes / kRowBlock, 1) * kRowBlock;
    for (int64_t begin = 0; begin < a.count; begin += group) {
      const int64_t end = std::min(a.count, begin + group);
      for (int64_t from = 0; from < b_.k; from += depth) {
        for (int64_t panel = first; panel < last; ++panel) {
          for (int64_t row = begin; row < end; row += kRowBlock) {
            RunBlock(call, k, a, tile, panel,
                     {row, std::min(kRowBlock, end - row), from, std::min(depth, b_.k - from)});
          }
        }
      }
    }
  }

  void RunBlock(const Call& call, const KernelContext& k, const Rows& a, float* tile, int64_t panel,
                const Part& part) const {
    const math::Simd& simd = *b_.simd;
    const int64_t column = panel * simd.gemm_width, at = (a.first + part.row) * b_.n + column;
    const int64_t of_a = part.row * b_.lda() + part.depth;
    const int64_t of_b = panel * b_.panel_elements() + part.depth * simd.gemm_width;
    const bool in_place = call.tile_floats == 0, begins = part.depth == 0;
    math::Bfloat16GemmArguments g{};
    g.m = part.rows;
    g.n = std::min(simd.gemm_width, b_.n - column);
    g.k = part.depths;
    g.a = a.high + of_a;
    if (a.low != nullptr) g.a_low = a.low + of_a;
    g.lda = b_.lda();
    g.packed_b = b_.high.data<uint16_t>() + of_b;
    if (b_.split()) g.packed_low = b_.low.data<uint16_t>() + of_b;
    g.panel_stride = b_.panel_elements();
    g.c = in_place ? k.output<float>(0) + at : tile;
    g.ldc = in_place ? b_.n : simd.gemm_width;
    const float* bias = k.input<float>(kBias);
    if (begins && bias != nullptr) g.bias = bias + column;
    if (begins && call.has_sum) BringSum(k, g, at);
    g.accumulate = call.has_sum || !begins;
    if (g.accumulate) g.bias = nullptr;  // the sum has it
    simd.bfloat16_gemm(g, 0, 1);
    if (!in_place) Finish(k, g, at);
  }

  void Finish(const KernelContext& k, const math::Bfloat16GemmArguments& g, int64_t at) const {
    if (!wide_) {
      bounds_.rest.Apply(g.c, g.m * g.ldc);
      return b_.simd->narrow_rows(
          {g.c, g.ldc, k.output<uint16_t>(0) + at, b_.n, g.m, g.n, bounds_.low, bounds_.high});
    }
    activation_.Apply(g.c, g.m * g.ldc);
    for (int64_t i = 0; i < g.m; ++i) {
      std::copy_n(g.c + i * g.ldc, g.n, k.output<float>(0) + at + i * b_.n);
    }
  }

  // Brings Z, and the bias, to where the product is added.
  void BringSum(const KernelContext& k, const math::Bfloat16GemmArguments& g, int64_t at) const {
    if (!wide_) {
      return b_.simd->widen_rows(k.input<uint16_t>(kZ) + at, b_.n, g.bias, g.c, g.ldc, g.m, g.n);
    }
    for (int64_t i = 0; i < g.m; ++i) {
      float* to = g.c + i * g.ldc;
      const float* z = k.input<float>(kZ) + at + i * b_.n;
      if (g.bias != nullptr) {
        b_.simd->binary(math::Binary::kAdd, z, g.bias, to, g.n, 1, 1);
      } else if (z != to) {
        std::copy_n(z, g.n, to);
      }
    }
  }

  PackedHalves b_;
  bool wide_;
  Activation activation_;
  ActivationBounds bounds_;  // the same, for results that are narrowed
  std::optional<Shape> filters_;
};

Result<std::unique_ptr<Kernel>> Make(const KernelInfo& info, DataType type) {
  const Initializer* b = info.constant_input(kB);
  const DataType result = info.OutputType(0);
  const bool has_sum = info.node.input(kZ) != kNoValue;
  if (b == nullptr || b->shape().rank() != 2 || b->type() != type || info.InputType(kA) != type ||
      (result != DataType::kFloat && result != type) || (has_sum && info.InputType(kZ) != result)) {
    return Unimplemented(
        StrCat(info.node.op_type, " needs ", DataTypeName(type), " and a constant matrix"));
  }
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const bool transposed = info.node.attributes.Int("transB", 0) != 0;
  PackedHalves packed{
      &math::CurrentSimd(), b->shape()[transposed ? 1 : 0], b->shape()[transposed ? 0 : 1], {}, {}};
  if (!info.only_asks) {
    ONNXD_ASSIGN_OR_RETURN(packed.high, PackHalf(*b, transposed, packed, Half::kHigh));
  }
  if (!info.only_asks && type == DataType::kFloat) {
    ONNXD_ASSIGN_OR_RETURN(packed.low, PackHalf(*b, transposed, packed, Half::kLow));
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<Bfloat16Product>(std::move(packed), result == DataType::kFloat, activation));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeBfloat16Product(const KernelInfo& info) {
  return Make(info, DataType::kBfloat16);
}

// Measured: windows of so few pixels, and pixels themselves that make half as many results.
bool TakesBfloat16Windows(const KernelInfo& info, const Shape& weights) {
  constexpr int64_t kFewPixels = 64, kMostPixels = 200, kLeastWeights = 128 << 10;
  const auto& y = info.output_types[0].shape;
  if (!math::CurrentSimd().fast_bfloat16 || weights.ElementCount() < kLeastWeights ||
      info.node.attributes.Int("group", 1) != 1 || !y || y->size() != 4 || !(*y)[1].known() ||
      !(*y)[2].known()) {
    return false;
  }
  const int64_t pixels = SaturatingMultiply((*y)[1].value, (*y)[2].value);
  const bool is_pixel = weights[2] == 1 && weights[3] == 1;
  return pixels <= kFewPixels ||
         (pixels <= kMostPixels && is_pixel && weights[1] >= 2 * weights[0]);
}

Result<std::unique_ptr<Kernel>> MakeBfloat16Windows(const KernelInfo& info) {
  const Initializer& weights = *info.constant_input(kB);
  const Shape& w = weights.shape();
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  PackedHalves packed{&math::CurrentSimd(), w[1] * w[2] * w[3], w[0], {}, {}};
  if (!info.only_asks) {
    ONNXD_ASSIGN_OR_RETURN(packed.high, PackHalf(weights, true, packed, Half::kHigh));
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<Bfloat16Product>(std::move(packed), false, activation, w));
}

Result<std::unique_ptr<Kernel>> MakeMatMulBfloat16x3(const KernelInfo& info) {
  return Make(info, DataType::kFloat);
}

}  // namespace onnxd
