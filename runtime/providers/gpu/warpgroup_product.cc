#include "runtime/providers/gpu/warpgroup_product.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/device/warpgroup_units.h"

namespace onnxd {
namespace {

constexpr int64_t kRows = 128, kElementBytes = 2, kSteps = 64;
constexpr int64_t kResultBytes = 32768, kSignalBytes = 128;
constexpr uint32_t kLanes = 384;

int64_t StageBytes(WarpgroupSchedule schedule) {
  return (kRows + WarpgroupColumns(schedule)) * kSteps * kElementBytes;
}

// As many as there is room for.
int64_t Stages(WarpgroupSchedule schedule) {
  return schedule == WarpgroupSchedule::kInTurns ? 6 : 4;
}

int64_t RoomBytes(WarpgroupSchedule schedule) {
  return Stages(schedule) * StageBytes(schedule) + kResultBytes + kSignalBytes;
}

// A stage is a tile of 128 rows of a and one of COLUMNS columns of b, 64 elements each. A signal
// says that it is full, another that all who read it have multiplied it, in both groups of a pair,
// since half of its columns come from the other group's copies.
//
// IN_TURNS, warpgroup 0 computes a group's first, third, ... tile, warpgroup 1 the others. They
// take turns at the ring, as a signal tells only two uses of a stage apart. Else warpgroup 0
// computes the upper 64 rows of every tile, warpgroup 1 the lower.
//
// Emulated, a group computes one tile, and all of its lanes copy.
constexpr std::string_view kSource = R"(
#define STEP 64
#define ROWS 128
#define SUMS 128
#define BLOCK_BYTES 8192  // 64 rows of a, or columns of b
#define A_BYTES (2 * BLOCK_BYTES)
#define OWN_BYTES (COLUMNS / 128 * BLOCK_BYTES)  // the half of b's columns that a group copies
#define STAGE_BYTES (A_BYTES + 2 * OWN_BYTES)
#define RESULTS_AT (STAGES * STAGE_BYTES)
#define SIGNALS_AT (RESULTS_AT + 32768)
#define OWN_BLOCK(own) (IN_TURNS ? 0 : (own))
#define OWN_BLOCKS (IN_TURNS ? 2 : 1)
#define MULTIPLYING (IN_TURNS ? 128 : 256)  // lanes, emulated
#define MULTIPLY_STAGE(stage, own) \
  { \
    const u64 a_tile = TILE_DESCRIPTOR((stage) + OWN_BLOCK(own) * BLOCK_BYTES, 16, 1024); \
    const u64 b_tile = TILE_DESCRIPTOR((stage) + A_BYTES, B_TURNED ? BLOCK_BYTES : 16, 1024); \
    UNROLL \
    for (i32 p = 0; p < STEP / 16; ++p) { \
      const u64 right = TILE_FURTHER(b_tile, (u32)p * (B_TURNED ? 2048 : 32)); \
      UNROLL \
      for (i32 block = 0; block < OWN_BLOCKS; ++block) { \
        const u64 left = TILE_FURTHER(a_tile, (u32)(block * BLOCK_BYTES + p * 32)); \
        multiply(sums + block * (SUMS / 2), left, right, room); \
      } \
    } \
  }
// Results of a warp become rows, which are written whole, 128 columns at a time: first those of half
// of its sums. 8 results of a row are at place (part ^ row) % 8 of their 64 columns, so that neither
// writing nor reading them meets a bank twice.
#define FINISH_TILE(own, is_mine, SYNCHRONIZE) \
  UNROLL \
  for (i32 of_two = 0; of_two < 2; ++of_two) { \
    const i32 of_warp = lane % 32, first_row = lane % 128 / 32 * 16; \
    const IX half_down = (IX)down + (IX)(OWN_BLOCK(own) + (IN_TURNS ? of_two : 0)) * 64 + first_row; \
    const IX half_across = (IX)across + (IN_TURNS ? 0 : of_two * 128); \
    LOCAL_POINTER uint4* rows = room + RESULTS_AT / 16 + (own) * 1024 + first_row * 16; \
    SYNCHRONIZE; \
    if (is_mine) { \
      LOCAL_POINTER u32* words = (LOCAL_POINTER u32*)(rows + of_warp / 4 * 16) + of_warp % 4; \
      UNROLL \
      for (i32 e = 0; e < SUMS / 4; ++e) { \
        const i32 part = e / 2, below = e % 2; \
        const IX row = half_down + of_warp / 4 + below * 8, i = row < (IX)m ? row : (IX)m - 1; \
        Y pair[2]; \
        UNROLL \
        for (i32 odd = 0; odd < 2; ++odd) { \
          const IX column = half_across + part * 8 + of_warp % 4 * 2 + odd; \
          const IX j = column < (IX)n ? column : (IX)n - 1; \
          const ACC sum = sums[of_two * (SUMS / 2) + part * 4 + below * 2 + odd]; \
          const i64 at = (i64)i * n + j; \
          const ACC value = RESULT; \
          Y_PUT(pair, odd, FINISHED); \
        } \
        words[below * 512 + part / 8 * 32 + (part % 8 ^ of_warp / 4) * 4] = \
            (u32)pair[0] | (u32)pair[1] << 16; \
      } \
    } \
    SYNCHRONIZE; \
    if (is_mine) { \
      const IX column = half_across + of_warp % 16 * 8; \
      UNROLL \
      for (i32 e = 0; e < 8; ++e) { \
        const i32 row = e * 2 + of_warp / 16; \
        if (half_down + row < (IX)m && column < (IX)n) { \
          *(GLOBAL uint4*)(y + (i64)(half_down + row) * n + column) = \
              rows[row * 16 + (of_warp % 16 ^ row % 8)]; \
        } \
      } \
    } \
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
      SIGNAL_INIT(empty + stage * 8, IN_TURNS ? 2 : 4);
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
        const u32 own_across = tile / pairs * COLUMNS + of_pair * (COLUMNS / 2);
        for (u32 step = 0; step < steps; ++step) {
          const u32 to = base + stage * STAGE_BYTES, signal = full + stage * 8;
          if (use > 0) SIGNAL_WAIT(empty + stage * 8, (use - 1) & 1);
          SIGNAL_EXPECT(signal, STAGE_BYTES);
          COPY_TILE(to, a_map, step * STEP, down, signal);
          UNROLL
          for (u32 block = 0; block < COLUMNS / 128; ++block) {
            const u32 at = own_across + block * 64;
            COPY_TILE_TO_PAIR(to + A_BYTES + of_pair * OWN_BYTES + block * BLOCK_BYTES, b_map,
                              B_TURNED ? at : step * STEP, B_TURNED ? step * STEP : at, signal);
          }
          if (++stage == STAGES) {
            stage = 0;
            ++use;
          }
        }
      }
    }
  } else {
    MORE_REGISTERS();
    const u32 own = (u32)lane / 128, of_each = IN_TURNS ? 2 : 1;
    if (IN_TURNS && own == 1) GIVE_TURN(0);
    u32 steps_before = IN_TURNS ? own * steps : 0;
    for (u32 tile = first_tile + (IN_TURNS ? own * apart : 0); tile < tiles; tile += of_each * apart) {
      const i64 down = (i64)(tile % pairs * 2 + of_pair) * ROWS, across = (i64)(tile / pairs) * COLUMNS;
      u32 stage = steps_before % STAGES, phase = steps_before / STAGES & 1, last = 0;
      UNROLL
      for (i32 s = 0; s < SUMS; ++s) sums[s] = 0.0f;
      if (IN_TURNS) AWAIT_TURN(own);
      SUMS_STAY(sums, SUMS);
      for (u32 step = 0; step < steps; ++step) {
        SIGNAL_WAIT(full + stage * 8, phase);
        PRODUCTS_BEGIN();
        MULTIPLY_STAGE(base + stage * STAGE_BYTES, own)
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
      if (IN_TURNS) GIVE_TURN(1 - own);
      PRODUCTS_WAIT(0);
      if (lane % 128 < 2) SIGNAL_PAIR(empty + last * 8, (u32)lane % 128);
      SUMS_STAY(sums, SUMS);
      FINISH_TILE(own, true, WARP_BARRIER())
      steps_before += of_each * steps;
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
    if (lane < MULTIPLYING) MULTIPLY_STAGE(0u, lane / 128)
  }
  FINISH_TILE(lane < MULTIPLYING ? lane / 128 : 0, lane < MULTIPLYING, BARRIER())
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

int64_t WarpgroupColumns(WarpgroupSchedule schedule) {
  return schedule == WarpgroupSchedule::kInTurns ? 128 : 256;
}

bool HasRoomForWarpgroups(const GpuProperties& properties) {
  return properties.room_bytes >=
         std::max(RoomBytes(WarpgroupSchedule::kInTurns), RoomBytes(WarpgroupSchedule::kTogether));
}

LaunchGrid WarpgroupGrid(const GpuProperties& properties, Dialect dialect,
                         const ProductSizes& sizes, WarpgroupSchedule schedule) {
  const int64_t columns = WarpgroupColumns(schedule);
  const int64_t down = (sizes.m + 2 * kWarpgroupRows - 1) / (2 * kWarpgroupRows);
  const int64_t across = (sizes.n + columns - 1) / columns;
  const int64_t at_once = dialect == Dialect::kCuda ? std::max(1, properties.multiprocessors / 2)
                                                    : std::numeric_limits<int64_t>::max();
  LaunchGrid grid;
  grid.groups[0] = static_cast<uint32_t>(2 * std::min(down * across, at_once));
  grid.lanes[0] = kLanes;
  grid.room_bytes = RoomBytes(schedule);
  return grid;
}

Result<WarpgroupMaps> MapsOf(const GpuDevice& device, bool b_rows, const ProductSizes& sizes,
                             const void* a, const void* b) {
  constexpr int64_t kOfB = 64;
  WarpgroupMaps maps;
  ONNXD_ASSIGN_OR_RETURN(maps.a, device.MakeTileMap(a, sizes.m, sizes.k, kWarpgroupRows));
  const int64_t rows = b_rows ? sizes.n : sizes.k, columns = b_rows ? sizes.k : sizes.n;
  ONNXD_ASSIGN_OR_RETURN(maps.b, device.MakeTileMap(b, rows, columns, kOfB));
  return maps;
}

std::string WarpgroupProductSource(const ProductText& text, bool wide, WarpgroupSchedule schedule) {
  const bool turned = !text.b_rows, in_turns = schedule == WarpgroupSchedule::kInTurns;
  const int64_t columns = WarpgroupColumns(schedule);
  return StrCat(Define("IX", wide ? "i64" : "i32"), DefineType("A", text.a),
                DefineType("B", text.b), DefineType("Y", text.y), Define("ACC", text.accumulator),
                Define("STAGES", Stages(schedule)), Define("ROOM_BYTES", RoomBytes(schedule)),
                Define("IN_TURNS", in_turns ? 1 : 0), Define("COLUMNS", columns),
                Define("B_TURNED", turned ? 1 : 0), Define("PARAMETERS", text.parameters),
                Define("SETUP", text.setup), Define("RESULT", text.result),
                Define("FINISHED", text.finished), text.functions,
                WarpgroupMultiply("multiply", text.a, columns, turned), kSource);
}

}  // namespace onnxd
