#include "runtime/ops/rotary_positions.h"

#include "runtime/base/str_cat.h"
#include "runtime/tensor/strides.h"

namespace onnxd {

Result<RotaryRows> RotaryRowsOf(const Node& node, const std::array<const Shape*, 3>& operands,
                                const std::vector<int64_t>* x_strides, const Shape& out) {
  RotaryRows rows;
  rows.size = out.rank() == 0 ? 1 : out.dims().back();
  for (size_t i = 0; i < operands.size(); ++i) {
    const Shape& shape = *operands[i];
    if (shape.rank() == 0 || shape.dims().back() != rows.size || rows.size % 2 != 0) {
      return InvalidArgument(StrCat(Describe(node), ": the last axis of input ", i, ", ",
                                    shape.ToString(), ", must have an even number of elements, ",
                                    "as many as that of the others"));
    }
    rows.strides[i] = BroadcastStrides(shape, out);
  }
  if (x_strides != nullptr) {
    if (x_strides->back() != 1) {
      return Unimplemented(StrCat(Describe(node), ": numbers of a row that are apart"));
    }
    const Shape& x = *operands[0];
    for (int axis = 0; axis < x.rank(); ++axis) {
      int64_t& stride = rows.strides[0][static_cast<size_t>(out.rank() - x.rank() + axis)];
      if (stride != 0) stride = (*x_strides)[static_cast<size_t>(axis)];
    }
  }
  rows.rows = rows.size == 0 ? 0 : out.ElementCount() / rows.size;
  rows.dims.assign(out.dims().begin(), out.dims().end() - 1);
  for (auto& strides : rows.strides) strides.pop_back();
  return rows;
}

}  // namespace onnxd
