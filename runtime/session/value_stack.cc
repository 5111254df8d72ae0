#include "runtime/session/value_stack.h"

#include "runtime/base/str_cat.h"
#include "runtime/tensor/copy_elements.h"

namespace onnxd {
namespace {

Status CheckAddressable(DataType type) {
  if (type == DataType::kString || DataTypeBits(type) >= 8) return Status::Ok();
  return Unimplemented(StrCat("slices of ", DataTypeName(type), " tensors are not supported"));
}

Shape Without(const Shape& shape, int axis) {
  std::vector<int64_t> dims = shape.dims();
  dims.erase(dims.begin() + axis);
  return Shape(std::move(dims));
}

}  // namespace

Result<Tensor> StackTensors(const std::vector<Value>& tensors, int64_t axis, bool reversed,
                            DataType type, const SymbolicShape& shape) {
  std::vector<int64_t> dims;
  if (tensors.empty()) {
    for (const Dimension& dimension : shape)
      dims.push_back(dimension.known() ? dimension.value : 0);
  } else {
    if (!tensors[0].is_tensor()) return InvalidArgument("a scan output must be a tensor");
    type = tensors[0].tensor().type();
    dims = tensors[0].tensor().shape().dims();
  }
  ONNXD_RETURN_IF_ERROR(CheckAddressable(type));
  ONNXD_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, static_cast<int>(dims.size()) + 1));
  const Shape element(dims);
  dims.insert(dims.begin() + at, static_cast<int64_t>(tensors.size()));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(type, Shape(dims)));
  const int64_t outer = element.ElementCount(0, at);
  const int64_t inner = element.ElementCount(at, element.rank());
  const auto count = static_cast<int64_t>(tensors.size());
  for (int64_t i = 0; i < count; ++i) {
    const Value& value = tensors[static_cast<size_t>(reversed ? count - 1 - i : i)];
    if (!value.is_tensor() || value.tensor().type() != type ||
        !(value.tensor().shape() == element)) {
      return InvalidArgument("the values of a scan output differ in type or shape");
    }
    for (int64_t o = 0; o < outer; ++o) {
      CopyElements(value.tensor(), o * inner, out, (o * count + i) * inner, inner);
    }
  }
  return out;
}

Result<Tensor> SliceTensor(const Tensor& tensor, int axis, int64_t index) {
  ONNXD_RETURN_IF_ERROR(CheckAddressable(tensor.type()));
  const Shape& shape = tensor.shape();
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(tensor.type(), Without(shape, axis)));
  const int64_t outer = shape.ElementCount(0, axis);
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  for (int64_t o = 0; o < outer; ++o) {
    CopyElements(tensor, (o * shape[axis] + index) * inner, out, o * inner, inner);
  }
  return out;
}

}  // namespace onnxd
