#include "runtime/ops/strided_view.h"

#include <algorithm>
#include <numeric>

#include "runtime/ops/shape_inference.h"
#include "runtime/ops/slice.h"
#include "runtime/tensor/strides.h"

namespace onnxd {
namespace {

using Views = std::optional<std::vector<StridedView>>;
using Axis = StridedView::Axis;
using Factor = StridedView::Factor;

bool Reshapes(const Node& node) {
  return node.Is("Reshape") || node.Is("Flatten") || node.Is("Squeeze") || node.Is("Unsqueeze") ||
         node.Is("Identity");
}

// The same with factors as one that follow each other in memory.
Axis Joined(const Axis& axis) {
  Axis joined;
  for (const Factor& factor : axis) {
    if (!joined.empty() && joined.back().stride == factor.extent * factor.stride) {
      joined.back() = {joined.back().extent * factor.extent, factor.stride};
    } else if (factor.extent != 1) {
      joined.push_back(factor);
    }
  }
  return joined;
}

// Takes `extent` elements off the end of the factors, and makes an axis of them.
std::optional<Axis> TakeAxis(Axis& factors, int64_t extent) {
  Axis axis;
  while (extent > 1) {
    if (factors.empty()) return std::nullopt;
    Factor& last = factors.back();
    if (extent % last.extent == 0) {
      axis.insert(axis.begin(), last);
      extent /= last.extent;
      factors.pop_back();
    } else if (last.extent % extent == 0) {
      axis.insert(axis.begin(), {extent, last.stride});
      last = {last.extent / extent, last.stride * extent};
      extent = 1;
    } else {
      return std::nullopt;
    }
  }
  return Joined(axis);
}

std::optional<StridedView> Reshaped(const StridedView& in, const Shape& out) {
  Axis factors;
  for (const Axis& axis : in.axes) factors.insert(factors.end(), axis.begin(), axis.end());
  factors = Joined(factors);
  StridedView view{out, std::vector<Axis>(static_cast<size_t>(out.rank())), in.offset};
  for (int i = out.rank() - 1; i >= 0; --i) {
    auto axis = TakeAxis(factors, out[i]);
    if (!axis) return std::nullopt;
    view.axes[static_cast<size_t>(i)] = *std::move(axis);
  }
  return view;
}

StridedView Transposed(const Node& node, const StridedView& in) {
  std::vector<int64_t> order = node.attributes.Ints("perm"), dims;
  if (order.empty()) {
    order.resize(in.axes.size());
    std::iota(order.rbegin(), order.rend(), 0);
  }
  std::vector<Axis> axes;
  for (const int64_t axis : order) {
    dims.push_back(in.shape[static_cast<int>(axis)]);
    axes.push_back(in.axes[static_cast<size_t>(axis)]);
  }
  return {Shape(dims), std::move(axes), in.offset};
}

// How far an index of the axis is from its first element.
int64_t OffsetOf(const Axis& axis, int64_t index) {
  int64_t offset = 0;
  for (size_t i = axis.size(); i-- > 0;) {
    offset += index % axis[i].extent * axis[i].stride;
    index /= axis[i].extent;
  }
  return offset;
}

std::optional<size_t> AxisOf(int64_t axis, const StridedView& in) {
  const int64_t rank = in.shape.rank();
  if (axis < -rank || axis >= rank) return std::nullopt;
  return static_cast<size_t>(axis < 0 ? axis + rank : axis);
}

// By one index, of which axes of one element may be made.
std::optional<StridedView> Gathered(const Node& node, const StridedView& in, const Shape& out,
                                    const Tensor* indices) {
  const auto axis = AxisOf(node.attributes.Int("axis", 0), in);
  const auto numbers = indices == nullptr ? std::nullopt : IntElements(*indices);
  if (!axis || !numbers || numbers->size() != 1) return std::nullopt;
  const int64_t extent = in.shape[static_cast<int>(*axis)];
  const int64_t index = numbers->front() < 0 ? numbers->front() + extent : numbers->front();
  if (index < 0 || index >= extent) return std::nullopt;
  StridedView view{out, in.axes, in.offset + OffsetOf(in.axes[*axis], index)};
  const auto at = view.axes.begin() + static_cast<std::ptrdiff_t>(*axis);
  view.axes.insert(view.axes.erase(at), static_cast<size_t>(indices->shape().rank()), Axis());
  return view;
}

// Of an input, or an attribute before version 10; empty where there is neither.
std::optional<std::vector<int64_t>> Numbers(const Node& node, size_t input, const char* attribute,
                                            std::span<const Tensor* const> known) {
  if (node.input(input) == kNoValue) return node.attributes.Ints(attribute);
  return known[input] == nullptr ? std::nullopt : IntElements(*known[input]);
}

std::optional<StridedView> Sliced(const Node& node, const StridedView& in, const Shape& out,
                                  std::span<const Tensor* const> known) {
  const auto starts = Numbers(node, 1, "starts", known), ends = Numbers(node, 2, "ends", known);
  auto axes = Numbers(node, 3, "axes", known), steps = Numbers(node, 4, "steps", known);
  if (!starts || !ends || !axes || !steps) return std::nullopt;
  if (axes->empty()) {
    axes->resize(starts->size());
    std::iota(axes->begin(), axes->end(), 0);
  }
  if (steps->empty()) steps->assign(starts->size(), 1);
  if (ends->size() != starts->size() || axes->size() != starts->size() ||
      steps->size() != starts->size()) {
    return std::nullopt;
  }
  StridedView view{out, in.axes, in.offset};
  for (size_t i = 0; i < starts->size(); ++i) {
    const auto at = AxisOf((*axes)[i], in);
    if (!at || (*steps)[i] < 1 || in.axes[*at].size() > 1) return std::nullopt;
    const int64_t extent = in.shape[static_cast<int>(*at)];
    const SliceRange range = NormalizeSlice((*starts)[i], (*ends)[i], (*steps)[i], extent);
    view.offset += OffsetOf(in.axes[*at], range.start);
    Axis& axis = view.axes[*at];
    // A step beyond the extent takes one element; its stride would only overflow.
    if (range.count == 1) {
      axis.clear();
    } else {
      axis.front() = {range.count, axis.front().stride * range.step};
    }
  }
  return view;
}

Views Parts(const Node& node, const StridedView& in, std::span<const Shape* const> outputs) {
  const auto at = AxisOf(node.attributes.Int("axis", 0), in);
  if (!at || in.axes[*at].size() > 1) return std::nullopt;
  std::vector<StridedView> views;
  int64_t first = 0;
  for (const Shape* shape : outputs) {
    const int64_t extent = shape == nullptr ? 0 : (*shape)[static_cast<int>(*at)];
    if (extent == 0) return std::nullopt;
    StridedView view{*shape, in.axes, in.offset + OffsetOf(in.axes[*at], first)};
    Axis& axis = view.axes[*at];
    if (extent == 1) {
      axis.clear();
    } else {
      axis.front().extent = extent;
    }
    views.push_back(std::move(view));
    first += extent;
  }
  return views;
}

Views OneView(std::optional<StridedView> view) {
  if (!view) return std::nullopt;
  return std::vector<StridedView>{*std::move(view)};
}

}  // namespace

StridedView StridedView::Of(const Shape& dense) {
  StridedView view{dense, {}, 0};
  const std::vector<int64_t> strides = DenseStrides(dense);
  for (int axis = 0; axis < dense.rank(); ++axis) {
    view.axes.emplace_back();
    if (dense[axis] != 1)
      view.axes.back().push_back({dense[axis], strides[static_cast<size_t>(axis)]});
  }
  return view;
}

bool StridedView::IsDense() const {
  int64_t wanted = 1;
  for (size_t axis = axes.size(); axis-- > 0;) {
    for (size_t i = axes[axis].size(); i-- > 0;) {
      if (axes[axis][i].stride != wanted) return false;
      wanted *= axes[axis][i].extent;
    }
  }
  return true;
}

std::optional<std::vector<int64_t>> StridedView::Strides() const {
  std::vector<int64_t> strides;
  for (const Axis& axis : axes) {
    if (axis.size() > 1) return std::nullopt;
    strides.push_back(axis.empty() ? 0 : axis.front().stride);
  }
  return strides;
}

bool MovesElements(const Node& node) {
  return Reshapes(node) || node.Is("Transpose") || node.Is("Gather") || node.Is("Slice") ||
         node.Is("Split");
}

Views ViewsThrough(const Node& node, const StridedView& in, std::span<const Shape* const> outputs,
                   std::span<const Tensor* const> known) {
  if (in.shape.ElementCount() == 0 || outputs.empty() || outputs[0] == nullptr ||
      outputs[0]->ElementCount() == 0) {
    return std::nullopt;
  }
  if (Reshapes(node)) return OneView(Reshaped(in, *outputs[0]));
  if (node.Is("Transpose")) return OneView(Transposed(node, in));
  if (node.Is("Gather")) return OneView(Gathered(node, in, *outputs[0], known[1]));
  if (node.Is("Slice")) return OneView(Sliced(node, in, *outputs[0], known));
  if (node.Is("Split")) return Parts(node, in, outputs);
  return std::nullopt;
}

}  // namespace onnxd
