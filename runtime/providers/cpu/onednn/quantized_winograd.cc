// onnxd::QLinearConvChannelsLast of 3 x 3 windows by Winograd's F(2x2, 3x3) in whole numbers: 16
// products for 4 pixels instead of 36. With filters four times as large all of it is exact, so that
// results are those of the direct sums.
#include <algorithm>
#include <array>

#include "runtime/base/str_cat.h"
#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/conv_operands.h"
#include "runtime/providers/cpu/onednn/quantized_conv.h"

namespace onnxd {
namespace {

constexpr size_t kX = 0;
constexpr int64_t kProducts = 16;
constexpr int64_t kBlockTiles = 54;  // transformed at a time
constexpr int64_t kGemmRows = 6;
constexpr int64_t kFewestTiles = 8;  // of a thread: all its weights are read for them
constexpr int64_t kLeastExtent = 12, kLeastChannels = 32, kChannelStep = 16;
// Four times a sum of 9 * channels products of bytes fits 32 bits.
constexpr int64_t kMostChannels = 1024;

// 2 G, [4, 3]; G is that of F(2x2, 3x3).
constexpr int kTransform[4][3] = {{2, 0, 0}, {1, 1, 1}, {1, -1, 1}, {0, 0, 2}};

// The 16 matrices [in, out] packed for byte_gemm, one behind the other.
Result<Tensor> PackFilters(const math::Simd& simd, const Tensor& weights) {
  const int64_t out = weights.shape()[0], in = weights.shape()[1], packed = in * out;
  ONNXD_ASSIGN_OR_RETURN(Tensor plain, Tensor::Create(DataType::kInt16, Shape{kProducts, in, out}));
  ONNXD_ASSIGN_OR_RETURN(Tensor result,
                         Tensor::Create(DataType::kInt16, Shape{kProducts * packed}));
  auto* to = plain.mutable_data<int16_t>();
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t i = 0; i < in; ++i) {
      const int8_t* g = weights.data<int8_t>() + (o * in + i) * 9;
      for (int64_t p = 0; p < kProducts; ++p) {
        int sum = 0;
        for (int r = 0; r < 3; ++r) {
          for (int c = 0; c < 3; ++c) {
            sum += kTransform[p / 4][r] * g[3 * r + c] * kTransform[p % 4][c];
          }
        }
        to[p * packed + i * out + o] = static_cast<int16_t>(sum);
      }
    }
  }
  for (int64_t p = 0; p < kProducts; ++p) {
    simd.pack_shorts(to + p * packed, in, out, result.mutable_data<int16_t>() + p * packed);
  }
  return result;
}

struct Plan : onednn::ConvGeometry {
  int64_t tile_columns, image_tiles, tiles;  // of one image; all
  int64_t block_tiles, blocks, workers;

  int64_t left_elements() const { return kProducts * block_tiles * in; }
  int64_t sums(int64_t panel) const { return kProducts * block_tiles * panel; }
};

int64_t Rounded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

class QuantizedWinograd : public Kernel {
 public:
  QuantizedWinograd(onednn::QuantizedConvConstants constants, std::vector<int32_t> offsets,
                    Initializer weights)
      : simd_(math::CurrentSimd()),
        x_(constants.x),
        y_(constants.y),
        weight_shape_(constants.weights.shape()),
        scales_(std::move(constants.scales)),
        offsets_(std::move(offsets)),
        none_(static_cast<size_t>(simd_.gemm_width), 0),
        weights_(std::make_unique<LazyForm>(std::move(weights),
                                            StrCat("winograd of bytes, ", simd_.name))) {}

  bool ReadsInput(size_t i) const override { return i == kX; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &x = context.InputShape(kX), &y = context.OutputShape(0);
    Plan plan{};
    ONNXD_ASSIGN_OR_RETURN(static_cast<onednn::ConvGeometry&>(plan),
                           onednn::GeometryOf(context.node, x, y, weight_shape_));
    PreparedKernel prepared;
    if (y.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    plan.tile_columns = (plan.out_width + 1) / 2;
    plan.image_tiles = plan.tile_columns * ((plan.out_height + 1) / 2);
    plan.tiles = plan.images * plan.image_tiles;
    plan.workers = std::clamp<int64_t>(plan.tiles / kFewestTiles, 1, context.threads);
    const int64_t rounds =
        (plan.tiles + plan.workers * kBlockTiles - 1) / (plan.workers * kBlockTiles);
    plan.block_tiles = (plan.tiles + plan.workers * rounds - 1) / (plan.workers * rounds);
    plan.block_tiles = (plan.block_tiles + kGemmRows - 1) / kGemmRows * kGemmRows;
    plan.blocks = (plan.tiles + plan.block_tiles - 1) / plan.block_tiles;
    const int64_t bytes = WorkerBytes(plan);
    prepared.scratch_bytes = static_cast<size_t>(plan.workers * bytes);
    ONNXD_ASSIGN_OR_RETURN(const Tensor filters, weights_->Get([&](const Tensor& plain) {
      return PackFilters(simd_, plain);
    }));
    prepared.compute = [plan, bytes, filters, this](const KernelContext& k) {
      k.pool().ParallelFor(plan.workers, 1, [&](int64_t first, int64_t last) {
        for (int64_t worker = first; worker < last; ++worker) {
          std::byte* scratch = k.scratch<std::byte>() + worker * bytes;
          const Share share = ShareOf(plan.blocks, worker, plan.workers);
          for (int64_t i = share.begin; i < share.end; ++i) {
            RunBlock(plan, filters, k, i * plan.block_tiles, scratch);
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  int64_t WorkerBytes(const Plan& plan) const {
    return Rounded(plan.in) + Rounded(plan.out) + Rounded(plan.left_elements() * 2) +
           plan.sums(simd_.gemm_width) * 4;
  }

  // Scratch: a pixel of padding, one that nobody reads, left sides [16][tiles][in], and sums
  // [16][tiles][panel].
  void RunBlock(const Plan& plan, const Tensor& filters, const KernelContext& k, int64_t first,
                std::byte* scratch) const {
    auto* padding = reinterpret_cast<uint8_t*>(scratch);
    auto* nowhere = padding + Rounded(plan.in);
    auto* left = reinterpret_cast<int16_t*>(nowhere + Rounded(plan.out));
    auto* sums = reinterpret_cast<int32_t*>(reinterpret_cast<std::byte*>(left) +
                                            Rounded(plan.left_elements() * 2));
    const int64_t count = std::min(plan.block_tiles, plan.tiles - first);
    std::fill_n(padding, plan.in, static_cast<uint8_t>(static_cast<int32_t>(x_.zero)));
    for (int64_t i = 0; i < count; ++i) {
      ReadTile(plan, k.input<uint8_t>(kX), first + i, padding, left + i * plan.in);
    }
    const int64_t panel = simd_.gemm_width;
    for (int64_t column = 0; column < plan.out; column += panel) {
      math::ByteGemmArguments g{};
      g.m = count;
      g.n = panel;
      g.k = plan.in;
      g.lda = plan.in;
      g.offsets = none_.data();
      g.ldc = panel;
      for (int64_t p = 0; p < kProducts; ++p) {
        g.wide = left + p * plan.block_tiles * plan.in;
        g.packed_shorts = filters.data<int16_t>() + (p * plan.out + column) * plan.in;
        g.sums = sums + p * plan.block_tiles * panel;
        simd_.byte_gemm(g, 0, 1);
      }
      for (int64_t i = 0; i < count; ++i) {
        WriteTile(plan, first + i, column, nowhere, sums + i * panel, k.output<uint8_t>(0));
      }
    }
  }

  void ReadTile(const Plan& plan, const uint8_t* x, int64_t tile, const uint8_t* padding,
                int16_t* to) const {
    const int64_t image = tile / plan.image_tiles, within = tile % plan.image_tiles;
    const int64_t top = within / plan.tile_columns * 2 - plan.window.pads_begin[0];
    const int64_t left = within % plan.tile_columns * 2 - plan.window.pads_begin[1];
    std::array<const uint8_t*, kProducts> pixels;
    for (int64_t i = 0; i < kProducts; ++i) {
      const int64_t row = top + i / 4, column = left + i % 4;
      const bool inside = row >= 0 && row < plan.height && column >= 0 && column < plan.width;
      pixels[static_cast<size_t>(i)] =
          inside ? x + ((image * plan.height + row) * plan.width + column) * plan.in : padding;
    }
    simd_.winograd_bytes(pixels.data(), plan.in, x_.is_signed, to, plan.block_tiles * plan.in);
  }

  void WriteTile(const Plan& plan, int64_t tile, int64_t channel, uint8_t* nowhere,
                 const int32_t* sums, uint8_t* y) const {
    const int64_t image = tile / plan.image_tiles, within = tile % plan.image_tiles;
    const int64_t top = within / plan.tile_columns * 2, left = within % plan.tile_columns * 2;
    std::array<uint8_t*, 4> pixels;
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t row = top + i / 2, column = left + i % 2;
      const bool inside = row < plan.out_height && column < plan.out_width;
      uint8_t* pixel = y + ((image * plan.out_height + row) * plan.out_width + column) * plan.out;
      pixels[static_cast<size_t>(i)] = (inside ? pixel : nowhere) + channel;
    }
    simd_.winograd_sums(sums, plan.block_tiles * simd_.gemm_width,
                        {pixels.data(), offsets_.data() + channel, scales_.data() + channel,
                         y_.is_signed, y_.zero});
  }

  const math::Simd& simd_;
  math::Quantization x_, y_;
  Shape weight_shape_;
  std::vector<float> scales_;
  std::vector<int32_t> offsets_;
  std::vector<int32_t> none_;
  std::unique_ptr<LazyForm> weights_;
};

bool IsLarge(const ValueType& type) {
  if (!type.shape || type.shape->size() != 4) return false;
  return std::all_of(type.shape->begin() + 1, type.shape->begin() + 3,
                     [](const Dimension& d) { return d.known() && d.value >= kLeastExtent; });
}

}  // namespace

// Whether the node's weights, [out, in, height, width], and known images are worth it. Weights take
// 3.6 times their memory.
bool TakesQuantizedWinograd(const KernelInfo& info, const Shape& w) {
  const Attributes& attributes = info.node.attributes;
  return w[2] == 3 && w[3] == 3 && w[1] >= kLeastChannels && w[1] <= kMostChannels &&
         w[1] % 2 == 0 && w[0] >= kLeastChannels && w[0] % kChannelStep == 0 &&
         w[0] % math::CurrentSimd().gemm_width == 0 && AreAll(attributes.Ints("strides"), 1) &&
         AreAll(attributes.Ints("dilations"), 1) && IsLarge(info.output_types[0]);
}

Result<std::unique_ptr<Kernel>> MakeQuantizedWinograd(onednn::QuantizedConvConstants constants,
                                                      std::vector<int32_t> offsets,
                                                      Initializer weights) {
  return std::unique_ptr<Kernel>(std::make_unique<QuantizedWinograd>(
      std::move(constants), std::move(offsets), std::move(weights)));
}

}  // namespace onnxd
