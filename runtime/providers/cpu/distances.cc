// com.microsoft CDist: distances between all rows of A [m, k] and all of B [n, k], as [m, n], after
// scipy's cdist. A row of A meets B's in vectors, as columns of B's transpose.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kWorkTogether = 1 << 15;  // multiplications that are worth a thread's time
constexpr int64_t kKept = 1 << 15;  // distances that a cache keeps until their roots are taken

struct Distances {
  int64_t rows = 0, points = 0, dimensions = 0;
  bool root = false;
};

// points: [points, dimensions]; columns: [dimensions, points].
template <typename T>
void Turn(const T* points, const Distances& d, T* columns) {
  for (int64_t p = 0; p < d.points; ++p) {
    for (int64_t i = 0; i < d.dimensions; ++i) columns[i * d.points + p] = *points++;
  }
}

void SquaredDistances(const Distances& d, const float* rows, const float* columns, float* out) {
  const math::Simd& simd = math::CurrentSimd();
  simd.squared_distances({d.rows, d.points, d.dimensions, rows, columns, out});
  if (d.root) simd.unary(math::Unary::kSqrt, out, out, d.rows * d.points);
}

void SquaredDistances(const Distances& d, const double* rows, const double* columns, double* out) {
  for (int64_t row = 0; row < d.rows; ++row, out += d.points) {
    std::fill_n(out, d.points, 0.0);
    for (int64_t i = 0; i < d.dimensions; ++i) {
      const double x = *rows++;
      const double* column = columns + i * d.points;
      for (int64_t p = 0; p < d.points; ++p) out[p] += (x - column[p]) * (x - column[p]);
    }
    if (d.root) std::transform(out, out + d.points, out, [](double x) { return std::sqrt(x); });
  }
}

template <typename T>
class CDistKernel : public Kernel {
 public:
  explicit CDistKernel(bool root) : root_(root) {}

  // Once: B is a constant.
  Status Pack(const Initializer& b) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor points, b.Materialize());
    columns_.resize(static_cast<size_t>(points.ElementCount()));
    Turn(points.data<T>(), {0, points.shape()[0], points.shape()[1]}, columns_.data());
    is_packed_ = true;
    return Status::Ok();
  }

  bool ReadsInput(size_t input) const override { return input == 0 || !is_packed_; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape &a = context.InputShape(0), &b = context.InputShape(1);
    if (a.rank() != 2 || b.rank() != 2 || a[1] != b[1]) {
      return InvalidArgument(StrCat(Describe(context.node), ": A of shape ", a.ToString(),
                                    " and B of shape ", b.ToString(),
                                    " are not two matrices of as many columns"));
    }
    const Distances all{a[0], b[0], a[1], root_};
    PreparedKernel prepared;
    if (!is_packed_) prepared.scratch_bytes = static_cast<size_t>(b.ElementCount()) * sizeof(T);
    prepared.compute = [this, all](const KernelContext& k) {
      const T* columns = columns_.data();
      if (!is_packed_) {
        Turn(k.input<T>(1), all, k.scratch<T>());
        columns = k.scratch<T>();
      }
      const int64_t work = std::max<int64_t>(1, all.points * all.dimensions);
      k.pool().ParallelFor(all.rows, 1 + kWorkTogether / work, [&](int64_t begin, int64_t end) {
        const int64_t together = 4 + kKept / std::max<int64_t>(1, all.points);
        for (int64_t row = begin; row < end; row += together) {
          Distances some = all;
          some.rows = std::min(together, end - row);
          SquaredDistances(some, k.input<T>(0) + row * all.dimensions, columns,
                           k.output<T>(0) + row * all.points);
        }
      });
      return Status::Ok();
    };
    return prepared;
  }

 private:
  const bool root_;
  bool is_packed_ = false;
  std::vector<T> columns_;  // [k, n], where B is a constant
};

template <typename T>
Result<std::unique_ptr<Kernel>> Make(const KernelInfo& info, bool root) {
  auto kernel = std::make_unique<CDistKernel<T>>(root);
  const Initializer* b = info.constant_input(1);
  if (b != nullptr && b->shape().rank() == 2 && !info.only_asks) {
    ONNXD_RETURN_IF_ERROR(kernel->Pack(*b));
  }
  return Result<std::unique_ptr<Kernel>>(std::move(kernel));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeCDist(const KernelInfo& info) {
  const std::string metric = info.node.attributes.String("metric", "sqeuclidean");
  if (metric != "sqeuclidean" && metric != "euclidean") {
    return InvalidArgument(StrCat(Describe(info.node), ": metric '", metric,
                                  "' is neither sqeuclidean nor euclidean"));
  }
  const bool root = metric == "euclidean";
  const DataType type = info.InputType(0);
  if (type == DataType::kFloat) return Make<float>(info, root);
  if (type == DataType::kDouble) return Make<double>(info, root);
  return DeclineType("CDist", type);
}

}  // namespace onnxd
