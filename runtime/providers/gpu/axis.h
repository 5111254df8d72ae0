// A tensor seen as [outer, extent, inner], cut at one axis.
#pragma once

#include "runtime/base/status.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

struct AxisView {
  int64_t outer, extent, inner;

  int64_t rows() const { return outer * inner; }
};

// kInvalidArgument when the axis is outside of the shape.
inline Result<AxisView> ViewAt(const Shape& shape, int64_t axis) {
  ONNXD_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, shape.rank()));
  return AxisView{shape.ElementCount(0, at), shape[at], shape.ElementCount(at + 1, shape.rank())};
}

}  // namespace onnxd
