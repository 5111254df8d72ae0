#include "runtime/providers/gpu/matrix_attention.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/attention_rows.h"

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
constexpr std::string_view kSizes = R"(
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
#define SHARES_AT (SCORE_STEPS * 4)
// By how many keys the results are behind the scores, and whether tiles are loaded one ahead.
#ifdef EXCHANGE_WITH
#define LAG 0
#define AHEAD 1
#else
#define LAG KEYS
#define AHEAD 0
#endif
)";

// Behind kRowMacros.
constexpr std::string_view kMacros = R"(
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
)";

// Between kRowQueries and kRowTotals.
constexpr std::string_view kQueries = R"(
  const bool has_queries = down + lane / 32 * 16 < queries;  // the warp
  GLOBAL const X* queries_at = q + q_at + down * q_row;
  u32 words[(SCORE_STEPS + RESULT_STEPS) * 4];  // of left sides: of queries, then of shares
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
)";

// Between kRowTotals and kRowBiases: a tile begins.
constexpr std::string_view kTile = R"(
  i32 now_in = 0;  // the half of the room that has the tile
  for (i64 first = begin; first - LAG < end_key; first += KEYS) {
    const bool has_scores = first < end_key;
    LOCAL_POINTER const uint4* keys_now = key_tile + now_in * KEYS * KEY_ROW;
    LOCAL_POINTER const uint4* values_now =
        value_tile + (LAG ? 1 - now_in : now_in) * KEYS * VALUE_ROW;
    BARRIER();
    const i32 there = has_scores ? KEYS_FROM(first) : 0;
)";

// Between kRowBiases and kRowShares.
constexpr std::string_view kScores = R"(
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
)";

// Between kRowShares and kRowResults.
constexpr std::string_view kResults = R"(
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
)";

bool AreWhole(const AttentionOperand& operand) {
  constexpr int64_t kVector = 8;  // elements
  constexpr int64_t kFarthest = std::numeric_limits<int32_t>::max();
  return operand.row_stride % kVector == 0 && operand.row_stride <= kFarthest &&
         std::all_of(operand.batch_strides.begin(), operand.batch_strides.end(),
                     [](int64_t stride) { return stride % kVector == 0; });
}

bool IsNarrow(const FlashSizes& sizes) { return std::max(sizes.head, sizes.value_head) <= 64; }

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
  return StrCat(RowDefinitions(text, sizes.scale), Define("WARPS", tile.warps),
                Define("KEYS", tile.keys), Define("GROUPS_AT_ONCE", GroupsAtOnce(tile, sizes)),
                AttentionDefinitions(WithoutBias(text), sizes), kSizes, kRowMacros, kMacros,
                kRowQueries, kQueries, kRowTotals, kTile, kRowBiases, kScores, kRowShares, kResults,
                kRowResults);
}

}  // namespace onnxd
