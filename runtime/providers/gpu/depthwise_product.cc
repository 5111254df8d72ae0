#include "runtime/providers/gpu/depthwise_product.h"

#include <algorithm>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Sizes of the window are known to the compiler, those of the images are arguments.
constexpr std::string_view kSource = R"(
#define COLUMNS ((PIXELS - 1) * STRIDE_W + (KERNEL_W - 1) * DILATION_W + 1)

KERNEL depthwise_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n,
                         i64 k, i64 results) {
  const i64 batch = 0;
  const i32 height = (i32)image.at[0], width = (i32)image.at[1];
  const i32 out_height = (i32)image.at[3], out_width = (i32)image.at[4];
  const i32 across = (out_width + PIXELS - 1) / PIXELS;
  const u32 vectors = (u32)n / CHANNELS;
  u32 rest = (u32)GLOBAL_INDEX;
  const IX begin = (IX)(rest % vectors * CHANNELS);
  rest /= vectors;
  const i32 first = (i32)(rest % (u32)across) * PIXELS;
  const i64 row = rest / (u32)across;  // of all images' results
  if (row * out_width >= m) return;
  SETUP
  const i32 out_row = (i32)((u32)row % (u32)out_height);
  const i64 picture = (u32)row / (u32)out_height;
  ACC sums[PIXELS * CHANNELS];
  UNROLL
  for (i32 s = 0; s < PIXELS * CHANNELS; ++s) sums[s] = 0;
  const i64 left = (i64)first * STRIDE_W - PAD_W;
  for (i32 tap = 0; tap < KERNEL_H; ++tap) {
    const i64 above = (i64)out_row * STRIDE_H - PAD_H + (i64)tap * DILATION_H;
    if (above < 0 || above >= height) continue;
    GLOBAL const A* pixels = a + ((picture * height + above) * width + left) * n + begin;
    B_VECTOR filter[KERNEL_W];
    UNROLL
    for (i32 w = 0; w < KERNEL_W; ++w) {
      filter[w].words = *(GLOBAL const B_WORDS*)(b + (i64)(tap * KERNEL_W + w) * n + begin);
    }
    UNROLL
    for (i32 column = 0; column < COLUMNS; ++column) {
      A_VECTOR pixel;
      const bool is_there = left + column >= 0 && left + column < width;
      if (is_there) pixel.words = *(GLOBAL const A_WORDS*)(pixels + (i64)column * n);
      UNROLL
      for (i32 w = 0; w < KERNEL_W; ++w) {
        const i32 from = column - w * DILATION_W;
        if (from >= 0 && from % STRIDE_W == 0 && from / STRIDE_W < PIXELS && is_there) {
          UNROLL
          for (i32 c = 0; c < CHANNELS; ++c) {
            sums[from / STRIDE_W * CHANNELS + c] +=
                (ACC)A_GET(pixel.at, c) * (ACC)B_GET(filter[w].at, c);
          }
        }
      }
    }
  }
  UNROLL
  for (i32 p = 0; p < PIXELS; ++p) {
    if (first + p < out_width) {
      const IX i = (IX)(row * out_width + first + p);
      const i64 first_at = (i64)i * n + begin;
      Y_VECTOR of_y;
      UNROLL
      for (i32 c = 0; c < CHANNELS; ++c) {
        const IX j = begin + c;
        const i64 at = first_at + c;
        const ACC sum = sums[p * CHANNELS + c];
        const ACC value = RESULT;
        Y_PUT(of_y.at, c, FINISHED);
      }
      *(GLOBAL Y_WORDS*)(y + first_at) = of_y.words;
    }
  }
}
)";

// What 16 bytes hold.
int64_t ChannelsOf(const ProductPlan& plan) {
  const ProductText& text = plan.text;
  const size_t widest = std::max(DataTypeBits(text.a), DataTypeBits(text.y)) / 8;
  auto channels = static_cast<int64_t>(16 / widest);
  while (plan.sizes.n % channels != 0) channels /= 2;
  return channels;
}

// Pixels further apart share nothing.
constexpr int64_t kWidestStride = 3, kMostPixels = 4, kWidestWindow = 16;

}  // namespace

bool IsForDepthwise(const Attributes& attributes, int64_t window_width) {
  const std::vector<int64_t> dilations = attributes.Ints("dilations");
  const int64_t dilation = dilations.size() == 2 ? dilations[1] : 1;
  return window_width <= kWidestWindow && dilation <= kWidestWindow &&
         (window_width - 1) * dilation < kWidestWindow;
}

DepthwiseTile DepthwiseTileOf(const ProductPlan& plan) {
  const DepthwiseWindow& window = *plan.depthwise;
  DepthwiseTile tile{};
  tile.channels = ChannelsOf(plan);
  tile.pixels =
      window.strides[1] > kWidestStride ? 1 : std::min<int64_t>(kMostPixels, window.out_width);
  const int64_t across = (window.out_width + tile.pixels - 1) / tile.pixels;
  tile.count = window.images * window.out_height * across * (plan.sizes.n / tile.channels);
  return tile;
}

std::string DepthwiseSource(const ProductPlan& plan, const DepthwiseTile& tile) {
  const ProductText& text = plan.text;
  const DepthwiseWindow& window = *plan.depthwise;
  const auto both = [](std::string_view name, const std::array<int64_t, 2>& values) {
    return StrCat(Define(StrCat(name, "_H"), values[0]), Define(StrCat(name, "_W"), values[1]));
  };
  return StrCat(
      Define("IX", "i32"), DefineType("A", text.a), DefineVector("A", text.a, tile.channels),
      DefineType("B", text.b), DefineVector("B", text.b, tile.channels), DefineType("Y", text.y),
      DefineVector("Y", text.y, tile.channels), Define("ACC", text.accumulator),
      Define("CHANNELS", tile.channels), Define("PIXELS", tile.pixels),
      both("KERNEL", window.kernel), both("STRIDE", window.strides),
      both("DILATION", window.dilations), both("PAD", window.pads),
      Define("PARAMETERS", text.parameters), Define("SETUP", text.setup),
      Define("RESULT", text.result), Define("FINISHED", text.finished), text.functions, kSource);
}

}  // namespace onnxd
