#include "runtime/providers/gpu/matrix_attention.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

// Rows of keys, and columns of values, take four words more in local memory than they have: 32
// lanes that read 4 words of 8 of them meet no bank twice. Values are turned on their way there.
//
// A pass makes a tile's scores, then its share of the results. Emulated, one loop makes both
// products, the scores of this tile and the results of the tile before: a loop of its own for each,
// with the emulation's barriers, is more than PoCL compiles rightly.
constexpr std::string_view kSource = R"(
#define LANES_IN_ALL (WARPS * 32)
#define QUERIES (WARPS * 16)
#define KEY_WORDS (HEAD / 2 + 4)
#define VALUE_WORDS (KEYS / 2 + 4)
#define SCORE_PARTS (KEYS / 8)
#define SCORE_STEPS (HEAD / 16)
#define SCORE_PRODUCTS (SCORE_PARTS * SCORE_STEPS)
#define RESULT_PARTS (VALUE_HEAD / 8)
#define RESULT_STEPS (KEYS / 16)
#define RESULT_PRODUCTS (RESULT_PARTS * RESULT_STEPS)
// By how many keys the results are behind the scores.
#ifdef EXCHANGE_WITH
#define LAG 0
#else
#define LAG KEYS
#endif

KERNEL matrix_attention(GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v, GLOBAL X* y,
                        PARAMETERS i64 queries, i64 keys, f32 scale, Dims batch, Dims q_strides,
                        Dims k_strides, Dims v_strides, Dims y_strides, i64 blocks) {
  LOCAL uint4 key_tile[KEYS * KEY_WORDS / 4];
  LOCAL uint4 value_tile[VALUE_HEAD * VALUE_WORDS / 4];
  EXCHANGE(LANES_IN_ALL)
  LOCAL_POINTER u32* key_words = (LOCAL_POINTER u32*)key_tile;
  LOCAL_POINTER u32* value_words = (LOCAL_POINTER u32*)value_tile;
  const i32 lane = LANE(0), lane_row = lane % 32 / 4, lane_word = lane % 4;
  FIND_HEAD
  SETUP
  // A lane's two queries, and the words of all left sides: of queries, then of shares.
  const i64 first_query = down + lane / 32 * 16 + lane_row;
  u32 words[(SCORE_STEPS + RESULT_STEPS) * 4];
  UNROLL
  for (i32 w = 0; w < (SCORE_STEPS + RESULT_STEPS) * 4; ++w) {
    const i64 query = first_query + w % 2 * 8;
    const i32 word = w / 4 * 8 + w % 4 / 2 * 4 + lane_word;
    words[w] = 0;
    if (w < SCORE_STEPS * 4 && query < queries) {
      words[w] = *(GLOBAL const u32*)(q + q_at + query * q_row + word * 2);
    }
  }
  f32 sums[(SCORE_PARTS + RESULT_PARTS) * 4];
  UNROLL
  for (i32 s = 0; s < (SCORE_PARTS + RESULT_PARTS) * 4; ++s) sums[s] = 0.0f;
  const f32 extra = EXTRA;
  f32 largest[2], totals[2];  // a lane's part of the total
  largest[0] = largest[1] = extra;
  totals[0] = totals[1] = extra == -INFINITY_F32 || lane_word != 0 ? 0.0f : 1.0f;
  const i64 first_key = FIRST_KEY, end_key = END_KEY;
  const i64 begin = first_key / KEYS * KEYS;
  for (i64 first = begin; first - LAG < end_key; first += KEYS) {
    const bool has_scores = first < end_key, has_values = first - LAG >= begin;
    BARRIER();
    UNROLL
    for (i32 e = lane; e < KEYS * HEAD / 8; e += LANES_IN_ALL) {
      const i32 r = e / (HEAD / 8), part = e % (HEAD / 8);
      uint4 loaded;
      loaded.x = loaded.y = loaded.z = loaded.w = 0;
      if (has_scores && first + r < keys) {
        loaded = *(GLOBAL const uint4*)(k + k_at + (first + r) * k_row + part * 8);
      }
      key_tile[r * (KEY_WORDS / 4) + part] = loaded;
    }
    UNROLL
    for (i32 e = lane; e < KEYS / 2 * (VALUE_HEAD / 8); e += LANES_IN_ALL) {
      const i32 pair = e % (KEYS / 2), part = e / (KEYS / 2);
      const i64 key = first - LAG + pair * 2;
      uint4 low, high;
      low.x = low.y = low.z = low.w = 0;
      high = low;
      if (has_values && key < keys) {
        low = *(GLOBAL const uint4*)(v + v_at + key * v_row + part * 8);
      }
      if (has_values && key + 1 < keys) {
        high = *(GLOBAL const uint4*)(v + v_at + (key + 1) * v_row + part * 8);
      }
      LOCAL_POINTER u32* to = value_words + part * 8 * VALUE_WORDS + pair;
      to[0] = (low.x & 0xffffu) | high.x << 16;
      to[VALUE_WORDS] = low.x >> 16 | (high.x & 0xffff0000u);
      to[2 * VALUE_WORDS] = (low.y & 0xffffu) | high.y << 16;
      to[3 * VALUE_WORDS] = low.y >> 16 | (high.y & 0xffff0000u);
      to[4 * VALUE_WORDS] = (low.z & 0xffffu) | high.z << 16;
      to[5 * VALUE_WORDS] = low.z >> 16 | (high.z & 0xffff0000u);
      to[6 * VALUE_WORDS] = (low.w & 0xffffu) | high.w << 16;
      to[7 * VALUE_WORDS] = low.w >> 16 | (high.w & 0xffff0000u);
    }
    BARRIER();
    UNROLL
    for (i32 s = 0; s < SCORE_PARTS * 4; ++s) sums[s] = 0.0f;
    UNROLL
    for (i32 product = 0; product < SCORE_PRODUCTS + (LAG ? RESULT_PRODUCTS : 0); ++product) {
      const bool of_scores = product < SCORE_PRODUCTS;
      const i32 at = of_scores ? product : product - SCORE_PRODUCTS;
      const i32 part = at % (of_scores ? SCORE_PARTS : RESULT_PARTS);
      const i32 step = at / (of_scores ? SCORE_PARTS : RESULT_PARTS);
      LOCAL_POINTER const u32* right =
          of_scores ? key_words + (part * 8 + lane_row) * KEY_WORDS + step * 8 + lane_word
                    : value_words + (part * 8 + lane_row) * VALUE_WORDS + step * 8 + lane_word;
      u32 columns[2];
      columns[0] = right[0];
      columns[1] = right[4];
      IF_MATRICES(of_scores ? has_scores : has_values)
      MULTIPLY(sums + ((of_scores ? 0 : SCORE_PARTS) + part) * 4,
               words + (of_scores ? step : SCORE_STEPS + step) * 4, columns, EXCHANGED);
    }
    IF_MATRICES(has_scores) {
      f32 now[2];
      // Keys of this lane from its first one on that there are.
      const i64 left = has_scores ? keys - first - lane_word * 2 : 0;
      const i32 there = (i32)(left < KEYS ? left : KEYS);
      UNROLL
      for (i32 r = 0; r < 2; ++r) {
        const i64 query = first_query + r * 8;
        const i32 seen = query < queries ? there : 0;
        now[r] = largest[r];
        UNROLL
        for (i32 e = 0; e < SCORE_PARTS * 2; ++e) {
          const i32 at = e / 2 * 4 + r * 2 + e % 2;
          const i64 key = first + e / 2 * 8 + lane_word * 2 + e % 2;
          f32 s = sums[at] * scale;
          s = e / 2 * 8 + e % 2 < seen ? (SCORE) : -INFINITY_F32;
          sums[at] = s;
          now[r] = s > now[r] || s != s ? s : now[r];
        }
      }
      now[0] = quad_max(now[0], EXCHANGED);
      now[1] = quad_max(now[1], EXCHANGED);
      UNROLL
      for (i32 r = 0; r < 2; ++r) {
        // Nothing is seen yet: differences of infinities would not be numbers.
        const f32 base = now[r] == -INFINITY_F32 ? 0.0f : now[r];
        const f32 kept = QUICK_EXP(largest[r] - base);
        largest[r] = now[r];
        totals[r] *= kept;
        UNROLL
        for (i32 e = 0; e < RESULT_PARTS * 2; ++e) {
          sums[(SCORE_PARTS + e / 2) * 4 + r * 2 + e % 2] *= kept;
        }
        UNROLL
        for (i32 part = 0; part < SCORE_PARTS; ++part) {
          const f32 low = QUICK_EXP(sums[part * 4 + r * 2] - base);
          const f32 high = QUICK_EXP(sums[part * 4 + r * 2 + 1] - base);
          totals[r] += low + high;
          words[(SCORE_STEPS + part / 2) * 4 + part % 2 * 2 + r] = PAIR(low, high);
        }
      }
    }
#if LAG == 0
    UNROLL
    for (i32 product = 0; product < RESULT_PRODUCTS; ++product) {
      const i32 part = product % RESULT_PARTS, step = product / RESULT_PARTS;
      LOCAL_POINTER const u32* right =
          value_words + (part * 8 + lane_row) * VALUE_WORDS + step * 8 + lane_word;
      u32 columns[2];
      columns[0] = right[0];
      columns[1] = right[4];
      MULTIPLY(sums + (SCORE_PARTS + part) * 4, words + (SCORE_STEPS + step) * 4, columns,
               EXCHANGED);
    }
#endif
  }
  totals[0] = quad_sum(totals[0], EXCHANGED);
  totals[1] = quad_sum(totals[1], EXCHANGED);
  UNROLL
  for (i32 r = 0; r < 2; ++r) {
    const i64 query = first_query + r * 8;
    const f32 total = totals[r], share = 1.0f / total;
    if (query < queries) {
      const bool is_zero = ZEROS;
      GLOBAL u32* to = (GLOBAL u32*)(y + y_at + query * y_row) + lane_word;
      UNROLL
      for (i32 part = 0; part < RESULT_PARTS; ++part) {
        const f32 low = sums[(SCORE_PARTS + part) * 4 + r * 2] * share;
        const f32 high = sums[(SCORE_PARTS + part) * 4 + r * 2 + 1] * share;
        to[part * 4] = is_zero ? 0u : PAIR(low, high);
      }
    }
  }
}
)";

bool AreWhole(const AttentionOperand& operand) {
  constexpr int64_t kVector = 8;  // elements
  return operand.row_stride % kVector == 0 &&
         std::all_of(operand.batch_strides.begin(), operand.batch_strides.end(),
                     [](int64_t stride) { return stride % kVector == 0; });
}

bool IsWidth(int64_t width) { return width > 0 && width % 16 == 0 && width <= 128; }

}  // namespace

bool IsForMatrixUnits(const AttentionText& text, const FlashSizes& sizes) {
  constexpr int64_t kFewest = 16;  // queries: a warp's
  return (text.type == DataType::kFloat16 || text.type == DataType::kBfloat16) &&
         sizes.queries >= kFewest && IsWidth(sizes.head) && IsWidth(sizes.value_head) &&
         AreWhole(sizes.q) && AreWhole(sizes.k) && AreWhole(sizes.v) && AreWhole(sizes.y);
}

std::vector<MatrixAttentionTile> MatrixAttentionTiles(const FlashSizes& sizes,
                                                      int multiprocessors) {
  // Sums and left sides stay in registers: wider heads leave room for fewer keys.
  const bool is_narrow = std::max(sizes.head, sizes.value_head) <= 64 && sizes.keys > 32;
  const int64_t keys = is_narrow ? 64 : 32;
  int64_t heads = 1;
  for (const int64_t extent : sizes.batch) heads *= extent;
  std::vector<MatrixAttentionTile> tiles;
  size_t enough = 0;  // of them
  for (const int64_t warps : {8, 4, 2, 1}) {
    const MatrixAttentionTile tile{warps, keys};
    if (warps == 8 && sizes.queries < tile.queries()) continue;
    const int64_t groups = heads * ((sizes.queries - 1) / tile.queries() + 1);
    tiles.insert(tiles.begin() + static_cast<std::ptrdiff_t>(enough), tile);
    if (groups >= multiprocessors) ++enough;
  }
  if (is_narrow) tiles.push_back({tiles[0].warps, 32});
  return tiles;
}

std::string MatrixAttentionSource(const AttentionText& text, const FlashSizes& sizes,
                                  const MatrixAttentionTile& tile) {
  const bool is_half = text.type == DataType::kFloat16;
  return StrCat(Define("PAIR", is_half ? "PAIR_OF_F16" : "PAIR_OF_BF16"),
                Define("MULTIPLY", is_half ? "matrix_f16" : "matrix_bf16"),
                Define("WARPS", tile.warps), Define("KEYS", tile.keys),
                AttentionDefinitions(text, sizes), kSource);
}

}  // namespace onnxd
