// onnxd::ConvWinograd: a 3 x 3 convolution of stride 1 over [batch, height, width, channels] by
// Winograd's F(4x4, 3x3): 36 products of small matrices for 16 pixels instead of 144; or, with
// tile=2, F(2x2, 3x3): 16 for 4 instead of 36. Weights take 4 or 1.78 times their memory, and
// results differ from direct ones by some 1e-6 of the largest. With a dilation of d, each d-th row
// of the result is a convolution without dilation of each d-th row of the image; of such rows and
// columns is a phase.
#include <algorithm>
#include <array>

#include "runtime/base/ceil_divide.h"
#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr size_t kMostProducts = 36;
constexpr int64_t kGemmRows = 12;
constexpr int64_t kBlockTiles = 5 * kGemmRows;  // transformed at a time
constexpr int64_t kFewestTiles = 8;             // of a thread: all its weights are read for them
constexpr int64_t kChannelStep = 16;
constexpr int64_t kMostDilation = int64_t{1} << 40;  // beyond any image, far from overflow

using FilterRow = std::array<double, 3>;

// G, [tile + 2, 3].
std::vector<FilterRow> FilterTransform(int64_t tile) {
  if (tile == 2) return {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}};
  return {{1.0 / 4, 0, 0},
          {-1.0 / 6, -1.0 / 6, -1.0 / 6},
          {-1.0 / 6, 1.0 / 6, -1.0 / 6},
          {1.0 / 24, 1.0 / 12, 1.0 / 6},
          {1.0 / 24, -1.0 / 12, 1.0 / 6},
          {0, 0, 1}};
}

// G g G^T of one 3 x 3 filter; out[i * stride].
void TransformFilter(const std::vector<FilterRow>& transform, const float* g, float* out,
                     int64_t stride) {
  for (const FilterRow& left : transform) {
    FilterRow half{};
    for (size_t b = 0; b < 3; ++b)
      half[b] = left[0] * g[b] + left[1] * g[3 + b] + left[2] * g[6 + b];
    for (const FilterRow& right : transform) {
      *out = static_cast<float>(half[0] * right[0] + half[1] * right[1] + half[2] * right[2]);
      out += stride;
    }
  }
}

// The matrices [in, out] of all products, packed for the GEMM, one behind the other.
Result<Tensor> PackFilters(const math::Simd& simd, const Tensor& weights, int64_t tile) {
  const int64_t out = weights.shape()[0], in = weights.shape()[1];
  const int64_t packed = math::PackedBSize(simd, in, out), products = (tile + 2) * (tile + 2);
  ONNXD_ASSIGN_OR_RETURN(Tensor result, Tensor::Create(DataType::kFloat, Shape{products * packed}));
  ONNXD_ASSIGN_OR_RETURN(Tensor plain, Tensor::Create(DataType::kFloat, Shape{products, in, out}));
  const std::vector<FilterRow> transform = FilterTransform(tile);
  for (int64_t i = 0; i < in; ++i) {
    for (int64_t o = 0; o < out; ++o) {  // inside: neighbours in all matrices
      TransformFilter(transform, weights.data<float>() + (o * in + i) * 9,
                      plain.mutable_data<float>() + i * out + o, in * out);
    }
  }
  for (int64_t p = 0; p < products; ++p) {
    simd.pack_b(plain.data<float>() + p * in * out, out, false, in, out,
                result.mutable_data<float>() + p * packed);
  }
  return result;
}

struct Plan {
  int64_t tile, side, products;        // side: tile + 2
  int64_t height, width, in;           // of the input
  int64_t out_height, out_width, out;  // of the result
  int64_t pad_top, pad_left;
  int64_t row_step, column_step;      // dilations
  int64_t row_phases, column_phases;  // as many as dilations, or as the result has rows and columns
  int64_t tile_rows, tile_columns;    // of one phase
  int64_t tiles;                      // of all images
  int64_t blocks, block_tiles;
  int64_t block_floats;  // scratch of one thread
  ActivationBounds activation;
};

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

struct TilePosition {
  int64_t image, row, column;  // of the result's first pixel; its others are a step apart
};

// Blocks of whole tiles of the GEMM's rows for one thread, of equal sizes for several.
void DivideTiles(int64_t threads, Plan* plan) {
  const int64_t workers = std::clamp<int64_t>(plan->tiles / kFewestTiles, 1, threads);
  const int64_t rounds = (plan->tiles + workers * kBlockTiles - 1) / (workers * kBlockTiles);
  plan->block_tiles = (plan->tiles + workers * rounds - 1) / (workers * rounds);
  if (workers == 1) plan->block_tiles = (plan->block_tiles + kGemmRows - 1) / kGemmRows * kGemmRows;
  plan->blocks = (plan->tiles + plan->block_tiles - 1) / plan->block_tiles;
}

class BlockRun {
 public:
  BlockRun(const Plan& plan, const math::Simd& simd, const Tensor& filters, const KernelContext& k,
           float* scratch)
      : plan_(plan), simd_(simd), filters_(filters), k_(k), zeros_(scratch) {
    const int64_t widest = Aligned(std::max(plan.in, plan.out));
    std::fill_n(zeros_, plan.in, 0.0f);
    nowhere_ = zeros_ + widest;
    left_ = nowhere_ + widest;
    products_ = left_ + plan.products * plan.block_tiles * plan.in;
  }

  void Run(int64_t block) {
    const int64_t first = block * plan_.block_tiles;
    const int64_t count = std::min(plan_.block_tiles, plan_.tiles - first);
    for (int64_t i = 0; i < count; ++i) ReadTile(At(first + i), left_ + i * plan_.in);
    const int64_t packed = math::PackedBSize(simd_, plan_.in, plan_.out);
    for (int64_t p = 0; p < plan_.products; ++p) {
      simd_.gemm({count, plan_.out, plan_.in, left_ + p * plan_.block_tiles * plan_.in, plan_.in,
                  filters_.data<float>() + p * packed,
                  products_ + p * plan_.block_tiles * plan_.out, plan_.out});
    }
    for (int64_t i = 0; i < count; ++i) WriteTile(At(first + i), products_ + i * plan_.out);
  }

 private:
  TilePosition At(int64_t tile) const {
    const int64_t per_phase = plan_.tile_rows * plan_.tile_columns;
    const int64_t phase = tile / per_phase, within = tile % per_phase;
    const int64_t phases = plan_.row_phases * plan_.column_phases;
    const int64_t row = within / plan_.tile_columns * plan_.tile;
    const int64_t column = within % plan_.tile_columns * plan_.tile;
    return {phase / phases, row * plan_.row_step + phase % phases / plan_.column_phases,
            column * plan_.column_step + phase % plan_.column_phases};
  }

  void ReadTile(TilePosition at, float* to) const {
    const float* image = k_.input<float>(0) + at.image * plan_.height * plan_.width * plan_.in;
    std::array<const float*, kMostProducts> pixels;
    for (int64_t i = 0; i < plan_.side; ++i) {
      for (int64_t j = 0; j < plan_.side; ++j) {
        const int64_t row = at.row - plan_.pad_top + i * plan_.row_step;
        const int64_t column = at.column - plan_.pad_left + j * plan_.column_step;
        const bool inside = row >= 0 && row < plan_.height && column >= 0 && column < plan_.width;
        pixels[static_cast<size_t>(i * plan_.side + j)] =
            inside ? image + (row * plan_.width + column) * plan_.in : zeros_;
      }
    }
    simd_.winograd_input(static_cast<int>(plan_.tile), pixels.data(), plan_.in, to,
                         plan_.block_tiles * plan_.in);
  }

  void WriteTile(TilePosition at, const float* from) const {
    const int64_t origin = at.image * plan_.out_height * plan_.out_width;
    const float* residual = k_.input<float>(3);
    std::array<float*, 16> pixels;
    std::array<const float*, 16> residuals;
    for (int64_t i = 0; i < plan_.tile; ++i) {
      for (int64_t j = 0; j < plan_.tile; ++j) {
        const int64_t row = at.row + i * plan_.row_step;
        const int64_t column = at.column + j * plan_.column_step;
        const bool inside = row < plan_.out_height && column < plan_.out_width;
        const int64_t offset = (origin + row * plan_.out_width + column) * plan_.out;
        const auto pixel = static_cast<size_t>(i * plan_.tile + j);
        pixels[pixel] = inside ? k_.output<float>(0) + offset : nowhere_;
        residuals[pixel] = inside && residual != nullptr ? residual + offset : nowhere_;
      }
    }
    simd_.winograd_output(static_cast<int>(plan_.tile), from, plan_.block_tiles * plan_.out,
                          plan_.out,
                          {pixels.data(), residual != nullptr ? residuals.data() : nullptr,
                           k_.input<float>(2), plan_.activation.low, plan_.activation.high});
    const Activation& rest = plan_.activation.rest;
    if (rest.kind == Activation::Kind::kNone) return;
    for (int64_t i = 0; i < plan_.tile * plan_.tile; ++i) {
      float* pixel = pixels[static_cast<size_t>(i)];
      if (pixel != nowhere_) rest.Apply(pixel, plan_.out);
    }
  }

  const Plan& plan_;
  const math::Simd& simd_;
  const Tensor& filters_;
  const KernelContext& k_;
  float* zeros_;
  float* nowhere_;
  float* left_;      // [products][tiles][in]
  float* products_;  // [products][tiles][out]
};

class ConvWinograd : public Kernel {
 public:
  ConvWinograd(Activation activation, int64_t tile, Shape weights, Tensor filters,
               const math::Simd& simd)
      : activation_(activation),
        tile_(tile),
        weights_(std::move(weights)),
        filters_(std::move(filters)),
        simd_(simd) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape& x = context.InputShape(0);
    const Shape& y = context.OutputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const Window window, PoolWindow(context.node, {x[1], x[2]}, {3, 3}));
    const bool has_bias = context.HasInput(2), has_sum = context.HasInput(3);
    if (x[3] != weights_[1] || y[3] != weights_[0] ||
        (has_bias && context.InputShape(2).ElementCount() != weights_[0]) ||
        (has_sum && !(context.InputShape(3) == y))) {
      return InvalidArgument(
          StrCat(Describe(context.node), ": X, weights, bias and Z do not fit together"));
    }
    PreparedKernel prepared;
    if (has_sum) prepared.in_place = {{0, 3}};
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    Plan plan{};
    plan.tile = tile_, plan.side = tile_ + 2, plan.products = plan.side * plan.side;
    plan.height = x[1], plan.width = x[2], plan.in = x[3];
    plan.out_height = y[1], plan.out_width = y[2], plan.out = y[3];
    plan.pad_top = window.pads_begin[0], plan.pad_left = window.pads_begin[1];
    plan.row_step = window.dilations[0], plan.column_step = window.dilations[1];
    plan.row_phases = std::min(plan.row_step, y[1]);
    plan.column_phases = std::min(plan.column_step, y[2]);
    plan.tile_rows = CeilDivide(CeilDivide(y[1], plan.row_step), tile_);
    plan.tile_columns = CeilDivide(CeilDivide(y[2], plan.column_step), tile_);
    plan.tiles = y[0] * plan.row_phases * plan.column_phases * plan.tile_rows * plan.tile_columns;
    DivideTiles(context.threads, &plan);
    plan.block_floats = 2 * Aligned(std::max(plan.in, plan.out)) +
                        plan.products * plan.block_tiles * (plan.in + plan.out);
    plan.activation = BoundsOf(activation_);
    const int64_t workers = std::min<int64_t>(plan.blocks, context.threads);
    prepared.scratch_bytes = static_cast<size_t>(workers * plan.block_floats) * sizeof(float);
    prepared.compute = [plan, workers, this](const KernelContext& k) {
      k.pool().ParallelFor(workers, 1, [&](int64_t first, int64_t last) {
        for (int64_t worker = first; worker < last; ++worker) {
          BlockRun run(plan, simd_, filters_, k, k.scratch<float>() + worker * plan.block_floats);
          const Share share = ShareOf(plan.blocks, worker, workers);
          for (int64_t block = share.begin; block < share.end; ++block) run.Run(block);
        }
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  Activation activation_;
  int64_t tile_;
  Shape weights_;
  Tensor filters_;
  const math::Simd& simd_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeConvWinograd(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const Initializer* weights = info.constant_input(1);
  if (weights == nullptr || weights->shape().rank() != 4 || weights->shape()[2] != 3 ||
      weights->shape()[3] != 3 || weights->shape()[0] % kChannelStep != 0 ||
      weights->shape()[1] % kChannelStep != 0) {
    return Unimplemented("ConvWinograd needs constant 3 x 3 weights of multiples of 16 channels");
  }
  const Attributes& attributes = info.node.attributes;
  for (const int64_t step : attributes.Ints("strides")) {
    if (step != 1) return Unimplemented("ConvWinograd has no strides");
  }
  for (const int64_t step : attributes.Ints("dilations")) {
    if (step > kMostDilation)
      return Unimplemented(StrCat("ConvWinograd has no dilation of ", step));
  }
  if (attributes.Int("group", 1) != 1) return Unimplemented("ConvWinograd has no groups");
  const int64_t tile = attributes.Int("tile", 4);
  if (tile != 2 && tile != 4) return Unimplemented("ConvWinograd has tiles of 2 and 4");
  const math::Simd& simd = math::CurrentSimd();
  ONNXD_ASSIGN_OR_RETURN(Tensor filters,
                         weights->InForm(StrCat("winograd ", tile, ", ", simd.name),
                                         [&](const Tensor& plain) -> Result<Tensor> {
                                           return PackFilters(simd, plain, tile);
                                         }));
  return std::unique_ptr<Kernel>(
      std::make_unique<ConvWinograd>(activation, tile, weights->shape(), std::move(filters), simd));
}

}  // namespace onnxd
