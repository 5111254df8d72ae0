#include "runtime/providers/gpu/split_attention.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

constexpr int64_t kMostQueries = 4, kMostWidth = 256;

// Grids [groups, parts] and [groups], of 256 lanes. DOT_LANES lanes share the product of the query
// with a key; then VALUE_HEAD lanes have a column of the values each, for a part of the keys.
// Results of parts in scratch: VALUE_HEAD sums, the largest score, the sum of shares.
constexpr std::string_view kSource = R"(
#define QUERIES 1
#define DOT_LANES 16
#define DOT_STEPS ((HEAD + DOT_LANES - 1) / DOT_LANES)
#define TEAMS (256 / VALUE_HEAD)
#define PART_WORDS (VALUE_HEAD + 2)
#define SIZES i64 queries, i64 keys, f32 scale, Dims batch, Dims q_strides, Dims k_strides, \
      Dims v_strides, Dims y_strides, i64 blocks, i64 part_keys, i64 parts, GLOBAL f32* found

FUNCTION f32 larger_of(f32 a, f32 b) { return b > a || b != b ? b : a; }
// From which shares are counted: differences of infinities would not be numbers.
FUNCTION f32 base_of(f32 largest) { return largest == -INFINITY_F32 ? 0.0f : largest; }

KERNEL split_attention(GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v, GLOBAL X* y,
                       PARAMETERS SIZES) {
  LOCAL f32 partial[MOST * (DOT_LANES + 1)];
  LOCAL f32 scores[MOST];
  LOCAL f32 maxima[DOT_LANES];
  LOCAL f32 totals[TEAMS];
  const i32 lane = LANE(0);
  FIND_HEAD
  SETUP
  const i64 query = down;
  i64 first = GROUP(1) * part_keys, end = first + part_keys;
  const i64 first_key = FIRST_KEY, end_key = END_KEY;
  if (end > keys) end = keys;
  if (end > end_key) end = end_key;
  if (first < first_key) first = first_key;
  const i32 count = end > first ? (i32)(end - first) : 0;

  const i32 slice = lane % DOT_LANES;
  f32 of_query[DOT_STEPS];
  UNROLL
  for (i32 i = 0; i < DOT_STEPS; ++i) {
    const i32 d = slice + i * DOT_LANES;
    of_query[i] = d < HEAD ? X_GET(q, q_at + query * q_row + d) * scale : 0.0f;
  }
  UNROLL_BY_8
  for (i32 at = lane / DOT_LANES; at < count; at += 256 / DOT_LANES) {
    const i64 from = k_at + (first + at) * k_row;
    f32 sum = 0.0f;
    UNROLL
    for (i32 i = 0; i < DOT_STEPS; ++i) {
      const i32 d = slice + i * DOT_LANES;
      if (d < HEAD) sum += of_query[i] * X_GET(k, from + d);
    }
    partial[at * (DOT_LANES + 1) + slice] = sum;
  }
  BARRIER();
  for (i32 at = lane; at < count; at += 256) {
    const i64 key = first + at;
    f32 s = 0.0f;
    UNROLL
    for (i32 i = 0; i < DOT_LANES; ++i) s += partial[at * (DOT_LANES + 1) + i];
    scores[at] = SCORE;
  }
  BARRIER();
  if (lane < DOT_LANES) {
    f32 largest = -INFINITY_F32;
    for (i32 at = lane; at < count; at += DOT_LANES) largest = larger_of(largest, scores[at]);
    maxima[lane] = largest;
  }
  BARRIER();
  f32 largest = -INFINITY_F32;
  UNROLL
  for (i32 i = 0; i < DOT_LANES; ++i) largest = larger_of(largest, maxima[i]);
  const f32 base = base_of(largest);
  for (i32 at = lane; at < count; at += 256) scores[at] = exp(scores[at] - base);
  BARRIER();

  const i32 team = lane / VALUE_HEAD, column = lane % VALUE_HEAD;
  if (team < TEAMS) {
    f32 sum = 0.0f, total = 0.0f;
    UNROLL_BY_8
    for (i32 at = team; at < count; at += TEAMS) {
      const f32 share = scores[at];
      total += share;
      sum += share * X_GET(v, v_at + (first + at) * v_row + column);
    }
    partial[team * VALUE_HEAD + column] = sum;
    if (column == 0) totals[team] = total;
  }
  BARRIER();
  if (lane >= VALUE_HEAD) return;
  f32 sum = 0.0f, total = 0.0f;
  UNROLL
  for (i32 i = 0; i < TEAMS; ++i) {
    sum += partial[i * VALUE_HEAD + lane];
    total += totals[i];
  }
#if IS_WHOLE
  const f32 extra = EXTRA, now = larger_of(extra, largest), to = base_of(now);
  const f32 kept = exp(base - to);
  total = total * kept + (extra == -INFINITY_F32 ? 0.0f : exp(extra - to));
  const f32 result = (ZEROS) ? 0.0f : sum * kept / total;
  X_PUT(y, y_at + query * y_row + lane, result);
#else
  GLOBAL f32* of_part = found + (GROUP(0) * parts + GROUP(1)) * PART_WORDS;
  of_part[lane] = sum;
  if (lane == 0) {
    of_part[VALUE_HEAD] = largest;
    of_part[VALUE_HEAD + 1] = total;
  }
#endif
}

#if !IS_WHOLE
KERNEL join_attention(GLOBAL const X* q, GLOBAL const X* k, GLOBAL const X* v, GLOBAL X* y,
                      PARAMETERS SIZES) {
  FIND_HEAD
  SETUP
  const i64 query = down;
  GLOBAL const f32* of_parts = found + GROUP(0) * parts * PART_WORDS;
  const f32 extra = EXTRA;
  f32 largest = extra;
  for (i64 part = 0; part < parts; ++part) {
    largest = larger_of(largest, of_parts[part * PART_WORDS + VALUE_HEAD]);
  }
  const f32 base = base_of(largest);
  const i32 column = LANE(0);
  f32 total = extra == -INFINITY_F32 ? 0.0f : exp(extra - base), sum = 0.0f;
  UNROLL_BY_8
  for (i64 part = 0; part < parts; ++part) {
    GLOBAL const f32* of_part = of_parts + part * PART_WORDS;
    const f32 kept = exp(of_part[VALUE_HEAD] - base);
    total += of_part[VALUE_HEAD + 1] * kept;
    if (column < VALUE_HEAD) sum += of_part[column] * kept;
  }
  if (column >= VALUE_HEAD) return;
  const f32 result = (ZEROS) ? 0.0f : sum / total;
  X_PUT(y, y_at + query * y_row + column, result);
}
#endif
)";

// Nothing where there would be too many parts to join.
bool PlanParts(const FlashSizes& sizes, int64_t most, SplitAttentionPlan& plan) {
  constexpr int64_t kMostGroups = 65535;  // of all parts: CUDA's limit of a second axis
  plan.most = most;
  plan.parts = std::max<int64_t>((sizes.keys + most - 1) / most, 1);
  plan.keys = (sizes.keys + plan.parts - 1) / plan.parts;
  plan.groups = sizes.queries;
  for (const int64_t extent : sizes.batch) plan.groups *= extent;
  if (plan.parts > 1 && plan.groups * plan.parts > kMostGroups) return false;
  plan.scratch_bytes =
      plan.parts == 1 ? 0
                      : static_cast<size_t>(4 * plan.groups * plan.parts * (sizes.value_head + 2));
  return true;
}

}  // namespace

bool IsForSplitAttention(const FlashSizes& sizes) {
  return sizes.queries <= kMostQueries && sizes.head <= kMostWidth &&
         sizes.value_head <= kMostWidth && sizes.value_head > 0 &&
         sizes.batch.size() < kMostDeviceDims;
}

std::vector<SplitAttentionPlan> SplitAttentionPlans(const FlashSizes& sizes, int multiprocessors) {
  constexpr int64_t kAtOnce = 4;  // groups on a multiprocessor
  std::vector<SplitAttentionPlan> plans;
  size_t enough = 0;  // of them
  for (const int64_t most : {256, 128, 64, 32}) {
    SplitAttentionPlan plan;
    const bool is_larger_than_needed = most > 32 && sizes.keys <= most / 2;
    if (is_larger_than_needed || !PlanParts(sizes, most, plan)) continue;
    plans.insert(plans.begin() + static_cast<std::ptrdiff_t>(enough), plan);
    if (plan.groups * plan.parts >= kAtOnce * multiprocessors) ++enough;
  }
  return plans;
}

std::string SplitAttentionSource(const AttentionText& text, const FlashSizes& sizes,
                                 const SplitAttentionPlan& plan) {
  return StrCat(Define("MOST", plan.most), Define("IS_WHOLE", plan.parts == 1 ? 1 : 0),
                AttentionDefinitions(text, sizes), kSource);
}

Result<FlashAttention> MakeSplitAttention(GpuDevice& device, const std::string& source,
                                          const FlashSizes& sizes, const SplitAttentionPlan& plan) {
  ONNXD_ASSIGN_OR_RETURN(const AttentionArguments arguments, AttentionArgumentsOf(sizes, 1));
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram split, device.FindKernel(source, "split_attention"));
  GpuProgram join;
  if (plan.parts > 1) {
    ONNXD_ASSIGN_OR_RETURN(join, device.FindKernel(source, "join_attention"));
  }
  LaunchGrid of_join, of_split;
  of_join.groups[0] = static_cast<uint32_t>(plan.groups);
  of_join.lanes[0] = 256;
  of_split = of_join;
  of_split.groups[1] = static_cast<uint32_t>(plan.parts);
  FlashAttention attention;
  attention.scratch_bytes = plan.scratch_bytes;
  attention.run = [=](const KernelContext& context, const AttentionPointers& pointers,
                      FunctionRef<void(LaunchArguments&)> fill) -> Status {
    LaunchArguments all = arguments.All(pointers, fill);
    all.Value(plan.keys).Value(plan.parts).Pointer(pointers.scratch);
    ONNXD_RETURN_IF_ERROR(Launch(context, split, of_split, all));
    return plan.parts == 1 ? Status::Ok() : Launch(context, join, of_join, all);
  };
  return attention;
}

}  // namespace onnxd
