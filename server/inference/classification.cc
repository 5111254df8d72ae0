#include "server/inference/classification.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/float16.h"
#include "runtime/tensor/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kMostClasses = 65536;

template <typename T>
std::string Text(T value) {
  if constexpr (std::is_integral_v<T>) {
    return std::to_string(value);
  } else {
    return std::to_string(static_cast<double>(value));
  }
}

// NaN is less than any number.
template <typename T>
bool IsGreater(T a, T b) {
  return a > b || (a == a && !(b == b));
}

template <typename T>
void ClassifyRow(const T* values, int64_t count, int64_t classes, std::string* out) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + classes, order.end(),
                    [values](int64_t a, int64_t b) {
                      if (IsGreater(values[a], values[b])) return true;
                      return !IsGreater(values[b], values[a]) && a < b;
                    });
  for (int64_t i = 0; i < classes; ++i) {
    const int64_t index = order[static_cast<size_t>(i)];
    out[i] = StrCat(Text(values[index]), ":", index);
  }
}

// Half-precision values as floats; others as they are.
Result<Tensor> Widened(const Tensor& values) {
  const bool half = values.type() == DataType::kFloat16;
  if (!half && values.type() != DataType::kBfloat16) return values;
  ONNXD_ASSIGN_OR_RETURN(Tensor wide, Tensor::Create(DataType::kFloat, values.shape()));
  for (int64_t i = 0; i < values.ElementCount(); ++i) {
    wide.mutable_data<float>()[i] = half ? static_cast<float>(values.data<Float16>()[i])
                                         : static_cast<float>(values.data<Bfloat16>()[i]);
  }
  return wide;
}

}  // namespace

Result<Tensor> Classify(const Tensor& values, int64_t classes, const std::string& output) {
  if (classes < 1 || classes > kMostClasses) {
    return InvalidArgument(
        StrCat("output '", output, "': classification must be from 1 to ", kMostClasses));
  }
  ONNXD_ASSIGN_OR_RETURN(const Tensor numbers, Widened(values));
  const Shape& shape = values.shape();
  const bool batched = shape.rank() > 1;
  const int64_t rows = batched ? shape[0] : 1;
  const int64_t count = rows == 0 ? 0 : values.ElementCount() / rows;
  const int64_t kept = std::min(classes, count);
  ONNXD_ASSIGN_OR_RETURN(
      Tensor result, Tensor::Create(DataType::kString, batched ? Shape{rows, kept} : Shape{kept}));
  auto* const out = result.mutable_data<std::string>();
  const auto classify = [&]<typename T>() {
    for (int64_t i = 0; i < rows; ++i) {
      ClassifyRow(numbers.data<T>() + i * count, count, kept, out + i * kept);
    }
  };
  if (!DispatchNumber(numbers.type(), classify)) {
    return InvalidArgument(
        StrCat("output '", output, "' of type ", DataTypeName(values.type()), " has no classes"));
  }
  return result;
}

}  // namespace onnxd
