// onnxd::FusedAttention: Y = softmax(scale * Q K^T + mask + window_mask) V over the last two axes,
// operands read and the result written through orders of axes (as Transpose's perm) that keep the
// last one. Other axes broadcast; with nan_to_zero a query that no key is left for gives zeros.
// A window_mask [1, windows, ...] has one axis more than the scores, whose first axis counts as
// two: [batch * windows, ...] as [batch, windows, ...] (Swin Transformers, arXiv 2103.14030,
// section 3.2). Queries are taken in blocks, so that their scores stay in the cache.
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

// Added to the scores; strides are 0 where it stretches.
struct Mask {
  bool given = false;
  int64_t row_stride = 0, column_stride = 0;
  std::vector<int64_t> batch_strides;
};

enum Operand { kQuery, kKey, kValue, kMask, kWindowMask, kOut, kOperands };

struct Plan {
  Matrices query, key, value, out;
  StridedLoop<kOperands> heads;
  std::array<Mask, 2> masks;
  float scale;
  bool nan_to_zero;
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
void AddMask(const Mask& mask, const float* values, int64_t rows, int64_t keys, float* scores) {
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
void Weigh(const Plan& plan, const Head& head, int64_t first, int64_t rows, float* scores,
           float* sums) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t keys = plan.key.rows;
  float scale = plan.scale;
  for (size_t i = 0; i < plan.masks.size(); ++i) {
    const Mask& mask = plan.masks[i];
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
  const int64_t keys = plan.key.rows, width = plan.value.width;
  float* packed_values = scratch + plan.packed_keys;
  float* sums = packed_values + plan.packed_values;
  float* scores = sums + plan.block;
  simd.pack_b(head.key, plan.key.row_stride, true, plan.key.width, keys, scratch);
  simd.pack_b(head.value, plan.value.row_stride, false, keys, width, packed_values);
  for (int64_t first = 0; first < plan.out.rows; first += plan.block) {
    const int64_t rows = std::min(plan.block, plan.out.rows - first);
    simd.gemm({rows, keys, plan.query.width, head.query + first * plan.query.row_stride,
               plan.query.row_stride, scratch, scores, keys});
    Weigh(plan, head, first, rows, scores, sums);
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
                          [&](const std::array<int64_t, kOperands>& at) {
                            const auto input = [&](size_t i) {
                              const float* first = k.input<float>(i);
                              return first == nullptr ? nullptr : first + at[i];
                            };
                            const Head head{input(kQuery),
                                            input(kKey),
                                            input(kValue),
                                            {input(kMask), input(kWindowMask)},
                                            k.output<float>(0) + at[kOut]};
                            RunHead(plan, head, k.scratch<float>() + chunk * plan.chunk_floats);
                          });
    }
  });
  return Status::Ok();
}

// How input `i`, if it is there, is read over scores of that shape.
Result<Mask> MaskOver(const PrepareContext& context, size_t i, const std::vector<int64_t>& scores) {
  Mask result;
  result.given = context.HasInput(i);
  result.batch_strides.assign(scores.size() - 2, 0);
  if (!result.given) return result;
  const Shape& mask = context.InputShape(i);
  const int rank = static_cast<int>(scores.size());
  bool fits = mask.rank() <= rank;
  for (int axis = 0; fits && axis < mask.rank(); ++axis) {
    const int64_t wanted = scores[static_cast<size_t>(rank - mask.rank() + axis)];
    fits = mask[axis] == wanted || mask[axis] == 1;
  }
  if (!fits) {
    return InvalidArgument(StrCat(Describe(context.node), ": the mask of shape ", mask.ToString(),
                                  " does not broadcast to the scores of shape ",
                                  Shape(scores).ToString()));
  }
  std::vector<int64_t> all = BroadcastStrides(mask, Shape(scores));
  result.column_stride = all.back();
  all.pop_back();
  result.row_stride = all.back();
  all.pop_back();
  result.batch_strides = std::move(all);
  return result;
}

// How many windows each image has; 1 without a window mask.
Result<int64_t> WindowsOf(const PrepareContext& context, const std::vector<int64_t>& batch) {
  if (!context.HasInput(kWindowMask)) return 1;
  const Shape& mask = context.InputShape(kWindowMask);
  const bool fits = !batch.empty() && mask.rank() == static_cast<int>(batch.size()) + 3 &&
                    mask[1] > 0 && batch[0] % mask[1] == 0;
  if (fits) return mask[1];
  return InvalidArgument(StrCat(Describe(context.node), ": the window mask of shape ",
                                mask.ToString(), " does not divide ", Shape(batch).ToString()));
}

// The first axis as two, of which the second has `windows` steps.
std::vector<int64_t> Split(std::vector<int64_t> strides, int64_t windows) {
  if (!strides.empty()) strides.insert(strides.begin(), strides[0] * windows);
  return strides;
}

Status PlanHeads(const PrepareContext& context, Plan& plan) {
  const std::vector<int64_t>& batch = plan.out.batch;
  ONNXD_ASSIGN_OR_RETURN(const int64_t windows, WindowsOf(context, batch));
  std::vector<int64_t> scores = batch;
  scores.push_back(plan.out.rows);
  scores.push_back(plan.key.rows);
  ONNXD_ASSIGN_OR_RETURN(plan.masks[0], MaskOver(context, kMask, scores));
  plan.heads.dims = batch;
  if (!batch.empty()) {
    plan.heads.dims[0] = windows;
    plan.heads.dims.insert(plan.heads.dims.begin(), batch[0] / windows);
    scores[0] = windows;
    scores.insert(scores.begin(), batch[0] / windows);
  }
  ONNXD_ASSIGN_OR_RETURN(plan.masks[1], MaskOver(context, kWindowMask, scores));
  plan.heads.strides = {Split(Stretched(plan.query, batch), windows),
                        Split(Stretched(plan.key, batch), windows),
                        Split(Stretched(plan.value, batch), windows),
                        Split(plan.masks[0].batch_strides, windows),
                        plan.masks[1].batch_strides,
                        Split(plan.out.batch_strides, windows)};
  plan.heads.dims.push_back(1);  // the innermost dimension is the body's
  for (auto& strides : plan.heads.strides) strides.push_back(0);
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
  ONNXD_RETURN_IF_ERROR(PlanHeads(context, plan));
  const math::Simd& simd = math::CurrentSimd();
  plan.block = BlockOf(plan.out.rows);
  plan.packed_keys = Aligned(math::PackedBSize(simd, plan.key.width, plan.key.rows));
  plan.packed_values = Aligned(math::PackedBSize(simd, plan.key.rows, plan.value.width));
  plan.chunk_floats =
      plan.packed_keys + plan.packed_values + Aligned(plan.block * (plan.key.rows + 1));
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
