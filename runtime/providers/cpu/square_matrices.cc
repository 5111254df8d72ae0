// Det-11 and com.microsoft Inverse-1, computed in double.
#include <cmath>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// A matrix, row by row.
class Square {
 public:
  explicit Square(int64_t n) : n_(n), elements_(static_cast<size_t>(n * n)) {}
  Square(int64_t n, const double* elements) : n_(n), elements_(elements, elements + n * n) {}

  double& At(int64_t row, int64_t column) {
    return elements_[static_cast<size_t>(row * n_ + column)];
  }
  int64_t n() const { return n_; }

  void SwapRows(int64_t a, int64_t b) {
    for (int64_t i = 0; i < n_; ++i) std::swap(At(a, i), At(b, i));
  }
  void SubtractRow(int64_t from, int64_t row, double factor) {
    for (int64_t i = 0; i < n_; ++i) At(from, i) -= factor * At(row, i);
  }
  void ScaleRow(int64_t row, double factor) {
    for (int64_t i = 0; i < n_; ++i) At(row, i) *= factor;
  }
  // The row from `column` down with the largest element in it.
  int64_t Pivot(int64_t column) {
    int64_t pivot = column;
    for (int64_t row = column + 1; row < n_; ++row) {
      if (std::abs(At(row, column)) > std::abs(At(pivot, column))) pivot = row;
    }
    return pivot;
  }
  const std::vector<double>& elements() const { return elements_; }

 private:
  int64_t n_;
  std::vector<double> elements_;
};

// Gaussian elimination with the largest pivot of each column.
double Determinant(Square m) {
  double result = 1;
  for (int64_t column = 0; column < m.n(); ++column) {
    const int64_t pivot = m.Pivot(column);
    if (m.At(pivot, column) == 0) return 0;
    if (pivot != column) {
      m.SwapRows(pivot, column);
      result = -result;
    }
    result *= m.At(column, column);
    for (int64_t row = column + 1; row < m.n(); ++row) {
      m.SubtractRow(row, column, m.At(row, column) / m.At(column, column));
    }
  }
  return result;
}

// Gauss-Jordan; infinities and NaN for a singular matrix.
Square Inverted(Square m) {
  Square inverse(m.n());
  for (int64_t i = 0; i < m.n(); ++i) inverse.At(i, i) = 1;
  for (int64_t column = 0; column < m.n(); ++column) {
    const int64_t pivot = m.Pivot(column);
    m.SwapRows(pivot, column);
    inverse.SwapRows(pivot, column);
    const double scale = 1 / m.At(column, column);
    m.ScaleRow(column, scale);
    inverse.ScaleRow(column, scale);
    for (int64_t row = 0; row < m.n(); ++row) {
      if (row == column) continue;
      const double factor = m.At(row, column);
      m.SubtractRow(row, column, factor);
      inverse.SubtractRow(row, column, factor);
    }
  }
  return inverse;
}

// The extent of the square matrices in the last two axes.
Result<int64_t> ExtentOf(const Node& node, const Shape& shape) {
  const int rank = shape.rank();
  if (rank >= 2 && shape[rank - 1] == shape[rank - 2]) return shape[rank - 1];
  return InvalidArgument(StrCat(Describe(node), ": the input of shape ", shape.ToString(),
                                " holds no square matrices"));
}

Result<Values> Det(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(const int64_t n, ExtentOf(node, x.shape()));
  const std::vector<double> values = ElementsAs<double>(x);
  const Shape out(std::vector<int64_t>(x.shape().begin(), x.shape().end() - 2));
  std::vector<double> results;
  for (int64_t i = 0; i < out.ElementCount(); ++i) {
    results.push_back(Determinant(Square(n, values.data() + i * n * n)));
  }
  return OneValue(TensorFrom(x.type(), out, results));
}

Result<Values> Inverse(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(const int64_t n, ExtentOf(node, x.shape()));
  const std::vector<double> values = ElementsAs<double>(x);
  std::vector<double> results;
  for (size_t at = 0; at < values.size(); at += static_cast<size_t>(n * n)) {
    const Square inverse = Inverted(Square(n, values.data() + at));
    results.insert(results.end(), inverse.elements().begin(), inverse.elements().end());
  }
  return OneValue(TensorFrom(x.type(), x.shape(), results));
}

Result<std::unique_ptr<Kernel>> Make(const KernelInfo& info, EagerFunction function) {
  if (!IsFloatOrDouble(info.InputType(0))) return DeclineType(info.node.op_type, info.InputType(0));
  return MakeEagerKernel(std::move(function));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeDet(const KernelInfo& info) { return Make(info, Det); }
Result<std::unique_ptr<Kernel>> MakeInverse(const KernelInfo& info) { return Make(info, Inverse); }

}  // namespace onnxd
