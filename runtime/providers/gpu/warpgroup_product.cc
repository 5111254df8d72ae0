#include "runtime/providers/gpu/warpgroup_product.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/device/warpgroup_units.h"

namespace onnxd {
namespace {

// A stage of the ring is a tile of ROWS rows of a and one of COLUMNS columns of b, 64 elements
// each. At a step's barrier all warpgroups know of each other that they have multiplied what is
// IN_FLIGHT steps before the last: there go the next copies. One step's products are in flight
// where a group is alone, so that the barrier does not stop them; where another is beside it, that
// one's go on.
constexpr std::string_view kSource = R"(
#define STEP 64
#define PARTS 8
#define PART 8
#define ROWS (WARPGROUPS * DOWN * 64)
#define LANES_IN_ALL (WARPGROUPS * 128)
#define A_BYTES (ROWS * 128)
#define B_BYTES (COLUMNS * 128)
#define STAGE_BYTES (A_BYTES + B_BYTES)
#define AHEAD (STAGES - 1 - IN_FLIGHT)
#define SUMS (DOWN * COLUMNS / 2)
#define SUM_ROW (COLUMNS + 8)
// What finishes results: vectors of a row, and how many rows lanes have at once.
#define VECTORS (COLUMNS / VECTOR)
#define ROWS_AT_ONCE (LANES_IN_ALL / VECTORS)
// A lane's part of `rows` rows of a tile, in turns.
#define FOR_ROWS(rows, statement) \
  UNROLL \
  for (i32 turn = 0; turn < (rows) * PARTS / LANES_IN_ALL; ++turn) { \
    const u32 r = (u32)lane / PARTS + (u32)(turn * (LANES_IN_ALL / PARTS)); \
    const u32 place = r * PARTS + (part ^ r % PARTS); \
    statement \
  }
// `first` is the step's first element.
#define COPY_A(tile, first) \
  FOR_ROWS(ROWS, COPY_16((tile) + place, a_rows + (first) + (u64)r * (u32)k, \
                         r < rows_there && (first) + part * PART < k);)
#if B_TURNED
#define COPY_B(tile, first) \
  UNROLL \
  for (i32 block = 0; block < COLUMNS / 64; ++block) { \
    FOR_ROWS(STEP, COPY_16((tile) + block * (64 * PARTS) + place, \
                           b_rows + ((first) + r) * n + block * 64, \
                           (first) + r < k && block * 64 + part * PART < columns_there);) \
  }
#else
#define COPY_B(tile, first) \
  FOR_ROWS(COLUMNS, COPY_16((tile) + place, b_rows + (first) + (u64)r * (u32)k, \
                            r < columns_there && (first) + part * PART < k);)
#endif
#define COPY_STAGE(stage, first) \
  { \
    LOCAL_POINTER uint4* tile = room + (stage) * (STAGE_BYTES / 16); \
    if ((first) < k) { \
      COPY_A(tile, first) \
      COPY_B(tile + A_BYTES / 16, first) \
    } \
    COPIES_END(); \
  }

KERNEL BOUNDS(LANES_IN_ALL, AT_ONCE)
warpgroup_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n, i64 k,
                  i64 tiles_down, i64 tiles_across) {
  LOCAL_ROOM(room, ROOM_BYTES / 16)
  u32 group = (u32)GROUP(0);
  const i64 across = (i64)(group % (u32)tiles_across) * COLUMNS;
  group /= (u32)tiles_across;
  const i64 down = (i64)(group % (u32)tiles_down) * ROWS;
  const i64 batch = group / (u32)tiles_down;
  SETUP
  const i32 lane = LANE(0);
  const u32 part = (u32)lane % PARTS;
  const i64 rows_there = m - down, columns_there = n - across;
  GLOBAL const A* a_rows = a + down * k + part * PART;
  GLOBAL const B* b_rows = b + (B_TURNED ? across : across * k) + part * PART;
  f32 sums[SUMS];
  UNROLL
  for (i32 s = 0; s < SUMS; ++s) sums[s] = 0.0f;
  SUMS_STAY(sums, SUMS);
  UNROLL
  for (i32 stage = 0; stage < AHEAD; ++stage) COPY_STAGE(stage, (i64)stage * STEP)
  i32 now_in = 0, next_in = AHEAD;
  for (i64 first = 0; first < k; first += STEP) {
    COPIES_WAIT(AHEAD - 1);
    COPIES_TO_PRODUCTS();
    BARRIER();
    const u32 a_tile = ROOM_ADDRESS(room) + (u32)(now_in * STAGE_BYTES);
    const u32 b_tile = a_tile + A_BYTES;
    PRODUCTS_BEGIN();
    UNROLL
    for (i32 p = 0; p < STEP / 16; ++p) {
      const u64 right = B_TURNED ? TILE_DESCRIPTOR(b_tile + (u32)p * 2048, 8192, 1024)
                                 : TILE_DESCRIPTOR(b_tile + (u32)p * 32, 16, 1024);
      UNROLL
      for (i32 block = 0; block < DOWN; ++block) {
        const u32 rows_of_block = (u32)((lane / 128 * DOWN + block) * 8192);
        const u64 left = TILE_DESCRIPTOR(a_tile + rows_of_block + (u32)p * 32, 16, 1024);
        warpgroup_multiply(sums + block * (COLUMNS / 2), left, right, room);
      }
    }
    PRODUCTS_END();
    COPY_STAGE(next_in, first + AHEAD * STEP)
    PRODUCTS_WAIT(IN_FLIGHT);
    now_in = now_in == STAGES - 1 ? 0 : now_in + 1;
    next_in = next_in == STAGES - 1 ? 0 : next_in + 1;
  }
  PRODUCTS_WAIT(0);
  SUMS_STAY(sums, SUMS);
  COPIES_WAIT(0);
  BARRIER();
  // Sums become rows, whose results take their place.
  LOCAL_POINTER f32* of_room = (LOCAL_POINTER f32*)room;
  UNROLL
  for (i32 s = 0; s < SUMS; s += 2) {
    const i32 row = s / (COLUMNS / 2) * 64 + lane / 128 * (DOWN * 64) + lane % 128 / 32 * 16 +
                    lane % 32 / 4 + s / 2 % 2 * 8;
    const i32 column = s % (COLUMNS / 2) / 4 * 8 + lane % 4 * 2;
    uint2 pair;
    pair.x = f32_bits(sums[s]);
    pair.y = f32_bits(sums[s + 1]);
    *(LOCAL_POINTER uint2*)(of_room + row * SUM_ROW + column) = pair;
  }
  BARRIER();
  // A lane has the same columns of each of its rows, so that it reads what belongs to them once.
  const i32 rows_here = (i32)(rows_there < ROWS ? rows_there : ROWS);
  {
    const i32 column = lane % VECTORS * VECTOR, first_row = lane / VECTORS;
    const IX begin = (IX)(across + column);
    const bool has_work = first_row < ROWS_AT_ONCE && begin < n;
    for (i32 row = has_work ? first_row : rows_here; row < rows_here; row += ROWS_AT_ONCE) {
      const IX i = (IX)(down + row);
      LOCAL_POINTER uint4* of_row = (LOCAL_POINTER uint4*)(of_room + row * SUM_ROW + column);
      f32 of_sums[VECTOR];
      UNROLL
      for (i32 w = 0; w < VECTOR / 4; ++w) {
        const uint4 four = of_row[w];
        of_sums[w * 4] = f32_of_bits(four.x);
        of_sums[w * 4 + 1] = f32_of_bits(four.y);
        of_sums[w * 4 + 2] = f32_of_bits(four.z);
        of_sums[w * 4 + 3] = f32_of_bits(four.w);
      }
      const i64 first_at = ((i64)batch * m + i) * n + begin;
      Y_VECTOR of_y;
      UNROLL
      for (i32 of_vector = 0; of_vector < VECTOR; ++of_vector) {
        const IX j = begin + of_vector;
        const ACC sum = of_sums[of_vector];
        const i64 at = first_at + of_vector;
        const ACC value = RESULT;
        Y_PUT(of_y.at, of_vector, FINISHED);
      }
      *(LOCAL_POINTER Y_WORDS*)of_row = of_y.words;
    }
  }
  BARRIER();
  for (i32 e = lane; e < rows_here * VECTORS; e += LANES_IN_ALL) {
    const i32 row = e / VECTORS, column = e % VECTORS * VECTOR;
    if (column < columns_there) {
      *(GLOBAL Y_WORDS*)(y + ((i64)batch * m + down + row) * n + across + column) =
          *(LOCAL_POINTER const Y_WORDS*)(of_room + row * SUM_ROW + column);
    }
  }
}
)";

// Results that a lane finishes at once: 16 bytes at most, and 8 of them.
int64_t VectorOf(DataType y) {
  return std::min<int64_t>(8, 128 / static_cast<int64_t>(DataTypeBits(y)));
}

}  // namespace

int64_t WarpgroupTile::room_bytes() const {
  const int64_t ring = stages * (rows() + columns) * 128;
  const int64_t sums = rows() * (columns + 8) * 4;
  return std::max(ring, sums);
}

bool IsForWarpgroups(const ProductText& text, const ProductSizes& sizes) {
  const bool of_16_bits = text.a == DataType::kFloat16 || text.a == DataType::kBfloat16;
  const bool are_whole = sizes.k % 8 == 0 && sizes.n % 8 == 0;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return of_16_bits && text.b == text.a && text.accumulator == "f32" && text.a_rows &&
         (text.b_rows || text.b_columns) && are_whole && sizes.k <= kMost && VectorOf(text.y) >= 4;
}

std::vector<WarpgroupTile> WarpgroupTiles(const GpuProperties& properties) {
  std::vector<WarpgroupTile> tiles = {
      {2, 1, 192, 2, 2}, {2, 2, 192, 4, 1}, {2, 1, 256, 4, 1}, {2, 1, 128, 3, 2}};
  std::erase_if(
      tiles, [&](const WarpgroupTile& tile) { return tile.room_bytes() > properties.room_bytes; });
  return tiles;
}

std::string WarpgroupProductSource(const ProductText& text, const WarpgroupTile& tile, bool wide) {
  const bool turned = !text.b_rows;
  return StrCat(Define("IX", wide ? "i64" : "i32"), DefineType("A", text.a),
                DefineType("B", text.b), DefineType("Y", text.y),
                DefineVector("Y", text.y, VectorOf(text.y)), Define("VECTOR", VectorOf(text.y)),
                Define("ACC", text.accumulator), Define("WARPGROUPS", tile.warpgroups),
                Define("DOWN", tile.blocks), Define("COLUMNS", tile.columns),
                Define("STAGES", tile.stages), Define("AT_ONCE", tile.at_once),
                Define("IN_FLIGHT", tile.at_once == 1 ? 1 : 0),
                Define("ROOM_BYTES", tile.room_bytes()), Define("B_TURNED", turned ? 1 : 0),
                Define("PARAMETERS", text.parameters), Define("SETUP", text.setup),
                Define("RESULT", text.result), Define("FINISHED", text.finished), text.functions,
                WarpgroupMultiply(text.a, tile.columns, turned), kSource);
}

}  // namespace onnxd
