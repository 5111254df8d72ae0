// Kernels as plain functions from values to values, for operators whose arithmetic is rare or whose
// results' shapes the data decide: nothing is prepared, outputs are allocated by each call.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "runtime/kernel/kernel.h"
#include "runtime/tensor/convert.h"

namespace onnxd {

// One value per node input (absent ones are absent); returns one per node output. Input tensors
// point at memory of the run: an output must not keep them, unless it is the same Value as an
// input.
using EagerFunction =
    std::function<Result<std::vector<Value>>(const Node& node, std::span<const Value> inputs)>;

std::unique_ptr<Kernel> MakeEagerKernel(EagerFunction function);

// The same for functions that share their work among threads, or whose results are large.
struct EagerCall {
  const Node& node;
  std::span<const Value> inputs;
  ThreadPool& pool;
  std::span<const Tensor> places;  // of outputs whose shapes are known, where the run wants them

  // For output i, with any elements: in its place, if that fits.
  Result<Tensor> MakeOutput(size_t i, DataType type, const Shape& shape) const;
};
using EagerCallFunction = std::function<Result<std::vector<Value>>(const EagerCall& call)>;

// `in_place`: as of PreparedKernel, where both turn out to have one shape.
std::unique_ptr<Kernel> MakeEagerCallKernel(EagerCallFunction function,
                                            std::vector<std::pair<int, int>> in_place = {});

// The elements of a tensor of numbers as a C++ type (see ConvertElements); vector<bool> is none.
template <typename T>
std::vector<T> ElementsAs(const Tensor& tensor) {
  std::vector<T> elements(static_cast<size_t>(tensor.ElementCount()));
  if (!elements.empty()) {
    ConvertElements(tensor.type(), tensor.raw(), kDataTypeOf<T>, elements.data(),
                    tensor.ElementCount());
  }
  return elements;
}

// A tensor of `type` from elements of another type of numbers.
template <typename T>
Result<Tensor> TensorFrom(DataType type, const Shape& shape, const std::vector<T>& elements,
                          const MinifloatOptions& options = {}) {
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(type, shape));
  if (!elements.empty()) {
    ConvertElements(kDataTypeOf<T>, elements.data(), type, tensor.mutable_raw(),
                    static_cast<int64_t>(elements.size()), options);
  }
  return tensor;
}

inline const Tensor* TensorAt(std::span<const Value> values, size_t i) {
  return i < values.size() && values[i].is_tensor() ? &values[i].tensor() : nullptr;
}

// {tensor}, or its error.
inline Result<std::vector<Value>> OneValue(Result<Tensor> tensor) {
  ONNXD_RETURN_IF_ERROR(tensor.status());
  return std::vector<Value>{std::move(*tensor)};
}

}  // namespace onnxd
