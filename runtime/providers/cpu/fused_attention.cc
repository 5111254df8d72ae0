// onnxd::FusedAttention (ops/fused_attention.h), in float. Queries are taken in blocks, so that
// their scores stay in the cache.
#include "runtime/ops/fused_attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kMostQueries = 60;  // of a block
constexpr int64_t kRowsOfTile = 12;   // that math::Simd::gemm computes together

using Operand = FusedAttentionPlan::Operand;

struct Plan {
  FusedAttentionPlan sizes;
  StridedLoop<Operand::kOperands> heads;
  int64_t block, packed_keys, packed_values, chunk_floats, chunks;
};

// Queries of a block: as many blocks as need be, of about the same size.
int64_t BlockOf(int64_t queries) {
  const int64_t blocks = (queries + kMostQueries - 1) / kMostQueries;
  if (blocks == 1) return queries;
  const int64_t even = (queries + blocks - 1) / blocks;
  return (even + kRowsOfTile - 1) / kRowsOfTile * kRowsOfTile;
}

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

struct Head {
  const float *query, *key, *value;
  std::array<const float*, 2> masks;
  float* out;
};

// Adds rows of a mask to the scores, all at once where they lie like these.
void AddMask(const FusedAttentionPlan::Mask& mask, const float* values, int64_t rows, int64_t keys,
             float* scores) {
  const math::Simd& simd = math::CurrentSimd();
  if (mask.column_stride == 1 && mask.row_stride == keys) {
    return simd.binary(math::Binary::kAdd, scores, values, scores, rows * keys, 1, 1);
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* line = scores + row * keys;
    simd.binary(math::Binary::kAdd, line, values + row * mask.row_stride, line, keys, 1,
                mask.column_stride);
  }
}

// softmax of each row of `scores`, the first of which is that of query `first`, but for the
// division by the sums.
void Weigh(const FusedAttentionPlan& sizes, const Head& head, int64_t first, int64_t rows,
           float* scores, float* sums) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t keys = sizes.keys;
  float scale = sizes.scale;
  for (size_t i = 0; i < sizes.masks.size(); ++i) {
    const FusedAttentionPlan::Mask& mask = sizes.masks[i];
    if (!mask.given) continue;
    if (scale != 1.0f) simd.affine(scores, scores, rows * keys, scale, 0.0f);
    scale = 1.0f;
    AddMask(mask, head.masks[i] + first * mask.row_stride, rows, keys, scores);
  }
  for (int64_t row = 0; row < rows; ++row) {
    float* line = scores + row * keys;
    sums[row] = simd.exp_sum(line, line, keys, simd.max(line, keys), scale);
  }
}

void RunHead(const Plan& plan, const Head& head, float* scratch) {
  const math::Simd& simd = math::CurrentSimd();
  const FusedAttentionPlan& sizes = plan.sizes;
  const int64_t keys = sizes.keys, width = sizes.value_width;
  float* packed_values = scratch + plan.packed_keys;
  float* sums = packed_values + plan.packed_values;
  float* scores = sums + plan.block;
  simd.pack_b(head.key, sizes.key_stride, true, sizes.width, keys, scratch);
  simd.pack_b(head.value, sizes.value_stride, false, keys, width, packed_values);
  for (int64_t first = 0; first < sizes.queries; first += plan.block) {
    const int64_t rows = std::min(plan.block, sizes.queries - first);
    simd.gemm({rows, keys, sizes.width, head.query + first * sizes.query_stride, sizes.query_stride,
               scratch, scores, keys});
    Weigh(sizes, head, first, rows, scores, sums);
    float* out = head.out + first * sizes.out_stride;
    simd.gemm({rows, width, keys, scores, keys, packed_values, out, sizes.out_stride});
    for (int64_t row = 0; row < rows; ++row) {
      float* line = out + row * sizes.out_stride;
      if (sizes.nan_to_zero && std::isnan(sums[row])) {
        std::fill_n(line, width, 0.0f);
      } else {
        simd.affine(line, line, width, 1.0f / sums[row], 0.0f);
      }
    }
  }
}

Status Compute(const Plan& plan, const KernelContext& k) {
  const int64_t heads = plan.heads.outer_count();
  k.pool().ParallelFor(plan.chunks, 1, [&](int64_t first, int64_t last) {
    for (int64_t chunk = first; chunk < last; ++chunk) {
      plan.heads.ForOuter(heads * chunk / plan.chunks, heads * (chunk + 1) / plan.chunks,
                          [&](const std::array<int64_t, Operand::kOperands>& at) {
                            const auto input = [&](size_t i) {
                              const float* first = k.input<float>(i);
                              return first == nullptr ? nullptr : first + at[i];
                            };
                            const Head head{input(Operand::kQuery),
                                            input(Operand::kKey),
                                            input(Operand::kValue),
                                            {input(Operand::kMask), input(Operand::kWindowMask)},
                                            k.output<float>(0) + at[Operand::kOut]};
                            RunHead(plan, head, k.scratch<float>() + chunk * plan.chunk_floats);
                          });
    }
  });
  return Status::Ok();
}

Result<Plan> MakePlan(const PrepareContext& context) {
  std::vector<const Shape*> shapes;
  for (size_t i = 0; i < context.inputs.size(); ++i) {
    shapes.push_back(context.HasInput(i) ? &context.InputShape(i) : nullptr);
  }
  Plan plan{};
  ONNXD_ASSIGN_OR_RETURN(plan.sizes,
                         PlanFusedAttention(context.node, shapes, context.OutputShape(0)));
  const FusedAttentionPlan& sizes = plan.sizes;
  plan.heads.dims = sizes.batch;
  plan.heads.strides = sizes.batch_strides;
  plan.heads.dims.push_back(1);  // the innermost dimension is the body's
  for (auto& strides : plan.heads.strides) strides.push_back(0);
  const math::Simd& simd = math::CurrentSimd();
  plan.block = BlockOf(sizes.queries);
  plan.packed_keys = Aligned(math::PackedBSize(simd, sizes.width, sizes.keys));
  plan.packed_values = Aligned(math::PackedBSize(simd, sizes.keys, sizes.value_width));
  plan.chunk_floats =
      plan.packed_keys + plan.packed_values + Aligned(plan.block * (sizes.keys + 1));
  plan.chunks = std::clamp<int64_t>(plan.heads.outer_count(), 1, context.threads);
  return plan;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeFusedAttention(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    if (context.OutputShape(0).ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    ONNXD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(context));
    prepared.scratch_bytes = static_cast<size_t>(plan.chunks * plan.chunk_floats) * sizeof(float);
    prepared.compute = [plan](const KernelContext& k) { return Compute(plan, k); };
    return prepared;
  });
}

}  // namespace onnxd
