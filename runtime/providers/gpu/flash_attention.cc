#include "runtime/providers/gpu/flash_attention.h"

#include <bit>
#include <optional>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/matrix_attention.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/split_attention.h"
#include "runtime/providers/gpu/tactics.h"
#include "runtime/providers/gpu/warpgroup_attention.h"

namespace onnxd {
namespace {

// FIND_HEAD, of all kernels: the group's first query (down), its head[], where that begins in each
// operand (q_at, ...), and how far its rows are apart (q_row, ...).
constexpr std::string_view kFindHead = R"(
#define FIND_HEAD \
  const i64 down = (i64)((u32)GROUP(0) % (u32)blocks) * QUERIES; \
  u32 rest = (u32)GROUP(0) / (u32)blocks; \
  i64 head[MAX_RANK]; \
  i64 q_at = 0, k_at = 0, v_at = 0, y_at = 0; \
  UNROLL \
  for (i32 axis = BATCH_RANK - 1; axis >= 0; --axis) { \
    const i64 at = rest % (u32)batch.at[axis]; \
    rest /= (u32)batch.at[axis]; \
    head[axis] = at; \
    q_at += at * q_strides.at[axis]; \
    k_at += at * k_strides.at[axis]; \
    v_at += at * v_strides.at[axis]; \
    y_at += at * y_strides.at[axis]; \
  } \
  const i64 q_row = q_strides.at[MAX_RANK - 1], k_row = k_strides.at[MAX_RANK - 1]; \
  const i64 v_row = v_strides.at[MAX_RANK - 1], y_row = y_strides.at[MAX_RANK - 1];
)";

// A group of 256 lanes takes QUERIES queries of a head, which WIDE lanes share each.
constexpr std::string_view kSource = R"(
#define WIDE (256 / QUERIES)
#define PER_LANE ((VALUE_HEAD + WIDE - 1) / WIDE)

KERNEL flash_attention(GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v, GLOBAL X* y,
                       PARAMETERS i64 queries, i64 keys, f32 scale, Dims batch, Dims q_strides,
                       Dims k_strides, Dims v_strides, Dims y_strides, i64 blocks) {
  LOCAL f32 query_tile[QUERIES * (HEAD + 1)];
  LOCAL f32 key_tile[KEYS * (HEAD + 1)];
  LOCAL f32 value_tile[KEYS * VALUE_HEAD];
  LOCAL f32 scores[QUERIES * (KEYS + 1)];
  const i32 lane = LANE(0), row = lane / WIDE, column = lane % WIDE;
  FIND_HEAD
  SETUP
  for (i32 e = lane; e < QUERIES * HEAD; e += 256) {
    const i32 r = e / HEAD, d = e % HEAD;
    query_tile[r * (HEAD + 1) + d] =
        down + r < queries ? X_GET(q, q_at + (down + r) * q_row + d) * scale : 0.0f;
  }
  const i64 query = down + row;
  const f32 extra = EXTRA;
  f32 largest = extra, total = extra == -INFINITY_F32 ? 0.0f : 1.0f;
  f32 sums[PER_LANE];
  for (i32 e = 0; e < PER_LANE; ++e) sums[e] = 0.0f;
  const i64 first_key = FIRST_KEY, end_key = END_KEY;
  for (i64 first = first_key / KEYS * KEYS; first < end_key; first += KEYS) {
    BARRIER();
    for (i32 e = lane; e < KEYS * HEAD; e += 256) {
      const i32 r = e / HEAD, d = e % HEAD;
      key_tile[r * (HEAD + 1) + d] = first + r < keys ? X_GET(k, k_at + (first + r) * k_row + d) : 0.0f;
    }
    for (i32 e = lane; e < KEYS * VALUE_HEAD; e += 256) {
      const i32 r = e / VALUE_HEAD, d = e % VALUE_HEAD;
      value_tile[e] = first + r < keys ? X_GET(v, v_at + (first + r) * v_row + d) : 0.0f;
    }
    BARRIER();
    for (i32 at = column; at < KEYS; at += WIDE) {
      const i64 key = first + at;
      f32 s = 0.0f;
      for (i32 d = 0; d < HEAD; ++d) {
        s += query_tile[row * (HEAD + 1) + d] * key_tile[at * (HEAD + 1) + d];
      }
      scores[row * (KEYS + 1) + at] = key < keys && query < queries ? (SCORE) : -INFINITY_F32;
    }
    BARRIER();
    f32 now = largest;
    for (i32 at = 0; at < KEYS; ++at) {
      const f32 s = scores[row * (KEYS + 1) + at];
      now = s > now || s != s ? s : now;
    }
    // Nothing is seen yet: differences of infinities would not be numbers.
    const f32 base = now == -INFINITY_F32 ? 0.0f : now;
    const f32 kept = exp(largest - base);
    total *= kept;
    for (i32 e = 0; e < PER_LANE; ++e) sums[e] *= kept;
    for (i32 at = 0; at < KEYS; ++at) {
      const f32 share = exp(scores[row * (KEYS + 1) + at] - base);
      total += share;
      for (i32 e = 0; e < PER_LANE; ++e) {
        const i32 d = column + e * WIDE;
        if (d < VALUE_HEAD) sums[e] += share * value_tile[at * VALUE_HEAD + d];
      }
    }
    largest = now;
  }
  if (query >= queries) return;
  for (i32 e = 0; e < PER_LANE; ++e) {
    const i32 d = column + e * WIDE;
    if (d >= VALUE_HEAD) continue;
    const f32 result = (ZEROS) ? 0.0f : sums[e] / total;
    X_PUT(y, y_at + query * y_row + d, result);
  }
}
)";

struct Tile {
  int64_t queries, keys;
};

int64_t LocalBytes(const Tile& tile, int64_t head, int64_t value_head) {
  return 4 * (tile.queries * (head + 1) + tile.keys * (head + 1) + tile.keys * value_head +
              tile.queries * (tile.keys + 1));
}

// Those that the device has room for, the best guess first: few queries would leave lanes without
// work, so that more of them share one (where they are not for split_attention.h).
std::vector<Tile> TilesFor(const GpuDevice& device, int64_t queries, int64_t head,
                           int64_t value_head) {
  constexpr int64_t kLocalBytes = 48 << 10;  // what every device of today has
  const int64_t room = std::min(kLocalBytes, device.properties().local_bytes);
  std::vector<Tile> tiles = {{16, 32}, {16, 16}, {8, 16}, {4, 8}};
  if (queries <= 4) tiles = {{4, 32}, {4, 16}, {4, 8}};
  if (queries == 1) tiles = {{1, 64}, {1, 32}, {4, 32}, {4, 8}};
  std::erase_if(tiles, [&](const Tile& tile) { return LocalBytes(tile, head, value_head) > room; });
  return tiles;
}

Result<DeviceDims> StridesOf(const AttentionOperand& operand) {
  ONNXD_ASSIGN_OR_RETURN(DeviceDims dims, ToDeviceDims(operand.batch_strides));
  dims.values.back() = operand.row_stride;
  return dims;
}

std::string SourceOf(const AttentionText& text, const FlashSizes& sizes, const Tile& tile) {
  return StrCat(Define("QUERIES", tile.queries), Define("KEYS", tile.keys),
                AttentionDefinitions(text, sizes), kSource);
}

// A program of one of the kernels.
struct Way {
  std::string name, source, entry;
  int64_t queries;  // of a group
  uint32_t lanes;
  std::optional<SplitAttentionPlan> split;
  size_t room_bytes = 0;
};

void AddSplitWays(const GpuDevice& device, const AttentionText& text, const FlashSizes& sizes,
                  std::vector<Way>& ways) {
  const int multiprocessors = device.properties().multiprocessors;
  for (const SplitAttentionPlan& plan : SplitAttentionPlans(sizes, multiprocessors)) {
    ways.push_back({StrCat("split_attention ", plan.most), SplitAttentionSource(text, sizes, plan),
                    "split_attention", 1, 256, plan});
  }
}

// The best guess first.
Result<std::vector<Way>> WaysOf(const GpuDevice& device, const AttentionText& text,
                                const FlashSizes& sizes) {
  const GpuProperties& properties = device.properties();
  const bool fits = sizes.batch.size() < kMostDeviceDims;
  std::vector<Way> ways;
  const bool has_warpgroups =
      properties.has_warpgroup_units && properties.room_bytes >= WarpgroupRoomBytes(sizes);
  if (fits && has_warpgroups && IsForWarpgroups(text, sizes)) {
    ways.push_back({"warpgroup_attention",
                    WarpgroupAttentionSource(text, sizes),
                    "warpgroup_attention",
                    kWarpgroupQueries,
                    128,
                    {},
                    static_cast<size_t>(WarpgroupRoomBytes(sizes))});
  }
  if (fits && properties.has_matrix_units && IsForMatrixUnits(text, sizes)) {
    for (const auto& tile : MatrixAttentionTiles(sizes, properties.multiprocessors)) {
      ways.push_back({StrCat("matrix_attention ", tile.queries(), " ", tile.keys),
                      MatrixAttentionSource(text, sizes, tile),
                      "matrix_attention",
                      tile.queries(),
                      static_cast<uint32_t>(tile.warps * 32),
                      {}});
    }
    return ways;
  }
  if (IsForSplitAttention(sizes)) AddSplitWays(device, text, sizes, ways);
  const std::vector<Tile> tiles = TilesFor(device, sizes.queries, sizes.head, sizes.value_head);
  if (ways.empty() && (!fits || tiles.empty())) {
    return Unimplemented(
        StrCat("attention of heads as wide as ", sizes.head, " on ", sizes.batch.size(), " axes"));
  }
  for (const Tile& tile : tiles) {
    ways.push_back({StrCat("flash_attention ", tile.queries, " ", tile.keys),
                    SourceOf(text, sizes, tile),
                    "flash_attention",
                    tile.queries,
                    256,
                    {}});
  }
  return ways;
}

Result<FlashAttention> MakeWay(GpuDevice& device, const FlashSizes& flash, const Way& way) {
  if (way.split) return MakeSplitAttention(device, way.source, flash, *way.split);
  ONNXD_ASSIGN_OR_RETURN(const AttentionArguments sizes, AttentionArgumentsOf(flash, way.queries));
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(way.source, way.entry));
  int64_t groups = sizes.blocks;
  for (const int64_t extent : flash.batch) groups *= extent;
  LaunchGrid grid;
  grid.groups[0] = static_cast<uint32_t>(groups);
  grid.lanes[0] = way.lanes;
  grid.room_bytes = way.room_bytes;
  FlashAttention attention;
  attention.run = [=](const KernelContext& context, const AttentionPointers& pointers,
                      FunctionRef<void(LaunchArguments&)> fill) {
    return Launch(context, kernel, grid, sizes.All(pointers, fill));
  };
  return attention;
}

// All that the times of its ways depend on. With few queries these are keys to the next power of
// two: a decoder's cache grows by one each time, and is not worth a search each time.
TacticQuestion QuestionOf(const Way& way, const FlashSizes& sizes) {
  const bool grows = way.split.has_value();
  const auto keys = static_cast<uint64_t>(sizes.keys);
  TacticQuestion question{way.source, sizes.batch};
  question.sizes.push_back(sizes.queries);
  question.sizes.push_back(grows ? static_cast<int64_t>(std::bit_ceil(keys)) : sizes.keys);
  for (const AttentionOperand* operand : {&sizes.q, &sizes.k, &sizes.v, &sizes.y}) {
    question.sizes.push_back(operand->row_stride);
    if (grows) continue;
    for (const int64_t stride : operand->batch_strides) question.sizes.push_back(stride);
  }
  return question;
}

}  // namespace

std::string AttentionDefinitions(const AttentionText& text, const FlashSizes& sizes) {
  return StrCat(DefineType("X", text.type), Define("HEAD", sizes.head),
                Define("VALUE_HEAD", sizes.value_head),
                Define("BATCH_RANK", static_cast<int64_t>(sizes.batch.size())),
                Define("PARAMETERS", text.parameters), Define("SETUP", text.setup),
                Define("SCORE", text.bias_row.empty()
                                    ? text.score
                                    : StrCat(text.score, " + X_GET((", text.bias_row, "), key)")),
                Define("EXTRA", text.extra), Define("FIRST_KEY", text.first_key),
                Define("END_KEY", text.end_key), Define("ZEROS", text.zeros), text.functions,
                kFindHead);
}

LaunchArguments AttentionArguments::All(const AttentionPointers& pointers,
                                        FunctionRef<void(LaunchArguments&)> fill) const {
  LaunchArguments all;
  all.Pointer(pointers.q).Pointer(pointers.k).Pointer(pointers.v).Pointer(pointers.y);
  fill(all);
  all.Value(queries).Value(keys).Value(scale).Value(batch).Value(q_strides).Value(k_strides);
  all.Value(v_strides).Value(y_strides).Value(blocks);
  return all;
}

Result<AttentionArguments> AttentionArgumentsOf(const FlashSizes& sizes, int64_t of_group) {
  AttentionArguments of{};
  of.queries = sizes.queries;
  of.keys = sizes.keys;
  of.scale = sizes.scale;
  ONNXD_ASSIGN_OR_RETURN(of.batch, ToDeviceDims(sizes.batch));
  ONNXD_ASSIGN_OR_RETURN(of.q_strides, StridesOf(sizes.q));
  ONNXD_ASSIGN_OR_RETURN(of.k_strides, StridesOf(sizes.k));
  ONNXD_ASSIGN_OR_RETURN(of.v_strides, StridesOf(sizes.v));
  ONNXD_ASSIGN_OR_RETURN(of.y_strides, StridesOf(sizes.y));
  of.blocks = (sizes.queries + of_group - 1) / of_group;
  return of;
}

bool FitsFlashAttention(const GpuDevice& device, int64_t head, int64_t value_head) {
  return !TilesFor(device, 16, head, value_head).empty();
}

Result<FlashAttention> MakeFlashAttention(GpuDevice& device, const AttentionText& text,
                                          const FlashSizes& sizes) {
  ONNXD_ASSIGN_OR_RETURN(const std::vector<Way> ways, WaysOf(device, text, sizes));
  return MakeWay(device, sizes, ways[0]);
}

Result<PreparedKernel> PrepareFlashAttention(
    GpuDevice& device, const PrepareContext& context, const AttentionText& text,
    const FlashSizes& sizes, const std::function<PreparedKernel(const FlashAttention&)>& make) {
  ONNXD_ASSIGN_OR_RETURN(const std::vector<Way> ways, WaysOf(device, text, sizes));
  std::vector<Tactic> tactics;
  for (const Way& way : ways) {
    tactics.push_back({way.name, [&]() -> Result<PreparedKernel> {
                         ONNXD_ASSIGN_OR_RETURN(const FlashAttention run,
                                                MakeWay(device, sizes, way));
                         return make(run);
                       }});
  }
  return PrepareFastest(device, context, QuestionOf(ways[0], sizes), tactics);
}

}  // namespace onnxd
