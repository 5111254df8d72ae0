// Reduce*, CumSum.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/reduction.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

enum class Reduction { kSum, kMean, kMax, kMin, kProd, kL1, kL2, kSumSquare, kLogSum, kLogSumExp };

Reduction ReductionOf(std::string_view op) {
  if (op == "ReduceMean") return Reduction::kMean;
  if (op == "ReduceMax") return Reduction::kMax;
  if (op == "ReduceMin") return Reduction::kMin;
  if (op == "ReduceProd") return Reduction::kProd;
  if (op == "ReduceL1") return Reduction::kL1;
  if (op == "ReduceL2") return Reduction::kL2;
  if (op == "ReduceSumSquare") return Reduction::kSumSquare;
  if (op == "ReduceLogSum") return Reduction::kLogSum;
  if (op == "ReduceLogSumExp") return Reduction::kLogSumExp;
  return Reduction::kSum;
}

// Where reduced elements lie: `outer` visits the outputs, `inner` the elements of one output.
struct ReducePlan {
  StridedLoop<1> kept, reduced;
  int64_t outputs, elements;
  bool contiguous;  // the elements of one output are consecutive
  bool rows;        // vectors take outputs that are neighbours
};

// A call for each output would take most of the time.
constexpr int64_t kShort = 8;

template <typename T>
T Accumulate(Reduction op, T total, T x) {
  switch (op) {
    case Reduction::kMax:
      return x > total || x != x ? x : total;
    case Reduction::kMin:
      return x < total || x != x ? x : total;
    case Reduction::kProd:
      return static_cast<T>(total * x);
    case Reduction::kL1:
      return static_cast<T>(total + (x < T(0) ? static_cast<T>(-x) : x));
    case Reduction::kL2:
    case Reduction::kSumSquare:
      return static_cast<T>(total + x * x);
    default:
      return static_cast<T>(total + x);
  }
}

template <typename T>
T Initial(Reduction op) {
  if (op == Reduction::kProd) return T(1);
  if (op == Reduction::kMax) {
    return std::numeric_limits<T>::has_infinity ? -std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::lowest();
  }
  if (op == Reduction::kMin) {
    return std::numeric_limits<T>::has_infinity ? std::numeric_limits<T>::infinity()
                                                : std::numeric_limits<T>::max();
  }
  return T(0);
}

template <typename T>
T Finish(Reduction op, T total, int64_t count) {
  switch (op) {
    case Reduction::kMean:
      return static_cast<T>(total / static_cast<T>(count));
    case Reduction::kL2:
      return static_cast<T>(std::sqrt(static_cast<double>(total)));
    case Reduction::kLogSum:
      return static_cast<T>(std::log(static_cast<double>(total)));
    default:
      return total;
  }
}

template <Reduction op>
using ReductionConstant = std::integral_constant<Reduction, op>;

// Calls body(ReductionConstant<op>()); any but kLogSumExp.
template <typename Body>
void DispatchReduction(Reduction op, const Body& body) {
  switch (op) {
    case Reduction::kMean:
      return body(ReductionConstant<Reduction::kMean>());
    case Reduction::kMax:
      return body(ReductionConstant<Reduction::kMax>());
    case Reduction::kMin:
      return body(ReductionConstant<Reduction::kMin>());
    case Reduction::kProd:
      return body(ReductionConstant<Reduction::kProd>());
    case Reduction::kL1:
      return body(ReductionConstant<Reduction::kL1>());
    case Reduction::kL2:
      return body(ReductionConstant<Reduction::kL2>());
    case Reduction::kSumSquare:
      return body(ReductionConstant<Reduction::kSumSquare>());
    case Reduction::kLogSum:
      return body(ReductionConstant<Reduction::kLogSum>());
    default:
      return body(ReductionConstant<Reduction::kSum>());
  }
}

// Calls visit(element) for each element of the output whose first element is at `base`.
template <typename T, typename Visit>
void ForElements(const ReducePlan& plan, const T* base, Visit visit) {
  plan.reduced.ForOuter(0, plan.reduced.outer_count(), [&](const std::array<int64_t, 1>& at) {
    const int64_t step = plan.reduced.inner_stride(0);
    for (int64_t i = 0; i < plan.reduced.inner_count(); ++i) visit(base[at[0] + i * step]);
  });
}

template <typename T>
T ReduceOne(const ReducePlan& plan, Reduction op, const T* base) {
  if (op == Reduction::kLogSumExp) {
    double largest = -std::numeric_limits<double>::infinity(), total = 0;
    ForElements(plan, base, [&](T x) { largest = std::max(largest, static_cast<double>(x)); });
    if (!std::isfinite(largest)) largest = 0;
    ForElements(plan, base, [&](T x) { total += std::exp(static_cast<double>(x) - largest); });
    return static_cast<T>(std::log(total) + largest);
  }
  T total = Initial<T>(op);
  ForElements(plan, base, [&](T x) { total = Accumulate(op, total, x); });
  return Finish(op, total, plan.elements);
}

constexpr int64_t kChunk = 256;  // floats

// Calls body(x, count) for neighbouring chunks of x[n].
template <typename Body>
void ForChunks(const float* x, int64_t n, Body body) {
  for (int64_t at = 0; at < n; at += kChunk) body(x + at, std::min(kChunk, n - at));
}

// Chunks folded into one, and that one's elements.
float FoldChunks(Reduction op, math::Binary operation, const float* x, int64_t n) {
  float folded[kChunk];
  int64_t width = std::min(kChunk, n);
  std::fill_n(folded, width, Initial<float>(op));
  ForChunks(x, n, [&](const float* chunk, int64_t count) {
    math::CurrentSimd().binary(operation, folded, chunk, folded, count, 1, 1);
  });
  for (; width % 2 == 0 && width > 4; width /= 2) {
    math::CurrentSimd().binary(operation, folded, folded + width / 2, folded, width / 2, 1, 1);
  }
  float total = Initial<float>(op);
  for (int64_t i = 0; i < width; ++i) total = Accumulate(op, total, folded[i]);
  return total;
}

float LogSumExp(const float* x, int64_t n) {
  const math::Simd& simd = math::CurrentSimd();
  float largest = simd.max(x, n);
  if (std::isnan(largest)) return largest;
  if (!std::isfinite(largest)) largest = 0;
  double total = 0;
  ForChunks(x, n, [&](const float* chunk, int64_t count) {
    float powers[kChunk];
    total += static_cast<double>(simd.exp_sum(chunk, powers, count, largest, 1.0f));
  });
  return static_cast<float>(std::log(total) + static_cast<double>(largest));
}

// The contiguous case, in vectors.
float ReduceContiguous(Reduction op, const float* x, int64_t n) {
  const math::Simd& simd = math::CurrentSimd();
  switch (op) {
    case Reduction::kSum:
      return simd.sum(x, n);
    case Reduction::kMean:
      return simd.sum(x, n) / static_cast<float>(n);
    case Reduction::kMax:
      return simd.max(x, n);
    case Reduction::kMin:
      return FoldChunks(op, math::Binary::kMin, x, n);
    case Reduction::kProd:
      return FoldChunks(op, math::Binary::kMul, x, n);
    case Reduction::kSumSquare:
      return simd.sum_of_squares(x, n, 0.0f);
    case Reduction::kL2:
      return std::sqrt(simd.sum_of_squares(x, n, 0.0f));
    case Reduction::kLogSum:
      return std::log(simd.sum(x, n));
    case Reduction::kLogSumExp:
      return LogSumExp(x, n);
    case Reduction::kL1:
      break;
  }
  float total = 0;
  ForChunks(x, n, [&](const float* chunk, int64_t count) {
    float sizes[kChunk];
    simd.unary(math::Unary::kAbs, chunk, sizes, count);
    total += simd.sum(sizes, count);
  });
  return total;
}

// Of few elements, sums have no need of vectors; comparisons are branches without.
bool TakesShortRowsTogether(Reduction op) { return op == Reduction::kMax || op == Reduction::kMin; }

Result<ReducePlan> MakePlan(const Shape& in, const std::vector<int>& axes, Reduction op) {
  ReducePlan plan;
  const auto strides = DenseStrides(in);
  for (int axis = 0; axis < in.rank(); ++axis) {
    StridedLoop<1>& loop =
        std::binary_search(axes.begin(), axes.end(), axis) ? plan.reduced : plan.kept;
    loop.dims.push_back(in[axis]);
    loop.strides[0].push_back(strides[static_cast<size_t>(axis)]);
  }
  plan.outputs = Shape(plan.kept.dims).ElementCount();
  plan.elements = Shape(plan.reduced.dims).ElementCount();
  plan.kept.Merge();
  plan.reduced.Merge();
  plan.contiguous =
      plan.reduced.dims.size() == 1 && (plan.reduced.inner_stride(0) == 1 || plan.elements == 1);
  const bool is_short = plan.contiguous && plan.elements <= kShort;
  plan.rows = plan.kept.inner_count() >= 8 && plan.elements > 1 &&
              (plan.kept.inner_stride(0) == 1 || (is_short && TakesShortRowsTogether(op)));
  return plan;
}

// What a reduction by columns does with a row of floats, or what is made of it.
math::Binary RowOperation(Reduction op) {
  switch (op) {
    case Reduction::kProd:
      return math::Binary::kMul;
    case Reduction::kMax:
      return math::Binary::kMax;
    case Reduction::kMin:
      return math::Binary::kMin;
    default:
      return math::Binary::kAdd;
  }
}

constexpr int64_t kMostRows = 256;  // that are summed one by one: more would lose digits

// Some outputs, neighbours: an element of each, then the next one of each.
class ColumnReduction {
 public:
  // count: up to kChunk.
  ColumnReduction(const ReducePlan& plan, const float* base, int64_t count)
      : plan_(plan), base_(base), count_(count) {}

  void Run(Reduction op, float* to) const {
    if (op == Reduction::kLogSumExp) return LogSumExp(to);
    const math::Simd& simd = math::CurrentSimd();
    const math::Binary operation = RowOperation(op);
    float some[kChunk];  // rows that are not in `to` yet
    int64_t rows = 0;
    std::fill_n(to, count_, Initial<float>(op));
    std::fill_n(some, count_, Initial<float>(op));
    ForRows([&](const float* row) {
      float made[kChunk];
      if (op == Reduction::kL1) {
        simd.unary(math::Unary::kAbs, row, made, count_);
        row = made;
      } else if (op == Reduction::kL2 || op == Reduction::kSumSquare) {
        simd.binary(math::Binary::kMul, row, row, made, count_, 1, 1);
        row = made;
      }
      simd.binary(operation, some, row, some, count_, 1, 1);
      if (++rows % kMostRows != 0) return;
      simd.binary(operation, to, some, to, count_, 1, 1);
      std::fill_n(some, count_, Initial<float>(op));
    });
    simd.binary(operation, to, some, to, count_, 1, 1);
    for (int64_t i = 0; i < count_; ++i) to[i] = Finish(op, to[i], plan_.elements);
  }

 private:
  template <typename Body>
  void ForRows(Body body) const {
    const int64_t step = plan_.reduced.inner_stride(0);
    plan_.reduced.ForOuter(0, plan_.reduced.outer_count(), [&](const std::array<int64_t, 1>& at) {
      for (int64_t i = 0; i < plan_.reduced.inner_count(); ++i) {
        float gathered[kChunk];
        body(Row(base_ + at[0] + i * step, gathered));
      }
    });
  }

  // Side by side.
  const float* Row(const float* first, float* gathered) const {
    const int64_t stride = plan_.kept.inner_stride(0);
    if (stride == 1) return first;
    for (int64_t i = 0; i < count_; ++i) gathered[i] = first[i * stride];
    return gathered;
  }

  void LogSumExp(float* to) const {
    const math::Simd& simd = math::CurrentSimd();
    float largest[kChunk], powers[kChunk];
    std::fill_n(largest, count_, Initial<float>(Reduction::kMax));
    ForRows([&](const float* row) {
      simd.binary(math::Binary::kMax, largest, row, largest, count_, 1, 1);
    });
    for (int64_t i = 0; i < count_; ++i) largest[i] = std::isinf(largest[i]) ? 0 : largest[i];
    std::fill_n(to, count_, 0.0f);
    ForRows([&](const float* row) {
      simd.binary(math::Binary::kSub, row, largest, powers, count_, 1, 1);
      simd.unary(math::Unary::kExp, powers, powers, count_);
      simd.binary(math::Binary::kAdd, to, powers, to, count_, 1, 1);
    });
    simd.unary(math::Unary::kLog, to, to, count_);
    simd.binary(math::Binary::kAdd, to, largest, to, count_, 1, 1);
  }

  const ReducePlan& plan_;
  const float* base_;
  const int64_t count_;
};

// Many outputs at once.
void ReduceRows(const ReducePlan& plan, Reduction op, const float* in, float* out,
                ThreadPool& pool) {
  const int64_t width = plan.kept.inner_count(), parts = (width + kChunk - 1) / kChunk;
  const int64_t grain = 1 + 16384 / (std::min(width, kChunk) * plan.elements + 1);
  pool.ParallelFor(plan.kept.outer_count() * parts, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / parts, first = i % parts * kChunk;
      plan.kept.ForOuter(row, row + 1, [&](const std::array<int64_t, 1>& at) {
        const float* base = in + at[0] + first * plan.kept.inner_stride(0);
        ColumnReduction(plan, base, std::min(kChunk, width - first))
            .Run(op, out + row * width + first);
      });
    }
  });
}

// outputs[i] of the row that begins at in[i * step].
template <typename T>
void ReduceShortRows(Reduction op, const T* in, int64_t step, int64_t elements, T* out,
                     int64_t outputs) {
  const auto reduce = [&](auto constant) {
    constexpr Reduction kOp = decltype(constant)::value;
    for (int64_t i = 0; i < outputs; ++i) {
      T total = Initial<T>(kOp);
      for (int64_t e = 0; e < elements; ++e) total = Accumulate(kOp, total, in[i * step + e]);
      out[i] = Finish(kOp, total, elements);
    }
  };
  DispatchReduction(op, reduce);
}

template <typename T>
void RunReduce(const ReducePlan& plan, Reduction op, const T* in, T* out, ThreadPool& pool) {
  if (plan.outputs == 0) return;
  if (plan.elements == 0) {
    std::fill_n(out, plan.outputs, Finish(op, Initial<T>(op), 0));
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (plan.rows) return ReduceRows(plan, op, in, out, pool);
  }
  const int64_t inner = plan.kept.inner_count(), step = plan.kept.inner_stride(0);
  const int64_t rows = plan.kept.outer_count();
  const bool is_short = plan.contiguous && plan.elements <= kShort && op != Reduction::kLogSumExp;
  pool.ParallelFor(rows, 1 + 16384 / (inner * plan.elements + 1), [&](int64_t begin, int64_t end) {
    T* to = out + begin * inner;
    plan.kept.ForOuter(begin, end, [&](const std::array<int64_t, 1>& at) {
      if (is_short) {
        ReduceShortRows(op, in + at[0], step, plan.elements, to, inner);
        to += inner;
        return;
      }
      for (int64_t i = 0; i < inner; ++i, ++to) {
        const T* base = in + at[0] + i * step;
        if constexpr (std::is_same_v<T, float>) {
          if (plan.contiguous) {
            *to = ReduceContiguous(op, base, plan.elements);
            continue;
          }
        }
        *to = ReduceOne(plan, op, base);
      }
    });
  });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeReduce(const KernelInfo& info) {
  // The largest of bools is that of their bytes.
  const bool bools = info.InputType(0) == DataType::kBool;
  const DataType type = bools ? DataType::kUint8 : info.InputType(0);
  if (!IsNumber(type)) return DeclineType(info.node.op_type, type);
  const Reduction op = ReductionOf(info.node.op_type);
  return MakeKernel([type, op](const PrepareContext& context) -> Result<PreparedKernel> {
    std::vector<int64_t> axes = context.node.attributes.Ints("axes");
    if (ReductionAxesAreInput(context.node) && context.HasInput(1)) {
      const Tensor* known = context.inputs[1].value;
      if (known == nullptr) return FailedPrecondition("the axes are not known yet");
      axes = IntElements(*known).value_or(axes);
    }
    ONNXD_ASSIGN_OR_RETURN(const auto reduced,
                           ReductionAxes(context.node, axes, context.InputShape(0).rank()));
    ONNXD_ASSIGN_OR_RETURN(const ReducePlan plan, MakePlan(context.InputShape(0), reduced, op));
    PreparedKernel prepared;
    prepared.compute = [type, op, plan](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        RunReduce(plan, op, k.input<T>(0), k.output<T>(0), k.pool());
      });
      return Status::Ok();
    };
    return prepared;
  });
}

namespace {

// So many rows side by side: each waits for its sum before.
constexpr int64_t kRowsAtOnce = 8;

template <typename T>
void SumRowsAlong(const T* in, int64_t extent, bool exclusive, T* out) {
  std::array<T, kRowsAtOnce> sums{};
  for (int64_t i = 0; i < extent; ++i) {
    for (int64_t row = 0; row < kRowsAtOnce; ++row) {
      T& sum = sums[static_cast<size_t>(row)];
      const int64_t at = row * extent + i;
      // The first is taken as it is: with a zero before it, a negative one would lose its sign.
      const T next = i == 0 && !exclusive ? in[at] : static_cast<T>(sum + in[at]);
      out[at] = exclusive ? sum : next;
      sum = next;
    }
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeCumSum(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("CumSum", type);
  const bool exclusive = info.node.attributes.Int("exclusive", 0) != 0;
  const bool reverse = info.node.attributes.Int("reverse", 0) != 0;
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const Tensor* known = context.inputs[1].value;
    if (known == nullptr) return FailedPrecondition("the axis is not known yet");
    const auto axes = IntElements(*known);
    if (!axes || axes->size() != 1) return InvalidArgument("CumSum needs one axis");
    const Shape& in = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis((*axes)[0], in.rank()));
    const int64_t outer = in.ElementCount(0, axis), extent = in[axis];
    const int64_t inner = in.ElementCount(axis + 1, in.rank());
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        int64_t row = 0;
        if (inner == 1 && !reverse) {
          for (; row + kRowsAtOnce <= outer; row += kRowsAtOnce) {
            SumRowsAlong(k.input<T>(0) + row * extent, extent, exclusive,
                         k.output<T>(0) + row * extent);
          }
        }
        for (; row < outer; ++row) {
          const int64_t base = row * extent * inner;
          const auto at = [&](int64_t i) { return base + (reverse ? extent - 1 - i : i) * inner; };
          for (int64_t i = 0; i < extent; ++i) {
            // Each is the one before and an element: its own, or the one before's.
            T* out = k.output<T>(0) + at(i);
            const T* in = k.input<T>(0) + at(exclusive && i > 0 ? i - 1 : i);
            const T* before = k.output<T>(0) + at(std::max<int64_t>(i - 1, 0));
            if (i == 0) {
              for (int64_t c = 0; c < inner; ++c) out[c] = exclusive ? T{} : in[c];
            } else {
              for (int64_t c = 0; c < inner; ++c) out[c] = static_cast<T>(before[c] + in[c]);
            }
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
