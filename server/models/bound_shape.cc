#include "server/models/bound_shape.h"

#include <cstring>

#include "runtime/tensor/convert.h"

namespace onnxd {

std::map<std::string, int64_t> SymbolsOf(const std::vector<TensorSignature>& signature,
                                         std::span<const Value> values) {
  std::map<std::string, int64_t> symbols;
  for (size_t i = 0; i < signature.size() && i < values.size(); ++i) {
    if (!values[i].is_tensor() || !signature[i].type.shape) continue;
    const Shape& shape = values[i].tensor().shape();
    const SymbolicShape& symbolic = *signature[i].type.shape;
    for (size_t axis = 0; axis < symbolic.size(); ++axis) {
      if (symbolic[axis].known() || symbolic[axis].symbol.empty()) continue;
      symbols.emplace(symbolic[axis].symbol, shape[static_cast<int>(axis)]);
    }
  }
  return symbols;
}

Shape BoundShape(const SymbolicShape& shape, const std::map<std::string, int64_t>& symbols) {
  std::vector<int64_t> dims;
  for (const Dimension& dimension : shape) {
    const auto bound = symbols.find(dimension.symbol);
    dims.push_back(dimension.known()        ? dimension.value
                   : bound != symbols.end() ? bound->second
                                            : 1);
  }
  return Shape(std::move(dims));
}

Result<Tensor> Filled(DataType type, const Shape& shape, double number) {
  ONNXD_ASSIGN_OR_RETURN(Tensor one, Converted(Tensor::Scalar(number), type));
  ONNXD_ASSIGN_OR_RETURN(Tensor filled, Tensor::Create(type, shape));
  auto* to = static_cast<std::byte*>(filled.mutable_raw());
  for (size_t at = 0; at < filled.bytes(); at += one.bytes()) {
    std::memcpy(to + at, one.raw(), one.bytes());
  }
  return filled;
}

}  // namespace onnxd
