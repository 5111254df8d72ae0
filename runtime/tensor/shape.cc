#include "runtime/tensor/shape.h"

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {
constexpr int64_t kMaxElements = int64_t{1} << 48;
}

int64_t Shape::ElementCount(int begin, int end) const {
  int64_t count = 1;
  for (int axis = begin; axis < end; ++axis) count *= (*this)[axis];
  return count;
}

Status Shape::Validate() const {
  if (rank() > kMaxRank) {
    return InvalidArgument(StrCat("rank ", rank(), " is above the limit of ", kMaxRank));
  }
  int64_t count = 1;
  for (const int64_t dim : dims_) {
    if (dim < 0) return InvalidArgument(StrCat("negative dimension in shape ", ToString()));
    if (dim == 0) continue;  // the others still must not overflow strides
    count = SaturatingMultiply(count, dim);
    if (count > kMaxElements) {
      return InvalidArgument(StrCat("shape ", ToString(), " has too many elements"));
    }
  }
  return Status::Ok();
}

std::string Shape::ToString() const { return StrCat("[", StrJoin(dims_, ", "), "]"); }

Dimension Dimension::Unnamed(std::string_view value, size_t axis) {
  return Symbol(StrCat("?", value, ".", axis));
}

SymbolicShape ToSymbolic(const Shape& shape) { return SymbolicShape(shape.begin(), shape.end()); }

std::optional<Shape> ToConcrete(const SymbolicShape& shape) {
  std::vector<int64_t> dims;
  for (const Dimension& dimension : shape) {
    if (!dimension.known()) return std::nullopt;
    dims.push_back(dimension.value);
  }
  return Shape(std::move(dims));
}

std::string ToString(const SymbolicShape& shape) {
  std::vector<std::string> texts;
  for (const Dimension& dimension : shape) {
    texts.push_back(dimension.known()                                 ? StrCat(dimension.value)
                    : dimension.symbol.empty() || dimension.unnamed() ? "?"
                                                                      : dimension.symbol);
  }
  return StrCat("[", StrJoin(texts, ", "), "]");
}

Result<int> NormalizeAxis(int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    return InvalidArgument(StrCat("axis ", axis, " is outside a tensor of rank ", rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

}  // namespace onnxd
