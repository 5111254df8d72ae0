#include "runtime/tensor/axes.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/shape.h"

namespace onnxd {

Result<std::vector<int>> NormalizeAxes(std::span<const int64_t> axes, int rank) {
  std::vector<int> normal;
  for (const int64_t given : axes) {
    ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, rank));
    if (std::find(normal.begin(), normal.end(), axis) != normal.end()) {
      return InvalidArgument(StrCat("axis ", axis, " is given twice"));
    }
    normal.push_back(axis);
  }
  return normal;
}

}  // namespace onnxd
