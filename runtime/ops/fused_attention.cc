#include "runtime/ops/fused_attention.h"

#include "runtime/base/str_cat.h"
#include "runtime/tensor/strides.h"

namespace onnxd {
namespace {

using Plan = FusedAttentionPlan;

// An operand after its order of axes: [batch..., rows, width].
struct Matrices {
  std::vector<int64_t> batch, batch_strides;
  int64_t rows, row_stride, width;
};

Matrices ViewOf(const Shape& shape, const std::vector<int64_t>& order,
                const std::vector<int64_t>* own_strides = nullptr) {
  const std::vector<int64_t> strides = own_strides == nullptr ? DenseStrides(shape) : *own_strides;
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

struct MaskView {
  Plan::Mask mask;
  std::vector<int64_t> batch_strides;
};

// How a mask, if it is there, is read over scores of that shape.
Result<MaskView> MaskOver(const Node& node, const Shape* mask, const std::vector<int64_t>& scores) {
  MaskView view;
  view.mask.given = mask != nullptr;
  view.batch_strides.assign(scores.size() - 2, 0);
  if (mask == nullptr) return view;
  const int rank = static_cast<int>(scores.size());
  bool fits = mask->rank() <= rank;
  for (int axis = 0; fits && axis < mask->rank(); ++axis) {
    const int64_t wanted = scores[static_cast<size_t>(rank - mask->rank() + axis)];
    fits = (*mask)[axis] == wanted || (*mask)[axis] == 1;
  }
  if (!fits) {
    return InvalidArgument(StrCat(Describe(node), ": the mask of shape ", mask->ToString(),
                                  " does not broadcast to the scores of shape ",
                                  Shape(scores).ToString()));
  }
  std::vector<int64_t> all = BroadcastStrides(*mask, Shape(scores));
  view.mask.column_stride = all.back();
  all.pop_back();
  view.mask.row_stride = all.back();
  all.pop_back();
  view.batch_strides = std::move(all);
  return view;
}

// How many windows each image has; 1 without a window mask.
Result<int64_t> WindowsOf(const Node& node, const Shape* mask, const std::vector<int64_t>& batch) {
  if (mask == nullptr) return 1;
  const bool fits = !batch.empty() && mask->rank() == static_cast<int>(batch.size()) + 3 &&
                    (*mask)[1] > 0 && batch[0] % (*mask)[1] == 0;
  if (fits) return (*mask)[1];
  return InvalidArgument(StrCat(Describe(node), ": the window mask of shape ", mask->ToString(),
                                " does not divide ", Shape(batch).ToString()));
}

// The first axis as two, of which the second has `windows` steps.
std::vector<int64_t> Split(std::vector<int64_t> strides, int64_t windows) {
  if (!strides.empty()) strides.insert(strides.begin(), strides[0] * windows);
  return strides;
}

Status PlanBatch(const Node& node, const Shape* mask, const Shape* window_mask,
                 const std::array<const Matrices*, Plan::kOperands>& views, Plan& plan) {
  const std::vector<int64_t>& batch = views[Plan::kOut]->batch;
  ONNXD_ASSIGN_OR_RETURN(const int64_t windows, WindowsOf(node, window_mask, batch));
  std::vector<int64_t> scores = batch;
  scores.push_back(plan.queries);
  scores.push_back(plan.keys);
  ONNXD_ASSIGN_OR_RETURN(MaskView own, MaskOver(node, mask, scores));
  plan.batch = batch;
  if (!batch.empty()) {
    plan.batch[0] = windows;
    plan.batch.insert(plan.batch.begin(), batch[0] / windows);
    scores[0] = windows;
    scores.insert(scores.begin(), batch[0] / windows);
  }
  ONNXD_ASSIGN_OR_RETURN(MaskView window, MaskOver(node, window_mask, scores));
  plan.masks = {own.mask, window.mask};
  for (const auto operand : {Plan::kQuery, Plan::kKey, Plan::kValue}) {
    plan.batch_strides[operand] = Split(Stretched(*views[operand], batch), windows);
  }
  plan.batch_strides[Plan::kMask] = Split(std::move(own.batch_strides), windows);
  plan.batch_strides[Plan::kWindowMask] = std::move(window.batch_strides);
  plan.batch_strides[Plan::kOut] = Split(views[Plan::kOut]->batch_strides, windows);
  return Status::Ok();
}

// Kernels read rows, and masks, as they are.
Status CheckStrides(std::span<const AttentionInput> inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].strides == nullptr) continue;
    const bool is_row = inputs[i].strides->back() == 1 || inputs[i].shape->dims().back() == 1;
    if (i > 2 || !is_row) return Unimplemented("rows that are not dense");
  }
  return Status::Ok();
}

}  // namespace

Result<FusedAttentionPlan> PlanFusedAttention(const Node& node,
                                              std::span<const AttentionInput> inputs,
                                              const Shape& output) {
  const Attributes& attributes = node.attributes;
  ONNXD_RETURN_IF_ERROR(CheckStrides(inputs));
  const auto operand = [&](size_t i, const char* order) {
    return ViewOf(*inputs[i].shape, attributes.Ints(order), inputs[i].strides);
  };
  const Matrices query = operand(0, "query_perm"), key = operand(1, "key_perm");
  const Matrices value = operand(2, "value_perm");
  if (query.width != key.width || key.rows != value.rows) {
    return InvalidArgument(StrCat(Describe(node), ": queries ", inputs[0].shape->ToString(),
                                  ", keys ", inputs[1].shape->ToString(), " and values ",
                                  inputs[2].shape->ToString(), " do not fit"));
  }
  // The output's own axes in the order of the scores': the inverse of output_perm.
  const std::vector<int64_t> order = attributes.Ints("output_perm");
  std::vector<int64_t> inverse(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  const Matrices out = ViewOf(output, inverse);
  Plan plan{};
  plan.queries = out.rows;
  plan.keys = key.rows;
  plan.width = key.width;
  plan.value_width = value.width;
  plan.query_stride = query.rows == 1 ? 0 : query.row_stride;
  plan.key_stride = key.row_stride;
  plan.value_stride = value.row_stride;
  plan.out_stride = out.row_stride;
  plan.scale = attributes.Float("scale", 1.0f);
  plan.nan_to_zero = attributes.Int("nan_to_zero", 0) != 0;
  const auto given = [&](size_t i) { return i < inputs.size() ? inputs[i].shape : nullptr; };
  ONNXD_RETURN_IF_ERROR(
      PlanBatch(node, given(3), given(4), {&query, &key, &value, nullptr, nullptr, &out}, plan));
  return plan;
}

}  // namespace onnxd
