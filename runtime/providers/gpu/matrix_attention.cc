#include "runtime/providers/gpu/matrix_attention.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

// Rows of keys and values take 16 bytes more in local memory than they have, an odd number of them:
// loads of matrices, eight rows at a time, meet no bank twice. There is room for two tiles: while
// one is multiplied, the next is on its way.
//
// A pass makes a tile's scores, then its share of the results. Emulated, one loop makes both
// products, the scores of this tile and the results of the tile before: a loop of its own for each,
// with the emulation's barriers, is more than PoCL compiles rightly, as are two products in one
// pass.
//
// Exponents are of two, and take the scale along where nothing else becomes of scores (PLAIN).
constexpr std::string_view kSource = R"(
#define LANES_IN_ALL (WARPS * 32)
#define QUERIES (WARPS * 16)
#define KEY_ROW (HEAD / 8 + 1)
#define VALUE_ROW (VALUE_HEAD / 8 + 1)
#define SCORE_PARTS (KEYS / 8)
#define SCORE_STEPS (HEAD / 16)
#define SCORE_PRODUCTS (SCORE_PARTS * SCORE_STEPS)
#define RESULT_PARTS (VALUE_HEAD / 8)
#define RESULT_STEPS (KEYS / 16)
#define RESULT_PRODUCTS (RESULT_PARTS * RESULT_STEPS)
#define TILES_ROOM (2 * KEYS * (KEY_ROW + VALUE_ROW))
#define RESULTS_ROOM (QUERIES * VALUE_ROW)
// By how many keys the results are behind the scores, and whether tiles are loaded one ahead.
#ifdef EXCHANGE_WITH
#define LAG 0
#define AHEAD 1
#else
#define LAG KEYS
#define AHEAD 0
#endif
#if HAS_BIAS
#define BIAS(pair, which) X_OF_BITS((u16)(biases[pair] >> (which) * 16))
#else
#define BIAS(pair, which) 0.0f
#endif
// How many keys there are from `begin` on, of a tile.
#define KEYS_FROM(begin) (i32)(keys - (begin) < KEYS ? keys - (begin) : KEYS)
// A row of an operand, few rows behind `from`.
#define ROW_AT(from, r, stride) ((from) + (u64)(u32)(r) * (u32)(stride))
// Goes through `rows` of so many parts of 16 bytes, which lanes share in turns; r and part are a
// lane's. Where lanes take whole rows, it has the same part of each.
#define FOR_PARTS(rows, parts, statement) \
  UNROLL \
  for (i32 turn = 0; turn < ((rows) * (parts) + LANES_IN_ALL - 1) / LANES_IN_ALL; ++turn) { \
    const bool are_whole = LANES_IN_ALL % (parts) == 0; \
    const u32 at = (u32)(turn * LANES_IN_ALL + lane); \
    const u32 part = (are_whole ? (u32)lane : at) % (parts); \
    const u32 r = are_whole ? (u32)lane / (parts) + (u32)(turn * (LANES_IN_ALL / (parts))) \
                            : at / (parts); \
    if ((rows) * (parts) % LANES_IN_ALL == 0 || r < (rows)) { \
      statement \
    } \
  }
// Of KEYS rows, those that are there, as a batch of copies.
#define LOAD_ROWS(to, to_row, from, stride, width, there) \
  FOR_PARTS(KEYS, (width) / 8, \
            COPY_16((to) + r * (to_row) + part, ROW_AT(from, r, stride) + part * 8, \
                    (i32)r < (there));) \
  COPIES_END();
#define LOAD_KEYS(half, begin, there) \
  LOAD_ROWS(key_tile + (half) * KEYS * KEY_ROW, KEY_ROW, k + k_at + (begin) * k_row, k_row, HEAD, \
            there)
#define LOAD_VALUES(half, begin, there) \
  LOAD_ROWS(value_tile + (half) * KEYS * VALUE_ROW, VALUE_ROW, v + v_at + (begin) * v_row, v_row, \
            VALUE_HEAD, there)
// Eight columns of scores, or of results; one load is for this product and the next.
#define ADD_PRODUCT(product, of_scores) \
  { \
    const i32 at = (of_scores) ? (product) : (product) - SCORE_PRODUCTS; \
    const i32 parts = (of_scores) ? SCORE_PARTS : RESULT_PARTS; \
    const i32 part = at % parts, step = at / parts; \
    if (at % 2 == 0 && (of_scores)) { \
      LOAD_MATRICES(columns, of_lane, \
                    keys_now + (part * 8 + of_lane / 16 * 8 + of_lane % 8) * KEY_ROW + step * 2 + \
                        of_lane / 8 % 2) \
    } \
    if (at % 2 == 0 && !(of_scores)) { \
      LOAD_MATRICES_TURNED(columns, of_lane, \
                           values_now + (step * 16 + of_lane % 16) * VALUE_ROW + part + \
                               of_lane / 16) \
    } \
    MULTIPLY(sums + (((of_scores) ? 0 : SCORE_PARTS) + part) * 4, \
             words + (((of_scores) ? 0 : SCORE_STEPS) + step) * 4, columns + at % 2 * 2, EXCHANGED); \
  }

KERNEL BOUNDS(LANES_IN_ALL, GROUPS_AT_ONCE)
matrix_attention(GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v, GLOBAL X* y,
                 PARAMETERS i64 queries, i64 keys, f32 scale, Dims batch, Dims q_strides,
                 Dims k_strides, Dims v_strides, Dims y_strides, i64 blocks) {
  LOCAL uint4 room[TILES_ROOM > RESULTS_ROOM ? TILES_ROOM : RESULTS_ROOM];
  EXCHANGE(LANES_IN_ALL)
  LOCAL_POINTER uint4* key_tile = room;
  LOCAL_POINTER uint4* value_tile = room + 2 * KEYS * KEY_ROW;
  const i32 lane = LANE(0), lane_row = lane % 32 / 4, lane_word = lane % 4;
  FIND_HEAD
  SETUP
  const i64 first_key = FIRST_KEY, end_key = END_KEY;
  const i64 begin = first_key / KEYS * KEYS;
#if AHEAD
  const i32 at_first = begin < end_key ? KEYS_FROM(begin) : 0;
  LOAD_KEYS(0, begin, at_first)
  LOAD_VALUES(0, begin, at_first)
#else
  LOAD_VALUES(1, begin, 0)
#endif
  // A lane's two queries, and the words of all left sides: of queries, then of shares. A query that
  // is not there has the scores of the last.
  const i64 first_query = down + lane / 32 * 16 + lane_row;
#if HAS_BIAS
  GLOBAL const X* bias_rows[2];
  UNROLL
  for (i32 r = 0; r < 2; ++r) {
    const i64 query = first_query + r * 8 < queries ? first_query + r * 8 : queries - 1;
    bias_rows[r] = (BIAS_ROW) + lane_word * 2;
  }
#endif
  const bool has_queries = down + lane / 32 * 16 < queries;  // the warp
  GLOBAL const X* queries_at = q + q_at + down * q_row;
  u32 words[(SCORE_STEPS + RESULT_STEPS) * 4];
  UNROLL
  for (i32 w = 0; w < (SCORE_STEPS + RESULT_STEPS) * 4; ++w) {
    const i64 query = first_query + w % 2 * 8;
    const i32 word = w / 4 * 8 + w % 4 / 2 * 4 + lane_word;
    words[w] = 0;
    if (w < SCORE_STEPS * 4 && query < queries) {
      words[w] = *(GLOBAL const u32*)(ROW_AT(queries_at, query - down, q_row) + word * 2);
    }
  }
  f32 sums[(SCORE_PARTS + RESULT_PARTS) * 4];
  UNROLL
  for (i32 s = 0; s < (SCORE_PARTS + RESULT_PARTS) * 4; ++s) sums[s] = 0.0f;
  const f32 extra = EXTRA, factor = PLAIN ? scale * LOG2_E : LOG2_E;
  f32 largest[2], totals[2];  // a lane's part of the total
  largest[0] = largest[1] = extra;
  totals[0] = totals[1] = extra == -INFINITY_F32 || lane_word != 0 ? 0.0f : 1.0f;
  i32 now_in = 0;  // the half of the room that has the tile
  for (i64 first = begin; first - LAG < end_key; first += KEYS) {
    const bool has_scores = first < end_key;
    LOCAL_POINTER const uint4* keys_now = key_tile + now_in * KEYS * KEY_ROW;
    LOCAL_POINTER const uint4* values_now =
        value_tile + (LAG ? 1 - now_in : now_in) * KEYS * VALUE_ROW;
    BARRIER();
    const i32 there = has_scores ? KEYS_FROM(first) : 0;
#if HAS_BIAS
    // On their way while the tile is waited for and multiplied.
    u32 biases[SCORE_PARTS * 2];
    UNROLL
    for (i32 e = 0; e < SCORE_PARTS * 2; ++e) {
      biases[e] = e / 2 * 8 + lane_word * 2 < there
                      ? *(GLOBAL const u32*)(bias_rows[e % 2] + first + e / 2 * 8)
                      : 0u;
    }
#endif
#if AHEAD
    if (first + KEYS < end_key) {
      const i32 at_next = KEYS_FROM(first + KEYS);
      LOAD_KEYS(1 - now_in, first + KEYS, at_next)
      LOAD_VALUES(1 - now_in, first + KEYS, at_next)
      COPIES_WAIT(3);
    } else {
      COPIES_WAIT(1);
    }
#else
    LOAD_KEYS(now_in, first, there)
    LOAD_VALUES(now_in, first, there)
#endif
    BARRIER();
    UNROLL
    for (i32 s = 0; s < SCORE_PARTS * 4; ++s) sums[s] = 0.0f;
    u32 columns[4];
    IF_MATRICES(has_queries) {
      UNROLL
      for (i32 product = 0; product < SCORE_PRODUCTS + (LAG ? RESULT_PRODUCTS : 0); ++product) {
        ADD_PRODUCT(product, product < SCORE_PRODUCTS)
      }
    }
    IF_MATRICES(has_queries) {
      const i32 of_lane = there - lane_word * 2;
#if PLAIN
      if (there < KEYS) {
        UNROLL
        for (i32 s = 0; s < SCORE_PARTS * 4; ++s) {
          if (s / 4 * 8 + s % 2 >= of_lane) sums[s] = -INFINITY_F32;
        }
      }
#else
      UNROLL
      for (i32 e = 0; e < SCORE_PARTS * 2; ++e) {
        const i32 column = e / 2 * 8 + e % 2;
        const i64 key = first + lane_word * 2 + column;
        UNROLL
        for (i32 r = 0; r < 2; ++r) sums[e / 2 * 4 + r * 2 + e % 2] *= scale;
        if (column < of_lane) {
          UNROLL
          for (i32 r = 0; r < 2; ++r) {
            const i64 query = first_query + r * 8 < queries ? first_query + r * 8 : queries - 1;
            const f32 s = sums[e / 2 * 4 + r * 2 + e % 2];
            sums[e / 2 * 4 + r * 2 + e % 2] = (SCORE) + BIAS(e / 2 * 2 + r, e % 2);
          }
        } else {
          sums[e / 2 * 4 + e % 2] = sums[e / 2 * 4 + 2 + e % 2] = -INFINITY_F32;
        }
      }
#endif
      f32 now[2];
      now[0] = largest[0];
      now[1] = largest[1];
      UNROLL
      for (i32 s = 0; s < SCORE_PARTS * 4; ++s) now[s / 2 % 2] = fmax(now[s / 2 % 2], sums[s]);
      now[0] = quad_max(now[0], EXCHANGED);
      now[1] = quad_max(now[1], EXCHANGED);
      UNROLL
      for (i32 r = 0; r < 2; ++r) {
        // Nothing is seen yet: differences of infinities would not be numbers.
        const f32 base = now[r] == -INFINITY_F32 ? 0.0f : now[r] * factor;
        const f32 kept = QUICK_EXP2(largest[r] * factor - base);
        largest[r] = now[r];
        totals[r] *= kept;
        UNROLL
        for (i32 e = 0; e < RESULT_PARTS * 2; ++e) {
          sums[(SCORE_PARTS + e / 2) * 4 + r * 2 + e % 2] *= kept;
        }
        UNROLL
        for (i32 part = 0; part < SCORE_PARTS; ++part) {
          const f32 low = QUICK_EXP2(sums[part * 4 + r * 2] * factor - base);
          const f32 high = QUICK_EXP2(sums[part * 4 + r * 2 + 1] * factor - base);
          totals[r] += low + high;
          words[(SCORE_STEPS + part / 2) * 4 + part % 2 * 2 + r] = PAIR(low, high);
        }
      }
    }
#if AHEAD
    if (first + KEYS < end_key) {
      COPIES_WAIT(2);
    } else {
      COPIES_WAIT(0);
    }
    BARRIER();
    if (has_queries) {
      UNROLL
      for (i32 product = SCORE_PRODUCTS; product < SCORE_PRODUCTS + RESULT_PRODUCTS; ++product) {
        ADD_PRODUCT(product, false)
      }
    }
#endif
    now_in = 1 - now_in;
  }
  totals[0] = quad_sum(totals[0], EXCHANGED);
  totals[1] = quad_sum(totals[1], EXCHANGED);
  COPIES_WAIT(0);
  BARRIER();
  // Results are joined to rows first.
  UNROLL
  for (i32 r = 0; r < 2; ++r) {
    const f32 total = totals[r], share = 1.0f / total;
    const bool is_zero = ZEROS;
    const i32 row = lane / 32 * 16 + lane_row + r * 8;
    LOCAL_POINTER u32* to = (LOCAL_POINTER u32*)(room + row * VALUE_ROW) + lane_word;
    UNROLL
    for (i32 part = 0; part < RESULT_PARTS; ++part) {
      const f32 low = sums[(SCORE_PARTS + part) * 4 + r * 2] * share;
      const f32 high = sums[(SCORE_PARTS + part) * 4 + r * 2 + 1] * share;
      to[part * 4] = is_zero ? 0u : PAIR(low, high);
    }
  }
  BARRIER();
  GLOBAL X* results_at = y + y_at + down * y_row;
  FOR_PARTS(
      QUERIES, RESULT_PARTS, if (down + r < queries) {
        *(GLOBAL uint4*)(ROW_AT(results_at, r, y_row) + part * 8) = room[r * VALUE_ROW + part];
      })
}
)";

bool AreWhole(const AttentionOperand& operand) {
  constexpr int64_t kVector = 8;  // elements
  constexpr int64_t kFarthest = std::numeric_limits<int32_t>::max();
  return operand.row_stride % kVector == 0 && operand.row_stride <= kFarthest &&
         std::all_of(operand.batch_strides.begin(), operand.batch_strides.end(),
                     [](int64_t stride) { return stride % kVector == 0; });
}

bool IsNarrow(const FlashSizes& sizes) { return std::max(sizes.head, sizes.value_head) <= 64; }

// Whether scores are products by a scale that keeps their order.
bool IsPlain(const AttentionText& text, const FlashSizes& sizes) {
  return text.score == "s" && text.bias_row.empty() && text.extra == "-INFINITY_F32" &&
         sizes.scale > 0;
}

// Narrow heads leave each lane 128 registers of a multiprocessor's 65,536.
int64_t GroupsAtOnce(const MatrixAttentionTile& tile, const FlashSizes& sizes) {
  return IsNarrow(sizes) ? std::min<int64_t>(4, 16 / tile.warps) : 1;
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
  const bool is_narrow = IsNarrow(sizes) && sizes.keys > 32;
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
  // Fewer keys, or more groups, leave less undone at the end of either.
  const MatrixAttentionTile best = tiles[0];
  if (is_narrow) tiles.push_back({best.warps, 32});
  if (is_narrow && best.warps == 8) tiles.push_back({4, 32});
  return tiles;
}

std::string MatrixAttentionSource(const AttentionText& text, const FlashSizes& sizes,
                                  const MatrixAttentionTile& tile) {
  const bool is_half = text.type == DataType::kFloat16, has_bias = !text.bias_row.empty();
  AttentionText without_bias = text;
  without_bias.bias_row.clear();
  return StrCat(
      Define("HAS_BIAS", has_bias ? 1 : 0), Define("BIAS_ROW", has_bias ? text.bias_row : "q"),
      Define("X_OF_BITS", is_half ? "f16_to_f32" : "bf16_to_f32"),
      Define("PAIR", is_half ? "PAIR_OF_F16" : "PAIR_OF_BF16"),
      Define("MULTIPLY", is_half ? "matrix_f16" : "matrix_bf16"), Define("WARPS", tile.warps),
      Define("KEYS", tile.keys), Define("GROUPS_AT_ONCE", GroupsAtOnce(tile, sizes)),
      Define("PLAIN", IsPlain(text, sizes) ? 1 : 0), AttentionDefinitions(without_bias, sizes),
      kSource);
}

}  // namespace onnxd
