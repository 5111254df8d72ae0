// Operators that only move elements, as views: their outputs are elements of the first input at
// other strides, which kernels that take strides read where they are.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/tensor/shape.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// A tensor in the memory of another one, in elements.
struct StridedView {
  // So many steps of `stride`, which is not negative.
  struct Factor {
    int64_t extent, stride;
    bool operator==(const Factor&) const = default;
  };
  // An axis, the last factor stepping first; one of a single element has none. More than one where
  // a Reshape joined axes that do not follow each other: heads of a batch, which another may part
  // again.
  using Axis = std::vector<Factor>;

  Shape shape;
  std::vector<Axis> axes;
  int64_t offset = 0;

  static StridedView Of(const Shape& dense);
  // Whether elements follow each other as in a dense tensor, from the offset on.
  bool IsDense() const;
  // One per axis, 0 for one element; nullopt where an axis has several factors.
  std::optional<std::vector<int64_t>> Strides() const;
};

// Reshape, Flatten, Squeeze, Unsqueeze, Identity, Transpose, Gather, Slice and Split: those that
// ViewsThrough may say something of.
bool MovesElements(const Node& node);

// The outputs of such a node of `in`. `outputs`: their shapes; null for absent ones. `known`: the
// elements of inputs, null where they are not known. nullopt where one cannot be said so: Reshape
// to axes that part factors unevenly, Gather by more than one index, Slice with steps below 0, or
// parts of an axis of several factors; or where a number it depends on is not known, or there are
// no elements.
std::optional<std::vector<StridedView>> ViewsThrough(const Node& node, const StridedView& in,
                                                     std::span<const Shape* const> outputs,
                                                     std::span<const Tensor* const> known);

}  // namespace onnxd
