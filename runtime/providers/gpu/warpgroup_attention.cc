#include "runtime/providers/gpu/warpgroup_attention.h"

#include "runtime/base/str_cat.h"
#include "runtime/device/warpgroup_units.h"
#include "runtime/providers/gpu/attention_rows.h"
#include "runtime/providers/gpu/matrix_attention.h"

namespace onnxd {
namespace {

constexpr int64_t kKeys = 64, kTileBytes = 8192;

// Local memory has tiles of 64 rows of 64 elements: of queries, then twice those of keys and of
// values, then of shares, which only the emulation reads there.
constexpr std::string_view kSizes = R"(
#define LANES_IN_ALL 128
#define QUERIES 64
#define VALUE_ROW (VALUE_HEAD / 8 + 1)
#define SCORE_PARTS (KEYS / 8)
#define RESULT_PARTS (VALUE_HEAD / 8)
#define SHARES_AT 0
#define TILE 512
#define TILE_BYTES 8192
#define QUERY_TILES (HEAD / 64)
#define VALUE_TILES (VALUE_HEAD / 64)
#define HALF_TILES (QUERY_TILES + VALUE_TILES)
#define SHARE_TILE (QUERY_TILES + 2 * HALF_TILES)
)";

constexpr std::string_view kMacros = R"(
// Of 64 rows, those that are there, as a batch of copies.
#define LOAD_TILES(first_tile, count, from, stride, there) \
  UNROLL \
  for (i32 of_tile = 0; of_tile < (count); ++of_tile) { \
    FOR_PARTS(64, 8, \
              COPY_16(room + ((first_tile) + of_tile) * TILE + r * 8 + (part ^ r % 8), \
                      ROW_AT(from, r, stride) + of_tile * 64 + part * 8, (i32)r < (there));) \
  } \
  COPIES_END();
#define LOAD_KEYS(half, begin, there) \
  LOAD_TILES(QUERY_TILES + (half) * HALF_TILES, QUERY_TILES, k + k_at + (begin) * k_row, k_row, \
             there)
#define LOAD_VALUES(half, begin, there) \
  LOAD_TILES(2 * QUERY_TILES + (half) * HALF_TILES, VALUE_TILES, v + v_at + (begin) * v_row, v_row, \
             there)
#define TILE_AT(tile) (room_begin + (u32)(tile) * TILE_BYTES)

KERNEL BOUNDS(128, GROUPS_AT_ONCE)
warpgroup_attention(GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v, GLOBAL X* y,
                    PARAMETERS i64 queries, i64 keys, f32 scale, Dims batch, Dims q_strides,
                    Dims k_strides, Dims v_strides, Dims y_strides, i64 blocks) {
  LOCAL_ROOM(room, ROOM_BYTES / 16)
  EXCHANGE(128)
  const i32 lane = LANE(0), lane_row = lane % 32 / 4, lane_word = lane % 4;
  FIND_HEAD
  SETUP
  const u32 room_begin = ROOM_ADDRESS(room);
  const i64 first_key = FIRST_KEY, end_key = END_KEY;
  const i64 begin = first_key / KEYS * KEYS;
  const i32 queries_there = (i32)(queries - down < QUERIES ? queries - down : QUERIES);
  LOAD_TILES(0, QUERY_TILES, q + q_at + down * q_row, q_row, queries_there)
  const i32 at_first = begin < end_key ? KEYS_FROM(begin) : 0;
  LOAD_KEYS(0, begin, at_first)
  LOAD_VALUES(0, begin, at_first)
)";

// Between kRowQueries and kRowTotals.
constexpr std::string_view kSums = R"(
  u32 words[KEYS / 16 * 4];  // of shares
  f32 sums[(SCORE_PARTS + RESULT_PARTS) * 4];
  UNROLL
  for (i32 s = 0; s < (SCORE_PARTS + RESULT_PARTS) * 4; ++s) sums[s] = 0.0f;
)";

// Between kRowTotals and kRowBiases: a tile begins.
constexpr std::string_view kTile = R"(
  i32 now_in = 0;  // the half of the room that has the tile
  for (i64 first = begin; first < end_key; first += KEYS) {
    const bool is_last = first + KEYS >= end_key;
    const i32 keys_now = QUERY_TILES + now_in * HALF_TILES, values_now = keys_now + QUERY_TILES;
    const i32 there = KEYS_FROM(first);
    BARRIER();
)";

// Between kRowBiases and kRowShares.
constexpr std::string_view kScores = R"(
    if (is_last) {
      COPIES_WAIT(1);
    } else {
      const i32 at_next = KEYS_FROM(first + KEYS);
      LOAD_KEYS(1 - now_in, first + KEYS, at_next)
      LOAD_VALUES(1 - now_in, first + KEYS, at_next)
      COPIES_WAIT(3);
    }
    COPIES_TO_PRODUCTS();
    BARRIER();
    UNROLL
    for (i32 s = 0; s < SCORE_PARTS * 4; ++s) sums[s] = 0.0f;
    SUMS_STAY(sums, SCORE_PARTS * 4);
    PRODUCTS_BEGIN();
    const u64 of_queries = TILE_DESCRIPTOR(TILE_AT(0), 16, 1024);
    const u64 of_keys = TILE_DESCRIPTOR(TILE_AT(keys_now), 16, 1024);
    UNROLL
    for (i32 step = 0; step < HEAD / 16; ++step) {
      const u32 further = (u32)(step / 4 * TILE_BYTES + step % 4 * 32);
      multiply_keys(sums, TILE_FURTHER(of_queries, further), TILE_FURTHER(of_keys, further), room);
    }
    PRODUCTS_END();
    PRODUCTS_WAIT(0);
    SUMS_STAY(sums, SCORE_PARTS * 4);
    IF_MATRICES(true) {
)";

// Between kRowShares and kRowResults.
constexpr std::string_view kResults = R"(
    }
    if (is_last) {
      COPIES_WAIT(0);
    } else {
      COPIES_WAIT(2);
    }
    COPIES_TO_PRODUCTS();
    PUT_SHARES()
    BARRIER();
    SUMS_STAY(sums + SCORE_PARTS * 4, RESULT_PARTS * 4);
    PRODUCTS_BEGIN();
    const u64 of_values = TILE_DESCRIPTOR(TILE_AT(values_now), TILE_BYTES, 1024);
    UNROLL
    for (i32 step = 0; step < KEYS / 16; ++step) {
      const u64 right = TILE_FURTHER(of_values, (u32)step * 2048);
      ADD_SHARES(sums + SCORE_PARTS * 4, step, right);
    }
    PRODUCTS_END();
    PRODUCTS_WAIT(0);
    SUMS_STAY(sums + SCORE_PARTS * 4, RESULT_PARTS * 4);
    now_in = 1 - now_in;
  }
)";

// Shares are the left side where they are; emulated, through local memory.
constexpr std::string_view kShares = R"(
#ifdef HAS_WARPGROUPS
#define PUT_SHARES()
#define ADD_SHARES(of_results, step, right) multiply_values(of_results, words + (step) * 4, right)
#else
#define PUT_SHARES() \
  for (i32 word = 0; word < KEYS / 16 * 4; ++word) { \
    const i32 row = lane / 32 * 16 + lane_row + word % 2 * 8, part = word / 2; \
    ((LOCAL_POINTER u32*)(room + SHARE_TILE * TILE + row * 8 + (part ^ row % 8)))[lane_word] = \
        words[word]; \
  }
#define ADD_SHARES(of_results, step, right) \
  multiply_values(of_results, \
                  TILE_DESCRIPTOR(TILE_AT(SHARE_TILE) + (u32)(step) * 32, 16, 1024), right, room)
#endif
)";

int64_t TilesOf(const FlashSizes& sizes) {
  return (3 * sizes.head + 2 * sizes.value_head) / 64 + 1;
}

bool IsWidth(int64_t width) { return width == 64 || width == 128; }

}  // namespace

bool IsForWarpgroups(const AttentionText& text, const FlashSizes& sizes) {
  return IsForMatrixUnits(text, sizes) && IsWidth(sizes.head) && IsWidth(sizes.value_head);
}

int64_t WarpgroupRoomBytes(const FlashSizes& sizes) { return TilesOf(sizes) * kTileBytes; }

std::string WarpgroupAttentionSource(const AttentionText& text, const FlashSizes& sizes) {
  const bool is_narrow = sizes.head + sizes.value_head <= 128;
  return StrCat(RowDefinitions(text, sizes.scale), Define("KEYS", kKeys),
                Define("ROOM_BYTES", WarpgroupRoomBytes(sizes)),
                Define("GROUPS_AT_ONCE", is_narrow ? 4 : 2),
                AttentionDefinitions(WithoutBias(text), sizes),
                WarpgroupMultiply("multiply_keys", text.type, kKeys, false),
                WarpgroupMultiplyWords("multiply_values", text.type, sizes.value_head), kSizes,
                kShares, kRowMacros, kMacros, kRowQueries, kSums, kRowTotals, kTile, kRowBiases,
                kScores, kRowShares, kResults, kRowResults);
}

}  // namespace onnxd
