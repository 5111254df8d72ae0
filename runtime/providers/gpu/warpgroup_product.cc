#include "runtime/providers/gpu/warpgroup_product.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/device/warpgroup_units.h"

namespace onnxd {
namespace {

constexpr int64_t kStep = 64, kElementBytes = 2, kResultBytes = 16384, kSignalBytes = 128;
constexpr int64_t kRingBytes = 200 << 10;
constexpr uint32_t kLanes = 384;

int64_t StagesOf(int64_t columns) {
  return kRingBytes / ((kWarpgroupRows + columns) * kStep * kElementBytes);
}

constexpr int64_t kRoomBytes = kRingBytes + kResultBytes + kSignalBytes;

// A stage is a tile of 128 rows of a and one of COLUMNS columns of b, 64 elements each. A signal
// says that it is full, another that both groups of a pair have multiplied it, since half of its
// columns, or of their elements where they are turned, come from the other group's copies.
//
// Warpgroup 0 computes a group's first, third, ... tile, warpgroup 1 the others. They take turns at
// the ring, as a signal tells only two uses of a stage apart.
//
// Emulated, a group computes one tile, and all of its lanes copy.
constexpr std::string_view kSource = R"(
#define STEP 64
#define ROWS 128
#define SUMS COLUMNS
#define BLOCK_BYTES 8192  // 64 rows of a, or columns of b
#define A_BYTES (2 * BLOCK_BYTES)
#define STAGE_BYTES (A_BYTES + COLUMNS * STEP * 2)
#define RESULTS_AT RING_BYTES
#define SIGNALS_AT (RESULTS_AT + 16384)
#define MULTIPLY_STAGE(stage) \
  { \
    const u64 a_tile = TILE_DESCRIPTOR(stage, 16, 1024); \
    const u64 b_tile = TILE_DESCRIPTOR((stage) + A_BYTES, B_TURNED ? BLOCK_BYTES : 16, 1024); \
    UNROLL \
    for (i32 p = 0; p < STEP / 16; ++p) { \
      const u64 right = TILE_FURTHER(b_tile, (u32)p * (B_TURNED ? 2048 : 32)); \
      UNROLL \
      for (i32 block = 0; block < 2; ++block) { \
        const u64 left = TILE_FURTHER(a_tile, (u32)(block * BLOCK_BYTES + p * 32)); \
        multiply(sums + block * (SUMS / 2), left, right, room); \
      } \
    } \
  }
// Results are finished before any is stored, so that what they read is on its way together; then all
// that is added to whole rows is asked for. Rows of 64 results are written whole: 8 of them are at
// place part ^ row % 8 until then, so that neither writing nor reading them meets a bank twice.
#define FINISH_TILE(own, is_mine, SYNCHRONIZE) \
  { \
    const i32 of_warp = lane % 32, first_row = lane % 128 / 32 * 16; \
    LOCAL_POINTER uint4* rows = room + RESULTS_AT / 16 + (own) * 512 + first_row * 8; \
    LOCAL_POINTER u32* words = (LOCAL_POINTER u32*)(rows + of_warp / 4 * 8) + of_warp % 4; \
    u32 results[SUMS / 2]; \
    if (is_mine) { \
      UNROLL \
      for (i32 e = 0; e < SUMS / 2; ++e) { \
        const i32 part = e / 4, block = e % 4 / 2, below = e % 2; \
        const IX row = (IX)down + block * 64 + first_row + of_warp / 4 + below * 8; \
        const IX i = row < (IX)m ? row : (IX)m - 1; \
        Y pair[2]; \
        UNROLL \
        for (i32 odd = 0; odd < 2; ++odd) { \
          const IX column = (IX)across + part * 8 + of_warp % 4 * 2 + odd; \
          const IX j = column < (IX)n ? column : (IX)n - 1; \
          const ACC sum = sums[block * (SUMS / 2) + part * 4 + below * 2 + odd]; \
          const i64 at = (i64)i * n + j; \
          const ACC value = RESULT; \
          Y_PUT(pair, odd, FINISHED); \
        } \
        results[e] = (u32)pair[0] | (u32)pair[1] << 16; \
      } \
    } \
    uint4 added[COLUMNS / 32 * 4]; \
    if (ADDS_MATRIX && is_mine) { \
      UNROLL \
      for (i32 e = 0; e < COLUMNS / 32 * 4; ++e) { \
        const IX row = ROW_OF(e / 4, e % 4), column = COLUMN_OF(e / 4); \
        const IX i = row < (IX)m ? row : (IX)m - 1, j = column < (IX)n ? column : (IX)n - 8; \
        added[e] = *(GLOBAL const uint4*)(MATRIX_ADDED + (i64)i * n + j); \
      } \
    } \
    UNROLL \
    for (i32 piece = 0; piece < COLUMNS / 32; ++piece) { \
      SYNCHRONIZE; \
      if (is_mine) { \
        UNROLL \
        for (i32 e = 0; e < 16; ++e) { \
          const i32 part = e / 2, below = e % 2; \
          words[below * 256 + (part ^ of_warp / 4) * 4] = \
              results[(piece / 2 * 8 + part) * 4 + piece % 2 * 2 + below]; \
        } \
      } \
      SYNCHRONIZE; \
      if (is_mine) { \
        uint4 whole[4]; \
        UNROLL \
        for (i32 e = 0; e < 4; ++e) { \
          const i32 row = e * 4 + of_warp / 8; \
          whole[e] = rows[row * 8 + (of_warp % 8 ^ row % 8)]; \
        } \
        UNROLL \
        for (i32 e = 0; e < 4; ++e) { \
          const IX i = ROW_OF(piece, e), j = COLUMN_OF(piece); \
          if (i < (IX)m && j < (IX)n) { \
            *(GLOBAL uint4*)(y + (i64)i * n + j) = \
                ADDS_MATRIX ? with_added(whole[e], added[piece * 4 + e]) : whole[e]; \
          } \
        } \
      } \
    } \
  }
// Of a lane's four places in a piece, 64 rows and columns.
#define ROW_OF(piece, e) ((IX)down + (piece) % 2 * 64 + first_row + (e) * 4 + of_warp / 8)
#define COLUMN_OF(piece) ((IX)across + (piece) / 2 * 64 + of_warp % 8 * 8)

FUNCTION u32 pair_with(u32 sums, u32 added) {
  const f32 low = Y_OF_BITS((u16)sums) + Y_OF_BITS((u16)added);
  const f32 high = Y_OF_BITS((u16)(sums >> 16)) + Y_OF_BITS((u16)(added >> 16));
  return PAIR(NOT_NEGATIVE && low < 0.0f ? 0.0f : low, NOT_NEGATIVE && high < 0.0f ? 0.0f : high);
}
FUNCTION uint4 with_added(uint4 sums, uint4 added) {
  sums.x = pair_with(sums.x, added.x);
  sums.y = pair_with(sums.y, added.y);
  sums.z = pair_with(sums.z, added.z);
  sums.w = pair_with(sums.w, added.w);
  return sums;
}

KERNEL IN_PAIRS BOUNDS(384, 1)
warpgroup_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n, i64 k,
                  i64 tiles_down, i64 tiles_across, TILE_MAP(a_map), TILE_MAP(b_map)) {
  LOCAL_ROOM(room, ROOM_BYTES / 16)
  const i64 batch = 0;
  SETUP
  const i32 lane = LANE(0);
  const u32 pairs = (u32)(tiles_down + 1) / 2;
  f32 sums[SUMS];
#ifdef HAS_WARPGROUPS
  const u32 of_pair = PAIR_RANK(), base = ROOM_ADDRESS(room);
  const u32 full = base + SIGNALS_AT, empty = full + STAGES * 8;
  const u32 tiles = pairs * (u32)tiles_across, steps = (u32)((k + STEP - 1) / STEP);
  const u32 first_tile = (u32)GROUP(0) / 2, apart = (u32)GROUPS(0) / 2;
  if (lane == 256) {
    FETCH_MAP(a_map);
    FETCH_MAP(b_map);
  }
  if (lane == 0) {
    for (u32 stage = 0; stage < STAGES; ++stage) {
      SIGNAL_INIT(full + stage * 8, 1);
      SIGNAL_INIT(empty + stage * 8, 2);
    }
    SIGNALS_VISIBLE();
  }
  PAIR_BARRIER();
  if (lane >= 256) {
    FEWER_REGISTERS();
    if (lane == 256) {
      u32 stage = 0, use = 0;
      for (u32 tile = first_tile; tile < tiles; tile += apart) {
        const u32 down = (tile % pairs * 2 + of_pair) * ROWS;
        const u32 across = tile / pairs * COLUMNS;
        for (u32 step = 0; step < steps; ++step) {
          const u32 to = base + stage * STAGE_BYTES, signal = full + stage * 8;
          if (use > 0) SIGNAL_WAIT(empty + stage * 8, (use - 1) & 1);
          SIGNAL_EXPECT(signal, STAGE_BYTES);
          COPY_TILE(to, a_map, step * STEP, down, signal);
#if B_TURNED
          UNROLL
          for (u32 block = 0; block < COLUMNS / 64; ++block) {
            COPY_TILE_TO_PAIR(to + A_BYTES + block * BLOCK_BYTES + of_pair * (BLOCK_BYTES / 2), b_map,
                              across + block * 64, step * STEP + of_pair * 32, signal);
          }
#else
          COPY_TILE_TO_PAIR(to + A_BYTES + of_pair * (COLUMNS / 64 * BLOCK_BYTES / 2), b_map,
                            step * STEP, across + of_pair * (COLUMNS / 2), signal);
#endif
          if (++stage == STAGES) {
            stage = 0;
            ++use;
          }
        }
      }
    }
  } else {
    MORE_REGISTERS();
    const u32 own = (u32)lane / 128;
    if (own == 1) GIVE_TURN(0);
    u32 steps_before = own * steps;
    for (u32 tile = first_tile + own * apart; tile < tiles; tile += 2 * apart) {
      const i64 down = (i64)(tile % pairs * 2 + of_pair) * ROWS, across = (i64)(tile / pairs) * COLUMNS;
      u32 stage = steps_before % STAGES, phase = steps_before / STAGES & 1, last = 0;
      UNROLL
      for (i32 s = 0; s < SUMS; ++s) sums[s] = 0.0f;
      AWAIT_TURN(own);
      SUMS_STAY(sums, SUMS);
      for (u32 step = 0; step < steps; ++step) {
        SIGNAL_WAIT(full + stage * 8, phase);
        PRODUCTS_BEGIN();
        MULTIPLY_STAGE(base + stage * STAGE_BYTES)
        PRODUCTS_END();
        if (step > 0) {
          PRODUCTS_WAIT(1);
          if (lane % 128 < 2) SIGNAL_PAIR(empty + last * 8, (u32)lane % 128);
        }
        last = stage;
        if (++stage == STAGES) {
          stage = 0;
          phase ^= 1;
        }
      }
      GIVE_TURN(1 - own);
      PRODUCTS_WAIT(0);
      if (lane % 128 < 2) SIGNAL_PAIR(empty + last * 8, (u32)lane % 128);
      SUMS_STAY(sums, SUMS);
      FINISH_TILE(own, true, WARP_BARRIER())
      steps_before += 2 * steps;
    }
  }
  PAIR_BARRIER();
#else
  const u32 tile = (u32)GROUP(0) / 2;
  const i64 down = (i64)(tile % pairs * 2 + (u32)GROUP(0) % 2) * ROWS;
  const i64 across = (i64)(tile / pairs) * COLUMNS;
  for (i32 s = 0; s < SUMS; ++s) sums[s] = 0.0f;
  for (i64 first = 0; first < k; first += STEP) {
    BARRIER();
    for (i32 e = lane; e < STAGE_BYTES / 2; e += 384) {
      const bool of_a = e < A_BYTES / 2;
      const i32 block = e / (BLOCK_BYTES / 2), row = e % (BLOCK_BYTES / 2) / 64, column = e % 64;
      const i64 p = first + (B_TURNED && !of_a ? row : column);
      const i64 i = down + block * 64 + row;
      const i64 j = across + (block - 2) * 64 + (B_TURNED ? column : row);
      u16 element = 0;
      if (of_a && i < m && p < k) element = a[i * k + p];
      if (!of_a && j < n && p < k) element = b[B_TURNED ? p * n + j : j * k + p];
      ((LOCAL_POINTER u16*)room)[e - column + ((column / 8) ^ (row % 8)) * 8 + column % 8] =
          element;
    }
    BARRIER();
    if (lane < 128) MULTIPLY_STAGE(0u)
  }
  FINISH_TILE(0, lane < 128, BARRIER())
#endif
}
)";

}  // namespace

bool IsForWarpgroups(const ProductText& text, const ProductSizes& sizes) {
  const bool of_16_bits = text.a == DataType::kFloat16 || text.a == DataType::kBfloat16;
  const bool are_whole = sizes.k % 8 == 0 && sizes.n % 8 == 0;
  constexpr int64_t kLeast = 64, kMost = std::numeric_limits<int32_t>::max();
  return of_16_bits && text.b == text.a && DataTypeBits(text.y) == 16 &&
         text.accumulator == "f32" && text.a_rows && (text.b_rows || text.b_columns) && are_whole &&
         sizes.batch == 1 && std::min({sizes.m, sizes.n, sizes.k}) >= kLeast &&
         std::max({sizes.m, sizes.n, sizes.k}) <= kMost;
}

bool HasRoomForWarpgroups(const GpuProperties& properties) {
  return properties.room_bytes >= kRoomBytes;
}

LaunchGrid WarpgroupGrid(const GpuProperties& properties, Dialect dialect,
                         const ProductSizes& sizes, int64_t columns) {
  const int64_t down = (sizes.m + 2 * kWarpgroupRows - 1) / (2 * kWarpgroupRows);
  const int64_t across = (sizes.n + columns - 1) / columns;
  const int64_t at_once = dialect == Dialect::kCuda ? std::max(1, properties.multiprocessors / 2)
                                                    : std::numeric_limits<int64_t>::max();
  LaunchGrid grid;
  grid.groups[0] = static_cast<uint32_t>(2 * std::min(down * across, at_once));
  grid.lanes[0] = kLanes;
  grid.room_bytes = kRoomBytes;
  return grid;
}

Result<WarpgroupMaps> MapsOf(const GpuDevice& device, bool b_rows, const ProductSizes& sizes,
                             int64_t columns, const void* a, const void* b) {
  WarpgroupMaps maps;
  ONNXD_ASSIGN_OR_RETURN(maps.a, device.MakeTileMap(a, sizes.m, sizes.k, kWarpgroupRows));
  ONNXD_ASSIGN_OR_RETURN(maps.b, b_rows ? device.MakeTileMap(b, sizes.n, sizes.k, columns / 2)
                                        : device.MakeTileMap(b, sizes.k, sizes.n, kStep / 2));
  return maps;
}

namespace {

// The row is added to sums; the matrix, and what comes behind it, to whole rows of results.
ProductText WithAddends(ProductText text, const ProductAddends& addends) {
  text.functions = text.setup = text.parameters = "";
  text.result = "sum";
  text.finished = "value";
  if (addends.row) {
    text.parameters = "GLOBAL const Y* row_added, ";
    text.finished = "value + Y_GET(row_added, j)";
  }
  if (addends.matrix) {
    text.parameters += "GLOBAL const Y* matrix_added, ";
  } else if (addends.relu) {
    text.finished = StrCat("not_negative(", text.finished, ")");
    text.functions = "FUNCTION f32 not_negative(f32 x) { return x < 0.0f ? 0.0f : x; }\n";
  }
  return text;
}

}  // namespace

ProductFill WarpgroupFill(const ProductPlan& plan) {
  if (!plan.addends) return plan.fill;
  return [added = *plan.addends](const KernelContext& k, LaunchArguments& arguments) {
    if (added.row) arguments.Pointer(k.input<void>(*added.row));
    if (added.matrix) arguments.Pointer(k.input<void>(*added.matrix));
  };
}

std::string WarpgroupProductSource(const ProductPlan& plan, bool wide, int64_t columns) {
  const ProductText text = plan.addends ? WithAddends(plan.text, *plan.addends) : plan.text;
  const bool adds_matrix = plan.addends && plan.addends->matrix;
  const bool turned = !text.b_rows, is_half = text.y == DataType::kFloat16;
  return StrCat(Define("IX", wide ? "i64" : "i32"), DefineType("A", text.a),
                DefineType("B", text.b), DefineType("Y", text.y), Define("ACC", text.accumulator),
                Define("COLUMNS", columns), Define("STAGES", StagesOf(columns)),
                Define("RING_BYTES", kRingBytes), Define("ROOM_BYTES", kRoomBytes),
                Define("B_TURNED", turned ? 1 : 0), Define("PARAMETERS", text.parameters),
                Define("SETUP", text.setup), Define("RESULT", text.result),
                Define("FINISHED", text.finished), Define("ADDS_MATRIX", adds_matrix ? 1 : 0),
                Define("MATRIX_ADDED", adds_matrix ? "matrix_added" : "y"),
                Define("NOT_NEGATIVE", adds_matrix && plan.addends->relu ? 1 : 0),
                Define("Y_OF_BITS", is_half ? "f16_to_f32" : "bf16_to_f32"),
                Define("PAIR", is_half ? "PAIR_OF_F16" : "PAIR_OF_BF16"), text.functions,
                WarpgroupMultiply("multiply", text.a, columns, turned), kSource);
}

}  // namespace onnxd
