// Loops over floats, compiled for several instruction sets and chosen once at run time. The choice
// lives here alone. Pointers need no alignment unless said; ranges may be equal for in-place use
// (out == x) but must not overlap otherwise.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "runtime/math/tree_block.h"

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
  kNeg,
  kFloor,
  kCeil,
  kRound,  // ties to even
  kLog,
  kSoftplus,
  kMish,
  kSin,
  kCos,
  kAsin,
  kAcos,
  kAtan
};
enum class Binary { kAdd, kSub, kMul, kDiv, kMax, kMin };
enum class NarrowFloat { kFloat16, kBfloat16 };

// Row-major C[m, n] = A[m, k] * B packed by PackB (+ C when accumulate), kept between `low` and
// `high`. lda and ldc in elements. With `pieces`, rows of A are in pieces of `piece` elements, of
// which k is a multiple: pieces[row * (k / piece) + i], in place of a and lda. Source: Dukhan, "The
// Indirect Convolution Algorithm", 2019. With `columns` (gemm alone), A[row, p] is
// columns[p][row * lda].
struct GemmArguments {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* packed_b;
  float* c;
  int64_t ldc;
  const float* bias = nullptr;  // [n], added once; null: none
  bool accumulate = false;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  const float* const* pieces = nullptr;
  int64_t piece = 0;
  const float* const* columns = nullptr;
  int64_t panel_rows = 0;  // of a packed panel of which k rows from packed_b on are wanted; 0: k
  const float* ahead = nullptr;  // what is read next; null: what follows a panel
};

// x[rows, dimensions] and points[dimensions, n]; out[rows, n].
struct PointsArguments {
  int64_t rows, n, dimensions;
  const float *x, *points;
  float* out;
};

// x[rows, n], whose rows are ldx elements apart; best[n], places[n]. Requires a row.
struct ColumnPlacesArguments {
  const float* x;
  int64_t ldx, rows, n;
  bool smallest;
  float* best;
  int32_t* places;
};

// Columns that few_columns takes.
constexpr int64_t kMostFewColumns = 4;

// Columns that pair_gemm takes, and as many as it packs together.
constexpr int64_t kMostPairColumns = 24, kPairColumns = 8;

constexpr int64_t kFewRowsPanel = 64;  // columns
constexpr int64_t kMostFewRows = 64;

// Row-major C[m, n] = A[m, k] * B (+ bias) (+ C when accumulate), m up to kMostFewRows. B in panels
// of kFewRowsPanel columns, the last one padded: element [row, column] of a panel is at
// row * kFewRowsPanel + column.
struct FewRowsArguments {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* panels;
  int64_t panel_stride;  // elements
  float* c;
  int64_t ldc;
  const float* bias = nullptr;  // [n]; null: none
  bool accumulate = false;
};

// Where a tile of a Winograd convolution goes: tile x tile pixels of `channels` floats each.
struct WinogradTarget {
  float* const* pixels;           // those beyond the image point to memory that nobody reads
  const float* const* residuals;  // added, one per pixel; null: none
  const float* bias;              // [channels]; null: none
  float low, high;                // bounds of the result
};

// Where a tile of 2 x 2 pixels of bytes goes: each (sum / 4 - offset) * scale + zero, rounded and
// saturated.
struct WinogradByteTarget {
  uint8_t* const* pixels;
  const int32_t* offsets;  // by channel
  const float* scales;
  bool is_signed;
  float zero;
};

// Pixels of a row of a depthwise convolution's result that are made at a time: it divides the
// widths of ImageNet's networks. A tile reads all that it needs before it writes.
constexpr int64_t kDepthwiseTile = 7;

// Some rows and channels of a depthwise convolution of one image, [height, width, channels]. The
// window is 3, 5 or 7 pixels wide, its stride 1 or 2; or it is one pixel wide and its stride 1.
struct DepthwiseArguments {
  // By row of the result, then of the window: the row of the image; null outside of it.
  const float* const* image_rows;
  int64_t width, channels;
  int64_t image_pixel, pixel;  // from one pixel to the next: of the image; of weights and result
  const float* weights;        // [window_height, window_width, channels]
  int64_t window_height, window_width, stride, pad_left;
  const float* bias;  // [channels]; null: none
  bool silu;          // applied to the result before its bounds
  float low, high;
  float* out;  // [rows, out_width, channels]
  int64_t rows, out_width;
  float* sums = nullptr;  // [channels], to which those of the results are added; null: none
  int64_t first_sum = 0;  // channels before it are left out of them
};

// Whether group_conv takes groups of so many channels, of `lanes` in a register.
constexpr bool TakesGroup(int64_t group, int64_t lanes) {
  return group >= 4 && (group % lanes == 0 || lanes % group == 0);
}

// Some rows of a convolution of one image in groups, with as many filters as channels, whose window
// is 3 x 3 and whose strides are alike, 1 or 2.
struct GroupConvArguments {
  const float* image;  // [height, width, channels]
  int64_t height, width;
  int64_t channels, group;  // channels of a group; registers divide all
  const float* weights;     // [channels / lanes, 3, group, 3, lanes]
  int64_t stride, pad_top, pad_left;
  const float* bias;  // [channels]; null: none
  float low, high;
  float* out;  // [rows, out_width, channels]: those of the result from first_row on
  int64_t first_row, rows, out_width;
};

// A byte, unsigned or signed, stands for (byte - zero) * scale; zero is a whole number that the
// byte can hold.
struct Quantization {
  bool is_signed;
  float scale;
  float zero;
};

struct QuantizedOperand {
  const uint8_t* data;
  Quantization format;
  int64_t step;  // 0: one byte for all
};

// Of the sums of products of unsigned bytes A[m, k] with signed bytes B[k, n], packed by
// pack_bytes: c = (sums - offsets) * scales + bias where there are scales, else `sums` = sums -
// offsets; where B has zero points, b_zeros[column] * row_sums[row] is taken off the sums as well.
// Sums wrap around. Rows of A are read up to PaddedBytes(k), whatever is behind them. Where
// Simd::wide_bytes, A is in 16-bit integers, and may be in pieces as in GemmArguments, of an even
// number of elements; it may come from signed bytes as well.
struct ByteGemmArguments {
  int64_t m, n, k;
  const uint8_t* a;
  int64_t lda;  // elements
  const int8_t* packed_b;
  const int32_t* offsets;             // [n]
  const float* scales = nullptr;      // [n]
  const float* bias = nullptr;        // [n]; null: none
  const int32_t* b_zeros = nullptr;   // [n]
  const int32_t* row_sums = nullptr;  // [m]; null: B has no zero points
  float* c = nullptr;
  int32_t* sums = nullptr;
  int64_t ldc = 0;
  const int16_t* wide = nullptr;           // A where it is not in bytes
  const int16_t* packed_shorts = nullptr;  // B by pack_shorts in place of packed_b
  const int16_t* const* pieces = nullptr;  // in place of `wide` and lda
  int64_t piece = 0;
};

// out[i] = the largest of row[i * stride + t * dilation] for t < taps, NaN if there is one, or the
// sum of all.
struct PoolRowArguments {
  const float* row;
  int64_t taps, stride, dilation;
  bool sums;
  float* out;  // [n]
  int64_t n;
};

// Corners, the near one first.
struct Box {
  float y1, x1, y2, x2;
};

// Those of some boxes, and their areas, a column each.
struct BoxColumns {
  const float *y1, *x1, *y2, *x2, *areas;
};

// Row-major C[m, n] = A[m, k] * B packed by pack_bfloat16 (+ bias) (+ C when accumulate), of
// bfloat16; products are exact and their sums floats. Numbers below 1.18e-38 may count as 0. With
// the low parts given, each operand is the sum of two, and of the four products low * low is left
// out. Rows of A are followed by zeros up to PaddedBytes(2 * k).
struct Bfloat16GemmArguments {
  int64_t m, n, k;
  const uint16_t* a;
  const uint16_t* a_low;  // null: none
  int64_t lda;
  const uint16_t* packed_b;
  const uint16_t* packed_low;  // null: none
  int64_t panel_stride;  // elements: those of a panel of k, or of more, of which this is a part
  float* c;
  int64_t ldc;
  const float* bias = nullptr;  // [n]; null: none
  bool accumulate = false;
};

// Rows of floats, [rows, n] ldx elements apart, between `low` and `high`, to rows of bfloat16.
struct NarrowRowsArguments {
  const float* x;
  int64_t ldx;
  uint16_t* out;
  int64_t ldo;
  int64_t rows, n;
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
};

// Row-major C[m, n] = A[m, k] * B (+ bias) (+ sum), kept between `low` and `high`, of floats as
// fixed-point numbers: by a power of 2 for each row of A and each column of B the largest magnitude
// becomes a number of 23 or 24 bits with its sign, whose three digits of base 256 are signed bytes.
// Of the nine products of two numbers' digits all but the smallest are summed, exactly, and rounded
// once. An element is off by at most 2^-23 of what is the largest in its row, or column, once
// elements of k are scaled so that their weights are about alike: sums are as near as those of
// floats one after the other, and exact where numbers have few digits, such as whole ones. Rows for
// which that says little (with NaN, infinity or one element far above the others) are multiplied as
// they are, slowly. A's rows are in pieces as those of GemmArguments; without `pieces`, `piece` is
// k. k is at most kMostDigitDepth. Source: Ootomo, Ozaki and Yokota, "DGEMM on Integer Matrix
// Multiplication Unit", 2024.
constexpr int64_t kMostDigitDepth = 32768;  // so that sums of 32 bits hold

struct PackedDigitsArguments {
  int64_t m, n, k;
  const float* a;
  int64_t lda;
  const float* const* pieces;
  int64_t piece;
  const std::byte* packed;
  float* c;
  int64_t ldc;
  const float* bias;  // [n]; null: none
  const float* sum;   // [m, n], rows of ldc; may be c; null: none
  float low, high;
  // Whether several threads write C, whose memory another one than before may have: then lines are
  // asked for ahead.
  bool shares_results;
  std::byte* scratch;  // packed_digits_scratch bytes of at least so many rows, aligned to 64
};

// The same, up to kDigitColumns columns of a matrix of floats, which become digits anew: for
// matrices that are there as floats for other products. A's digits are as split_digits makes them.
constexpr int64_t kDigitPlaces = 3, kDigitColumns = 16;

// Of a row's digits of a place: so that the rows of a tile are not all at one place of a page.
constexpr int64_t DigitRowBytes(int64_t k) { return ((k + 63) / 64 | 1) * 64; }

// Of scratch memory for digits_gemm.
constexpr int64_t DigitColumnBytes(int64_t k) {
  return 4096 + (k + 63) / 64 * kDigitPlaces * 64 * kDigitColumns;
}

struct DigitsGemmArguments {
  int64_t m, n, k;
  const std::byte* a;  // rows of DigitRowBytes(k), as many as whole blocks have
  int64_t place_bytes;
  const float* row_scales;
  int64_t block_rows;  // at most 16
  const bool* fits;    // of blocks: of the others nothing is computed
  const float* b;      // kDigitColumns columns, rows of ldb
  int64_t ldb;
  const float* inverse;        // of balance_digits; null: all are 1
  const float* column_scales;  // kDigitColumns
  float* c;
  int64_t ldc;
  const float* bias;  // [n]; null: none
  const float* sum;   // [m, n], rows of ldc; may be c; null: none
  // What to bring to the second-level cache meanwhile: so many bytes in a row or, where that is 0,
  // columns like these. Null: nothing.
  const float* next;
  int64_t next_bytes;
  std::byte* scratch;  // DigitColumnBytes(k), aligned to 64
};

// A matrix B[k, n] of 2, 4 or 8 bits an element, in blocks of `block` elements along k (a multiple
// of 16). An element is (code - middle - zero) * scale, with the middle of the codes' range,
// 2^(bits - 1). Packed in groups of gemm_width / 2 columns ("lanes"), the last one padded; in a
// group, block by block: words[block * bits / 32][lane] with the first element of k in the lowest
// bits, then scales[lane] and, where there are any, zeros[lane], both floats.
struct BlockFormat {
  int64_t k, n, block;
  int bits;
  bool has_zeros;
};

// The same with A in signed bytes, each block of k with a scale of its own; within as many elements
// as a word of B has codes, those of equal remainder modulo 8 / bits follow each other, so that
// they meet the codes that one shift brings to the lowest bits of bytes.
struct BlockByteArguments {
  BlockFormat format;
  const uint32_t* packed;
  int64_t m;
  const int8_t* a;      // [m, whole blocks]
  const float* scales;  // [m, blocks]
  const float* sums;    // [m, blocks]: of the bytes
  float* c;
  int64_t ldc;
  const float* bias;  // [n]; null: none
};

// Row-major C[m, n] = A[m, k] * B (+ bias). Rows of A are followed by zeros up to whole blocks.
struct BlockProductArguments {
  BlockFormat format;
  const uint32_t* packed;
  int64_t m;
  const float* a;
  int64_t lda;
  const float*
      block_sums;  // [m, blocks]: sums of A's elements in each block; used with zeros alone
  float* c;
  int64_t ldc;
  const float* bias;  // [n]; null: none
};

struct Simd {
  std::string_view name;  // "baseline", "avx2", "avx512", "avx512vnni", "amx"
  void (*unary)(Unary op, const float* x, float* out, int64_t n);
  // b_step 0: b is one number for all.
  void (*binary)(Binary op, const float* a, const float* b, float* out, int64_t n, int64_t a_step,
                 int64_t b_step);
  // out = min(max(x, low), high)
  void (*clip)(const float* x, float* out, int64_t n, float low, float high);
  // out = x * scale + shift
  void (*affine)(const float* x, float* out, int64_t n, float scale, float shift);
  // out = x, or x * slope where x is negative
  void (*leaky_relu)(const float* x, float* out, int64_t n, float slope);
  // out = x * scale, or low * (exp(x * slope) - 1) where x is negative
  void (*elu)(const float* x, float* out, int64_t n, float scale, float low, float slope);
  // out = x * sigmoid(x * alpha)
  void (*swish)(const float* x, float* out, int64_t n, float alpha);
  float (*sum)(const float* x, int64_t n);
  float (*sum_of_squares)(const float* x, int64_t n, float subtract);
  // out[c] = the sum over `rows` of x[row * n + c]
  void (*sum_rows)(const float* x, int64_t rows, int64_t n, float* out);
  // out[c] = the sum over `rows` of (x[row * n + c] - mean[c])^2
  void (*sum_square_rows)(const float* x, int64_t rows, int64_t n, const float* mean, float* out);
  // out[row * n + c] = (x[row * n + c] - mean[c]) * scale[c] + bias[c]
  void (*normalize_rows)(const float* x, int64_t rows, int64_t n, const float* mean,
                         const float* scale, const float* bias, float* out);
  // out[c] = the largest of rows[i][c], of which there is at least one; NaN comes through.
  void (*max_rows)(const float* const* rows, int64_t count, float* out, int64_t n);
  void (*pool_row)(const PoolRowArguments& arguments);
  float (*max)(const float* x, int64_t n);
  // ranks[i] = how many of keys[n] come before keys[i]: lower ones, and equal ones of a lower index
  void (*ranks)(const int32_t* keys, int64_t n, int32_t* ranks);
  // The largest (or smallest) of each column, and the first row that has it. NaN is that only in
  // the first row, and then nothing else is.
  void (*column_places)(const ColumnPlacesArguments& arguments);
  float (*min)(const float* x, int64_t n);  // of the numbers that are not NaN; inf when none is
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
  // The same for n from 1 to kMostFewColumns, with packed_b [n, panel_rows or k], a row per column.
  void (*few_columns)(const GemmArguments& arguments);
  // out[c] = the sum of weights[row] * rows[row * stride + c], of `count` rows.
  void (*weigh_rows)(const float* rows, int64_t stride, int64_t count, const float* weights,
                     float* out, int64_t n);
  // The same for n from 1 to kMostPairColumns and an even k, with B[n, k] packed by pack_pairs, of
  // PackedPairsSize floats. Null where registers have less than 512 bits.
  void (*pack_pairs)(const float* b, int64_t k, int64_t n, float* out);
  void (*pair_gemm)(const GemmArguments& arguments);
  // The columns of panels [first, last). Null where registers have less than 512 bits.
  void (*few_rows)(const FewRowsArguments& arguments, int64_t first, int64_t last);
  int64_t byte_depth;  // see PaddedBytes
  bool wide_bytes;     // see ByteGemmArguments
  void (*widen_bytes)(const uint8_t* x, int16_t* out, int64_t n, bool is_signed);
  // Panels of gemm_width columns of B[k, n] (transposed: B[n, k]); PackedBytesSize bytes.
  void (*pack_bytes)(const int8_t* b, bool transposed, int64_t k, int64_t n, int8_t* out);
  // The same of 16-bit integers B[k, n], k even, for wide A: as many elements as k * n, rounded up
  // to whole panels. Null where A is in bytes.
  void (*pack_shorts)(const int16_t* b, int64_t k, int64_t n, int16_t* out);
  // The columns of panels [first, last).
  void (*byte_gemm)(const ByteGemmArguments& arguments, int64_t first, int64_t last);
  // Columns of groups [first, last). For few rows: each four of them unpack B again.
  void (*block_product)(const BlockProductArguments& arguments, int64_t first, int64_t last);
  // Null where bytes are not multiplied faster than floats.
  void (*block_byte_product)(const BlockByteArguments& arguments, int64_t first, int64_t last);
  // out[p * ldb + lane] = B[p, lane] of one group.
  void (*unpack_blocks)(const BlockFormat& format, const uint32_t* packed, int64_t group,
                        float* out, int64_t ldb);
  // Winograd F(tile x tile, 3 x 3), tile 2 or 4 (Lavin and Gray, "Fast Algorithms for Convolutional
  // Neural Networks", 2015), over multiples of 16 channels. The left sides of one tile's products,
  // of which there are (tile + 2)^2: out[i * stride + c] from as many pixels.
  void (*winograd_input)(int tile, const float* const* pixels, int64_t channels, float* out,
                         int64_t stride);
  // The tile's result from its products, products[i * stride + c].
  void (*winograd_output)(int tile, const float* products, int64_t stride, int64_t channels,
                          const WinogradTarget& target);
  // F(2 x 2, 3 x 3) in whole numbers: the left sides of 16 products of a tile of bytes, whose
  // filters are four times as large as Lavin's and Gray's; any number of channels.
  void (*winograd_bytes)(const uint8_t* const* pixels, int64_t channels, bool is_signed,
                         int16_t* out, int64_t stride);
  // The tile's result, of gemm_width channels, from its products, products[i * stride + c].
  void (*winograd_sums)(const int32_t* products, int64_t stride, const WinogradByteTarget& target);
  void (*depthwise)(const DepthwiseArguments& arguments);
  void (*group_conv)(const GroupConvArguments& arguments);
  // Rounds x / scale to the nearest integer, ties to even, adds zero, saturates. NaN: the least.
  void (*quantize)(const float* x, const Quantization& to, uint8_t* out, int64_t n);
  // Rows of a matrix, of which those of x begin ldx elements after each other, and of out ldo.
  void (*quantize_rows)(const float* x, int64_t ldx, const Quantization& to, uint8_t* out,
                        int64_t ldo, int64_t rows, int64_t n);
  void (*dequantize)(const uint8_t* x, const Quantization& from, float* out, int64_t n);
  // Operands and result are all signed or all unsigned.
  void (*quantized_add)(const QuantizedOperand& a, const QuantizedOperand& b,
                        const Quantization& to, uint8_t* out, int64_t n);
  void (*quantized_multiply)(const QuantizedOperand& a, const QuantizedOperand& b,
                             const Quantization& to, uint8_t* out, int64_t n);
  void (*max_byte_rows)(const uint8_t* const* rows, int64_t count, uint8_t* out, int64_t n,
                        bool is_signed);
  // Turns signed bytes into unsigned ones that are larger by 128, and back.
  void (*flip_signs)(const uint8_t* x, uint8_t* out, int64_t n);
  // out[c] = the sum over `rows` of x[row * n + c], exact below 2^24
  void (*sum_byte_rows)(const uint8_t* x, int64_t rows, int64_t n, float* out, bool is_signed);
  // out = (sums - offsets) * scales + bias; bias may be null. out may be the memory of sums.
  void (*scale_sums)(const int32_t* sums, const int32_t* offsets, const float* scales,
                     const float* bias, float* out, int64_t n);
  // What ByteGemmArguments takes off and scales sums by, of A's format and of B's column sums and
  // scales: offsets = zero * sums, modulo 2^32, and scales = scale * column_scales.
  void (*scale_columns)(const uint32_t* sums, uint32_t zero, const float* column_scales,
                        float scale, int32_t* offsets, float* scales, int64_t n);
  // Wraps around.
  void (*subtract_integers)(const int32_t* a, const int32_t* b, int32_t* out, int64_t n);
  // float16 (IEEE 754 binary16): to the nearest, ties to even, infinity from 65520 on; and back.
  void (*narrow_float16)(const float* x, uint16_t* out, int64_t n);
  void (*widen_float16)(const uint16_t* x, float* out, int64_t n);
  // As gemm, with a B of 16-bit floats in the same panels in place of arguments.packed_b.
  void (*narrow_gemm)(const GemmArguments& arguments, const uint16_t* packed_b, NarrowFloat type);
  // To bfloat16, the nearest, ties to even. `low`, where it is not null, takes what that left of x,
  // narrowed as well; 0 where x is not finite.
  void (*narrow)(const float* x, uint16_t* high, uint16_t* low, int64_t n);
  // To the nearest; numbers below 1.18e-38 may count as 0. NaN stays one.
  void (*narrow_rows)(const NarrowRowsArguments& arguments);
  void (*widen)(const uint16_t* x, float* out, int64_t n);
  // The same, each row with bias[n] added; null: none.
  void (*widen_rows)(const uint16_t* x, int64_t ldx, const float* bias, float* out, int64_t ldo,
                     int64_t rows, int64_t n);
  // As max_rows.
  void (*max_bfloat16_rows)(const uint16_t* const* rows, int64_t count, uint16_t* out, int64_t n);
  // Panels of gemm_width columns of B[k, n] (transposed: B[n, k]); PackedBfloat16Size elements.
  void (*pack_bfloat16)(const uint16_t* b, int64_t ldb, bool transposed, int64_t k, int64_t n,
                        uint16_t* out);
  // The columns of panels [first, last).
  void (*bfloat16_gemm)(const Bfloat16GemmArguments& arguments, int64_t first, int64_t last);
  // The digits of B[n, k], whose columns are rows here, or its numbers as they are where digits do
  // not stand for them: packed_digits_size bytes of zeros before, aligned to 64. These nine are
  // null where there are no tiles.
  void (*pack_digits)(const float* b, int64_t k, int64_t n, std::byte* out);
  int64_t (*packed_digits_size)(int64_t k, int64_t n);
  // Enough for a product of m rows and for any of fewer.
  int64_t (*packed_digits_scratch)(int64_t m, int64_t k, int64_t n);
  // The columns of panels [first, last) of gemm_width.
  void (*packed_digits_gemm)(const PackedDigitsArguments& arguments, int64_t first, int64_t last);
  // A row's digits, place_bytes from place to place, of elements times factors (null: 1), and what
  // the last place is worth. Returns whether they stand for the row.
  bool (*split_digits)(const float* x, const float* factors, int64_t k, std::byte* to,
                       int64_t place_bytes, float* scale);
  // Adds the magnitudes of kDigitColumns columns, rows of ldb, to the sums of rows.
  void (*add_magnitudes)(const float* b, int64_t ldb, int64_t k, float* sums);
  // From these sums over all columns, what the matrix's elements of k are multiplied by so that all
  // weigh about the same: powers of 2, whose inverses rows are multiplied by, and 0 where no column
  // reads an element. False where they are alike, within 16 times: then all are 1.
  bool (*balance_digits)(int64_t k, float* sums);
  // What the last places of kDigitColumns columns are worth. Whether digits stand for them all.
  bool (*scale_digits)(const float* b, int64_t ldb, int64_t k, const float* inverse, float* scales);
  void (*digits_gemm)(const DigitsGemmArguments& arguments);
  // Whether bfloat16_gemm is several times as fast as gemm; elsewhere it is there for tests.
  bool fast_bfloat16;
  // Whether what one of the boxes has in common with `box` is more than `threshold` of both
  // together (0 where they are nothing).
  bool (*any_overlap)(const BoxColumns& boxes, int64_t n, const Box& box, float threshold);
  // The sums over d of (x[row, d] - points[d, i])^2, and of x[row, d] * points[d, i].
  void (*squared_distances)(const PointsArguments& arguments);
  void (*point_products)(const PointsArguments& arguments);
  // out = x * cosines + p * sines, where p are x's second half, negated, and its first. All have
  // 2 * half numbers; out is not x.
  void (*rotate_halves)(const float* x, const float* cosines, const float* sines, float* out,
                        int64_t half);
  // The same where p are x's numbers with each two exchanged, the first of them negated; n is even.
  void (*rotate_pairs)(const float* x, const float* cosines, const float* sines, float* out,
                       int64_t n);
  TreeLoops<float> float_trees;
  TreeLoops<double> double_trees;
};

// The best of this processor, unless SetSimd capped it.
const Simd& CurrentSimd();
// For tests: a name of Simd's; false when the processor or the build lacks it.
bool SetSimd(std::string_view name);
// For tests: one that the product does not have; it must outlive its use.
void SetSimd(const Simd& simd);

inline int64_t PackedPairsSize(int64_t k, int64_t n) {
  return (n + kPairColumns - 1) / kPairColumns * kPairColumns * k;
}

inline int64_t PackedBSize(const Simd& simd, int64_t k, int64_t n) {
  return (n + simd.gemm_width - 1) / simd.gemm_width * simd.gemm_width * k;
}

// Bytes of a row of A, or a column of packed B, with those that products take along.
inline int64_t PaddedBytes(const Simd& simd, int64_t bytes) {
  return (bytes + simd.byte_depth - 1) / simd.byte_depth * simd.byte_depth;
}

inline int64_t PackedBytesSize(const Simd& simd, int64_t k, int64_t n) {
  return PackedBSize(simd, PaddedBytes(simd, k), n);
}

inline int64_t PackedBfloat16Size(const Simd& simd, int64_t k, int64_t n) {
  return PackedBytesSize(simd, 2 * k, n) / 2;
}

}  // namespace onnxd::math
