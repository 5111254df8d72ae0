// onnxd::FusedAttention (ops/fused_attention.h), in float, or with operands in bfloat16 whose
// products and softmax are floats. Queries are taken in blocks, so that their scores stay in the
// cache; a single one by itself.
#include "runtime/ops/fused_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/one_query.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// Of a block, and what math::Simd computes together.
struct Rows {
  int64_t most, tile;
};
constexpr Rows kFloatRows = {60, 12}, kBfloat16Rows = {64, 32};

using Operand = FusedAttentionPlan::Operand;

struct Plan {
  FusedAttentionPlan sizes;
  StridedLoop<Operand::kOperands> heads;
  int64_t block, packed_keys, packed_values, chunk_floats, chunks;
  int64_t score_row = 0;  // of floats: whole registers, which are read as they were written
  // Of bfloat16, in elements: rows of queries and of weights with the zeros behind them.
  int64_t query_row = 0, weight_row = 0;
};

// Queries of a block: as many blocks as need be, of about the same size.
int64_t BlockOf(int64_t queries, const Rows& rows) {
  const int64_t blocks = (queries + rows.most - 1) / rows.most;
  if (blocks == 1) return queries;
  const int64_t even = (queries + blocks - 1) / blocks;
  return (even + rows.tile - 1) / rows.tile * rows.tile;
}

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

template <typename T>
struct Head {
  const T *query, *key, *value;
  std::array<const float*, 2> masks;
  T* out;
};

// Rows of scores, one behind the other or with room between.
struct Scores {
  float* first;
  int64_t rows, keys, stride;
};

// Adds rows of a mask to the scores, all at once where they lie like these.
void AddMask(const FusedAttentionPlan::Mask& mask, const float* values, const Scores& scores) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t keys = scores.keys;
  if (mask.column_stride == 1 && mask.row_stride == keys && scores.stride == keys) {
    return simd.binary(math::Binary::kAdd, scores.first, values, scores.first, scores.rows * keys,
                       1, 1);
  }
  for (int64_t row = 0; row < scores.rows; ++row) {
    float* line = scores.first + row * scores.stride;
    simd.binary(math::Binary::kAdd, line, values + row * mask.row_stride, line, keys, 1,
                mask.column_stride);
  }
}

// softmax of each row of `scores`, the first of which is that of query `first`, but for the
// division by the sums.
void Weigh(const FusedAttentionPlan& sizes, const std::array<const float*, 2>& masks, int64_t first,
           const Scores& scores, float* sums) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t keys = sizes.keys;
  float scale = sizes.scale;
  for (size_t i = 0; i < sizes.masks.size(); ++i) {
    const FusedAttentionPlan::Mask& mask = sizes.masks[i];
    if (!mask.given) continue;
    for (int64_t row = 0; scale != 1.0f && row < scores.rows; ++row) {
      float* line = scores.first + row * scores.stride;
      simd.affine(line, line, keys, scale, 0.0f);
    }
    scale = 1.0f;
    AddMask(mask, masks[i] + first * mask.row_stride, scores);
  }
  for (int64_t row = 0; row < scores.rows; ++row) {
    float* line = scores.first + row * scores.stride;
    sums[row] = simd.exp_sum(line, line, keys, simd.max(line, keys), scale);
  }
}

// Divides a row by the sum of its weights.
void Divide(const FusedAttentionPlan& sizes, float* line, float sum) {
  if (sizes.nan_to_zero && std::isnan(sum)) {
    std::fill_n(line, sizes.value_width, 0.0f);
  } else {
    math::CurrentSimd().affine(line, line, sizes.value_width, 1.0f / sum, 0.0f);
  }
}

// As a text is written, token after token: keys and values are read once, where they lie.
void RunOneQuery(const FusedAttentionPlan& sizes, const Head<float>& head, float* scores) {
  const math::Simd& simd = math::CurrentSimd();
  MultiplyQuery(head.query, head.key, sizes.key_stride, sizes.keys, sizes.width, scores);
  float sum;
  Weigh(sizes, head.masks, 0, {scores, 1, sizes.keys, sizes.keys}, &sum);
  simd.weigh_rows(head.value, sizes.value_stride, sizes.keys, scores, head.out, sizes.value_width);
  Divide(sizes, head.out, sum);
}

void RunHead(const Plan& plan, const Head<float>& head, float* scratch) {
  const math::Simd& simd = math::CurrentSimd();
  const FusedAttentionPlan& sizes = plan.sizes;
  if (sizes.queries == 1) return RunOneQuery(sizes, head, scratch);
  const int64_t keys = sizes.keys, width = sizes.value_width;
  float* packed_values = scratch + plan.packed_keys;
  float* sums = packed_values + plan.packed_values;
  float* scores = sums + Aligned(plan.block);
  simd.pack_b(head.key, sizes.key_stride, true, sizes.width, keys, scratch);
  simd.pack_b(head.value, sizes.value_stride, false, keys, width, packed_values);
  for (int64_t first = 0; first < sizes.queries; first += plan.block) {
    const int64_t rows = std::min(plan.block, sizes.queries - first);
    simd.gemm({rows, keys, sizes.width, head.query + first * sizes.query_stride, sizes.query_stride,
               scratch, scores, plan.score_row});
    Weigh(sizes, head.masks, first, {scores, rows, keys, plan.score_row}, sums);
    float* out = head.out + first * sizes.out_stride;
    simd.gemm({rows, width, keys, scores, plan.score_row, packed_values, out, sizes.out_stride});
    for (int64_t row = 0; row < rows; ++row) Divide(sizes, out + row * sizes.out_stride, sums[row]);
  }
}

// Where the pieces of a chunk's scratch memory are.
struct Bfloat16Scratch {
  uint16_t *keys, *values, *queries, *weights;
  float *sums, *scores, *out;

  Bfloat16Scratch(const Plan& plan, float* scratch)
      : keys(reinterpret_cast<uint16_t*>(scratch)),
        values(keys + 2 * plan.packed_keys),
        queries(values + 2 * plan.packed_values),
        weights(queries + plan.block * plan.query_row),
        sums(reinterpret_cast<float*>(weights + plan.block * plan.weight_row)),
        scores(sums + Aligned(plan.block)),
        out(scores + Aligned(plan.block * plan.sizes.keys)) {}

  static int64_t Floats(const Plan& plan) {
    const int64_t halves = plan.block * (plan.query_row + plan.weight_row);
    return plan.packed_keys + plan.packed_values + halves / 2 + Aligned(plan.block) +
           Aligned(plan.block * plan.sizes.keys) + Aligned(plan.block * plan.sizes.value_width);
  }
};

// Rows of `width` elements with zeros behind them, as products want their left side.
void CopyRows(const uint16_t* from, int64_t stride, int64_t rows, int64_t width, int64_t padded,
              uint16_t* to) {
  for (int64_t row = 0; row < rows; ++row, from += stride, to += padded) {
    std::copy_n(from, width, to);
    std::fill_n(to + width, padded - width, uint16_t{0});
  }
}

void RunHead(const Plan& plan, const Head<uint16_t>& head, float* scratch) {
  const math::Simd& simd = math::CurrentSimd();
  const FusedAttentionPlan& sizes = plan.sizes;
  const int64_t keys = sizes.keys, width = sizes.value_width;
  const Bfloat16Scratch s(plan, scratch);
  const auto panels = [&](int64_t n) { return (n + simd.gemm_width - 1) / simd.gemm_width; };
  simd.pack_bfloat16(head.key, sizes.key_stride, true, sizes.width, keys, s.keys);
  simd.pack_bfloat16(head.value, sizes.value_stride, false, keys, width, s.values);
  for (int64_t first = 0; first < sizes.queries; first += plan.block) {
    const int64_t rows = std::min(plan.block, sizes.queries - first);
    CopyRows(head.query + first * sizes.query_stride, sizes.query_stride, rows, sizes.width,
             plan.query_row, s.queries);
    simd.bfloat16_gemm(
        {rows, keys, sizes.width, s.queries, nullptr, plan.query_row, s.keys, nullptr,
         math::PackedBfloat16Size(simd, sizes.width, simd.gemm_width), s.scores, keys},
        0, panels(keys));
    Weigh(sizes, head.masks, first, {s.scores, rows, keys, keys}, s.sums);
    for (int64_t row = 0; row < rows; ++row) {
      uint16_t* line = s.weights + row * plan.weight_row;
      simd.narrow(s.scores + row * keys, line, nullptr, keys);
      std::fill_n(line + keys, plan.weight_row - keys, uint16_t{0});
    }
    simd.bfloat16_gemm({rows, width, keys, s.weights, nullptr, plan.weight_row, s.values, nullptr,
                        math::PackedBfloat16Size(simd, keys, simd.gemm_width), s.out, width},
                       0, panels(width));
    for (int64_t row = 0; row < rows; ++row) {
      float* line = s.out + row * width;
      Divide(sizes, line, s.sums[row]);
      simd.narrow(line, head.out + (first + row) * sizes.out_stride, nullptr, width);
    }
  }
}

template <typename T>
Status Compute(const Plan& plan, const KernelContext& k) {
  const int64_t heads = plan.heads.outer_count();
  k.pool().ParallelFor(plan.chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      plan.heads.ForOuter(heads * chunk / plan.chunks, heads * (chunk + 1) / plan.chunks,
                          [&](const std::array<int64_t, Operand::kOperands>& at) {
                            const auto input = [&](size_t i) { return k.input<T>(i) + at[i]; };
                            const auto mask = [&](size_t i) {
                              const float* first = k.input<float>(i);
                              return first == nullptr ? nullptr : first + at[i];
                            };
                            const Head<T> head{input(Operand::kQuery),
                                               input(Operand::kKey),
                                               input(Operand::kValue),
                                               {mask(Operand::kMask), mask(Operand::kWindowMask)},
                                               k.output<T>(0) + at[Operand::kOut]};
                            RunHead(plan, head, k.scratch<float>() + chunk * plan.chunk_floats);
                          });
    }
  });
  return Status::Ok();
}

Result<Plan> MakePlan(const PrepareContext& context) {
  std::vector<AttentionInput> inputs;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    inputs.push_back(
        {context.HasInput(i) ? &context.InputShape(i) : nullptr, context.inputs[i].strides});
  }
  Plan plan{};
  ONNXD_ASSIGN_OR_RETURN(plan.sizes,
                         PlanFusedAttention(context.node, inputs, context.OutputShape(0)));
  const FusedAttentionPlan& sizes = plan.sizes;
  plan.heads.dims = sizes.batch;
  plan.heads.strides = sizes.batch_strides;
  plan.heads.dims.push_back(1);  // the innermost dimension is the body's
  for (auto& strides : plan.heads.strides) strides.push_back(0);
  const math::Simd& simd = math::CurrentSimd();
  if (context.inputs[0].type == DataType::kBfloat16) {
    const auto padded = [&](int64_t n) { return math::PaddedBytes(simd, 2 * n) / 2; };
    plan.block = BlockOf(sizes.queries, kBfloat16Rows);
    plan.query_row = (padded(sizes.width) + 31) / 32 * 32;
    plan.weight_row = (padded(sizes.keys) + 31) / 32 * 32;
    plan.packed_keys = Aligned(math::PackedBfloat16Size(simd, sizes.width, sizes.keys) / 2);
    plan.packed_values = Aligned(math::PackedBfloat16Size(simd, sizes.keys, sizes.value_width) / 2);
    plan.chunk_floats = Bfloat16Scratch::Floats(plan);
  } else if (sizes.queries == 1) {
    plan.chunk_floats = Aligned(sizes.keys);
  } else {
    plan.block = BlockOf(sizes.queries, kFloatRows);
    plan.packed_keys = Aligned(math::PackedBSize(simd, sizes.width, sizes.keys));
    plan.packed_values = Aligned(math::PackedBSize(simd, sizes.keys, sizes.value_width));
    plan.score_row = Aligned(sizes.keys);
    plan.chunk_floats =
        plan.packed_keys + plan.packed_values + Aligned(plan.block) + plan.block * plan.score_row;
  }
  plan.chunks = std::clamp<int64_t>(plan.heads.outer_count(), 1, context.threads);
  return plan;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeFusedAttention(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  const bool narrow = type == DataType::kBfloat16 && math::CurrentSimd().fast_bfloat16;
  if (type != DataType::kFloat && !narrow) {
    return DeclineType(info.node.op_type, type);
  }
  for (const size_t mask : {size_t{Operand::kMask}, size_t{Operand::kWindowMask}}) {
    if (info.node.input(mask) != kNoValue && info.InputType(mask) != DataType::kFloat) {
      return DeclineType("a mask", info.InputType(mask));
    }
  }
  const auto prepare = [type](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    if (context.OutputShape(0).ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    ONNXD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(context));
    prepared.scratch_bytes = static_cast<size_t>(plan.chunks * plan.chunk_floats) * sizeof(float);
    prepared.compute = [plan, type](const KernelContext& k) {
      return type == DataType::kFloat ? Compute<float>(plan, k) : Compute<uint16_t>(plan, k);
    };
    return prepared;
  };
  return MakeKernel(prepare, {Operand::kQuery, Operand::kKey, Operand::kValue});
}

}  // namespace onnxd
