// Loops over floats, compiled for several instruction sets and chosen once at run time. The choice
// lives here alone. Pointers need no alignment unless said; ranges may be equal for in-place use
// (out == x) but must not overlap otherwise.
#pragma once

#include <cstdint>
#include <string_view>

namespace onnxd::math {

enum class Unary {
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kErf,
  kGelu,
  kFastGelu,  // 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
  kSilu,
  kHardSwish,
  kSqrt,
  kAbs,
  kNeg
};
enum class Binary { kAdd, kSub, kMul, kDiv, kMax, kMin };

// Row-major C[m, n] = A[m, k] * B packed by PackB (+ C when accumulate). lda and ldc in elements.
struct GemmArguments {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* packed_b;
  float* c;
  int64_t ldc;
  const float* bias = nullptr;  // [n], added once; null: none
  bool accumulate = false;
};

// Where a tile of a Winograd convolution goes: tile x tile pixels of `channels` floats each.
struct WinogradTarget {
  float* const* pixels;           // those beyond the image point to memory that nobody reads
  const float* const* residuals;  // added, one per pixel; null: none
  const float* bias;              // [channels]; null: none
  float low, high;                // bounds of the result
};

struct Simd {
  std::string_view name;  // "baseline", "avx2", "avx512"
  void (*unary)(Unary op, const float* x, float* out, int64_t n);
  // b_step 0: b is one number for all.
  void (*binary)(Binary op, const float* a, const float* b, float* out, int64_t n, int64_t a_step,
                 int64_t b_step);
  // out = min(max(x, low), high)
  void (*clip)(const float* x, float* out, int64_t n, float low, float high);
  // out = x * scale + shift
  void (*affine)(const float* x, float* out, int64_t n, float scale, float shift);
  float (*sum)(const float* x, int64_t n);
  float (*sum_of_squares)(const float* x, int64_t n, float subtract);
  // out[c] = the sum over `rows` of x[row * n + c]
  void (*sum_rows)(const float* x, int64_t rows, int64_t n, float* out);
  float (*max)(const float* x, int64_t n);
  // out = exp((x - subtract) * scale); returns the sum of out.
  float (*exp_sum)(const float* x, float* out, int64_t n, float subtract, float scale);
  // out = (x - mean) * inverse_deviation * scale + bias; scale and bias [n], bias may be null.
  void (*normalize)(const float* x, float* out, int64_t n, float mean, float inverse_deviation,
                    const float* scale, const float* bias);
  // Panels of gemm_width columns of B[k, n] (transposed: B[n, k]), zero padded; out 64-byte aligned
  // with PackedBSize floats.
  void (*pack_b)(const float* b, int64_t ldb, bool transposed, int64_t k, int64_t n, float* out);
  void (*gemm)(const GemmArguments& arguments);
  int64_t gemm_width;
  // Winograd F(tile x tile, 3 x 3), tile 2 or 4 (Lavin and Gray, "Fast Algorithms for Convolutional
  // Neural Networks", 2015), over multiples of 16 channels. The left sides of one tile's products,
  // of which there are (tile + 2)^2: out[i * stride + c] from as many pixels.
  void (*winograd_input)(int tile, const float* const* pixels, int64_t channels, float* out,
                         int64_t stride);
  // The tile's result from its products, products[i * stride + c].
  void (*winograd_output)(int tile, const float* products, int64_t stride, int64_t channels,
                          const WinogradTarget& target);
};

// The best of this processor, unless SetSimd capped it.
const Simd& CurrentSimd();
// For tests: "baseline", "avx2" or "avx512"; false when the processor or the build lacks it.
bool SetSimd(std::string_view name);

inline int64_t PackedBSize(const Simd& simd, int64_t k, int64_t n) {
  return (n + simd.gemm_width - 1) / simd.gemm_width * simd.gemm_width * k;
}

}  // namespace onnxd::math
