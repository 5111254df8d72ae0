// onnxd::FusedAttention: Y = softmax(scale * Q K^T + mask) V over the last two axes, operands read
// and the result written through orders of axes (as Transpose's perm) that keep the last one.
// Other axes broadcast; with nan_to_zero a query that no key is left for gives zeros. Queries are
// taken in blocks, so that their scores stay in the cache.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kQueryBlock = 48;

// An operand after its order of axes: [batch..., rows, width].
struct Matrices {
  std::vector<int64_t> batch, batch_strides;
  int64_t rows, row_stride, width;
};

Matrices ViewOf(const Shape& shape, const std::vector<int64_t>& order) {
  const std::vector<int64_t> strides = DenseStrides(shape);
  Matrices view{};
  const int rank = shape.rank();
  for (int i = 0; i < rank; ++i) {
    const auto axis =
        order.empty() ? static_cast<size_t>(i) : static_cast<size_t>(order[static_cast<size_t>(i)]);
    const int64_t extent = shape[static_cast<int>(axis)];
    if (i == rank - 1) {
      view.width = extent;
    } else if (i == rank - 2) {
      view.rows = extent;
      view.row_stride = strides[axis];
    } else {
      view.batch.push_back(extent);
      view.batch_strides.push_back(strides[axis]);
    }
  }
  return view;
}

// The same batch axes, stretched to `batch`: stride 0 where there is one matrix for all.
std::vector<int64_t> Stretched(const Matrices& view, const std::vector<int64_t>& batch) {
  std::vector<int64_t> strides = view.batch_strides;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (view.batch[i] == 1) strides[i] = 0;
  }
  return strides;
}

struct Plan {
  Matrices query, key, value, out;
  StridedLoop<5> heads;  // query, key, value, mask, output
  bool has_mask;
  int64_t mask_row, mask_column;  // strides
  float scale;
  bool nan_to_zero;
  int64_t packed_keys, packed_values, chunk_floats, chunks;
};

int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

// softmax of each row of `scores`, but for the division by the sums.
void Weigh(const Plan& plan, const float* mask, int64_t rows, float* scores, float* sums) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t keys = plan.key.rows;
  for (int64_t row = 0; row < rows; ++row) {
    float* line = scores + row * keys;
    float scale = plan.scale;
    if (plan.has_mask) {
      simd.affine(line, line, keys, scale, 0.0f);
      simd.binary(math::Binary::kAdd, line, mask + row * plan.mask_row, line, keys, 1,
                  plan.mask_column);
      scale = 1.0f;
    }
    sums[row] = simd.exp_sum(line, line, keys, simd.max(line, keys), scale);
  }
}

struct Head {
  const float *query, *key, *value, *mask;
  float* out;
};

void RunHead(const Plan& plan, const Head& head, float* scratch) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t keys = plan.key.rows, width = plan.value.width;
  float* packed_values = scratch + plan.packed_keys;
  float* sums = packed_values + plan.packed_values;
  float* scores = sums + kQueryBlock;
  simd.pack_b(head.key, plan.key.row_stride, true, plan.key.width, keys, scratch);
  simd.pack_b(head.value, plan.value.row_stride, false, keys, width, packed_values);
  for (int64_t first = 0; first < plan.out.rows; first += kQueryBlock) {
    const int64_t rows = std::min(kQueryBlock, plan.out.rows - first);
    simd.gemm({rows, keys, plan.query.width, head.query + first * plan.query.row_stride,
               plan.query.row_stride, scratch, scores, keys});
    Weigh(plan, head.mask + first * plan.mask_row, rows, scores, sums);
    float* out = head.out + first * plan.out.row_stride;
    simd.gemm({rows, width, keys, scores, keys, packed_values, out, plan.out.row_stride});
    for (int64_t row = 0; row < rows; ++row) {
      float* line = out + row * plan.out.row_stride;
      if (plan.nan_to_zero && std::isnan(sums[row])) {
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
                          [&](const std::array<int64_t, 5>& at) {
                            const Head head{k.input<float>(0) + at[0], k.input<float>(1) + at[1],
                                            k.input<float>(2) + at[2],
                                            plan.has_mask ? k.input<float>(3) + at[3] : nullptr,
                                            k.output<float>(0) + at[4]};
                            RunHead(plan, head, k.scratch<float>() + chunk * plan.chunk_floats);
                          });
    }
  });
  return Status::Ok();
}

// The mask as [batch..., queries, keys] with strides 0 where it stretches.
Status PlanMask(const PrepareContext& context, const std::vector<int64_t>& batch, Plan& plan,
                std::vector<int64_t>& strides) {
  plan.has_mask = context.HasInput(3);
  plan.mask_row = plan.mask_column = 0;
  strides.assign(batch.size(), 0);
  if (!plan.has_mask) return Status::Ok();
  std::vector<int64_t> scores = batch;
  scores.push_back(plan.out.rows);
  scores.push_back(plan.key.rows);
  const Shape& mask = context.InputShape(3);
  const int rank = static_cast<int>(scores.size());
  bool fits = mask.rank() <= rank;
  for (int i = 0; fits && i < mask.rank(); ++i) {
    const int64_t wanted = scores[static_cast<size_t>(rank - mask.rank() + i)];
    fits = mask[i] == wanted || mask[i] == 1;
  }
  if (!fits) {
    return InvalidArgument(StrCat(Describe(context.node), ": the mask of shape ", mask.ToString(),
                                  " does not broadcast to the scores of shape ",
                                  Shape(scores).ToString()));
  }
  std::vector<int64_t> all = BroadcastStrides(mask, Shape(scores));
  plan.mask_column = all.back();
  all.pop_back();
  plan.mask_row = all.back();
  all.pop_back();
  strides = all;
  return Status::Ok();
}

Result<Plan> MakePlan(const PrepareContext& context) {
  const Attributes& attributes = context.node.attributes;
  Plan plan{};
  plan.query = ViewOf(context.InputShape(0), attributes.Ints("query_perm"));
  plan.key = ViewOf(context.InputShape(1), attributes.Ints("key_perm"));
  plan.value = ViewOf(context.InputShape(2), attributes.Ints("value_perm"));
  plan.scale = attributes.Float("scale", 1.0f);
  plan.nan_to_zero = attributes.Int("nan_to_zero", 0) != 0;
  if (plan.query.width != plan.key.width || plan.key.rows != plan.value.rows) {
    return InvalidArgument(StrCat(Describe(context.node), ": queries ",
                                  context.InputShape(0).ToString(), ", keys ",
                                  context.InputShape(1).ToString(), " and values ",
                                  context.InputShape(2).ToString(), " do not fit"));
  }
  // The output's own axes in the order of the scores': the inverse of output_perm.
  const std::vector<int64_t> order = attributes.Ints("output_perm");
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  plan.out = ViewOf(context.OutputShape(0), inverse);
  if (plan.query.rows == 1) plan.query.row_stride = 0;
  const std::vector<int64_t>& batch = plan.out.batch;
  std::vector<int64_t> mask;
  ONNXD_RETURN_IF_ERROR(PlanMask(context, batch, plan, mask));
  plan.heads.dims = batch;
  plan.heads.strides = {Stretched(plan.query, batch), Stretched(plan.key, batch),
                        Stretched(plan.value, batch), mask, plan.out.batch_strides};
  plan.heads.dims.push_back(1);  // the innermost dimension is the body's
  for (auto& strides : plan.heads.strides) strides.push_back(0);
  const math::Simd& simd = math::CurrentSimd();
  plan.packed_keys = Aligned(math::PackedBSize(simd, plan.key.width, plan.key.rows));
  plan.packed_values = Aligned(math::PackedBSize(simd, plan.key.rows, plan.value.width));
  plan.chunk_floats =
      plan.packed_keys + plan.packed_values + Aligned(kQueryBlock * (plan.key.rows + 1));
  plan.chunks = std::clamp<int64_t>(plan.heads.outer_count(), 1, context.threads);
  return plan;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeFusedAttention(const KernelInfo&) {
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
