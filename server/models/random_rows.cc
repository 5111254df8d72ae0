#include "server/models/random_rows.h"

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"

namespace onnxd {
namespace {

Result<Tensor> RandomTensor(DataType type, const Shape& shape, std::mt19937& random) {
  if (type == DataType::kString) return Tensor::Create(type, shape);
  ONNXD_ASSIGN_OR_RETURN(Tensor numbers, Tensor::Create(DataType::kDouble, shape));
  std::uniform_real_distribution<double> reals(-1, 1);
  const bool whole = IsInteger(type) || type == DataType::kBool;
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    numbers.mutable_data<double>()[i] = whole ? static_cast<double>(random() % 2) : reals(random);
  }
  return Converted(numbers, type);
}

}  // namespace

Result<std::vector<Value>> RandomRows(const std::vector<TensorSignature>& inputs, int64_t rows,
                                      int64_t size, std::mt19937& random) {
  std::vector<Value> values;
  for (const TensorSignature& input : inputs) {
    if (!input.type.is_tensor() || !input.type.shape) {
      return Unimplemented(StrCat("input '", input.name, "' is no tensor of known rank"));
    }
    Shape shape;
    for (const Dimension& dimension : *input.type.shape) {
      const int64_t free = shape.rank() == 0 ? rows : size;
      shape.Append(dimension.known() ? dimension.value : free);
    }
    ONNXD_ASSIGN_OR_RETURN(Tensor tensor, RandomTensor(input.type.element, shape, random));
    values.emplace_back(std::move(tensor));
  }
  return values;
}

}  // namespace onnxd
