// Elementwise operators of two or more inputs, with numpy broadcasting.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/ops/legacy_broadcast.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

Status CheckBroadcast(const Node& node, const Shape& shape, const Shape& out) {
  if (IsBroadcastable(shape, out)) return Status::Ok();
  return InvalidArgument(StrCat(Describe(node), ": shape ", shape.ToString(),
                                " does not broadcast to ", out.ToString()));
}

// Combines `count` pairs; steps are in elements, 0 or 1 mostly. Erased to pointers so that the
// kernel around it is compiled once.
using PairLoop = void (*)(const void* a, const void* b, void* out, int64_t count, int64_t a_step,
                          int64_t b_step);

struct PairWidths {
  int64_t a, b, out;  // bytes per element
};

// A short row of one operand that meets many rows of the other, as a factor for each channel does
// where these are last: calls of `loop` take several rows at once, beside as many copies of it.
struct RepeatedRow {
  static constexpr int64_t kBytes = 4096;  // of the copies

  size_t operand;  // 1 or 2, as in the strided loop
  int64_t rows, at_once;
};

std::optional<RepeatedRow> RepeatedRowOf(const StridedLoop<3>& strided, PairWidths width) {
  constexpr int64_t kShort = 256, kMany = 4;
  const int64_t inner = strided.inner_count();
  if (strided.dims.size() < 2 || inner >= kShort || strided.inner_stride(1) != 1 ||
      strided.inner_stride(2) != 1) {
    return std::nullopt;
  }
  const size_t axis = strided.dims.size() - 2;
  for (const size_t row : {1, 2}) {
    const bool repeats = strided.strides[row][axis] == 0;
    const bool is_dense = strided.strides[3 - row][axis] == inner;
    const int64_t bytes = inner * (row == 1 ? width.a : width.b), rows = strided.dims[axis];
    if (!repeats || !is_dense || rows < kMany || bytes * 2 > RepeatedRow::kBytes) continue;
    return RepeatedRow{row, rows, std::min(rows, RepeatedRow::kBytes / bytes)};
  }
  return std::nullopt;
}

void CombineWithRow(const StridedLoop<3>& strided, const RepeatedRow& row, PairWidths width,
                    PairLoop loop, const KernelContext& k) {
  const int64_t inner = strided.inner_count(), leading = strided.outer_count() / row.rows;
  const int64_t blocks = (row.rows + row.at_once - 1) / row.at_once;
  const auto* left = k.input<std::byte>(0);
  const auto* right = k.input<std::byte>(1);
  auto* result = k.output<std::byte>(0);
  k.pool().ParallelFor(
      leading * blocks, 1 + 16384 / (row.at_once * inner), [&](int64_t begin, int64_t end) {
        alignas(64) std::array<std::byte, RepeatedRow::kBytes> copies;
        const std::byte* copied = nullptr;
        for (int64_t block = begin; block < end; ++block) {
          const int64_t first = block % blocks * row.at_once;
          const int64_t count = std::min(row.at_once, row.rows - first) * inner;
          const int64_t leader = block / blocks;
          strided.ForLeading(strided.dims.size() - 2, leader, leader + 1, [&](const auto& at) {
            const auto* a = left + at[1] * width.a;
            const auto* b = right + at[2] * width.b;
            const std::byte*& repeated = row.operand == 1 ? a : b;
            const auto bytes = static_cast<size_t>(inner * (row.operand == 1 ? width.a : width.b));
            if (copied != repeated) {
              for (int64_t i = 0; i < row.at_once; ++i) {
                std::memcpy(copies.data() + static_cast<size_t>(i) * bytes, repeated, bytes);
              }
              copied = repeated;
            }
            repeated = copies.data();
            const std::byte*& other = row.operand == 1 ? b : a;
            other += first * inner * (row.operand == 1 ? width.b : width.a);
            loop(a, b, result + (at[0] + first * inner) * width.out, count, 1, 1);
          });
        }
      });
}

std::unique_ptr<Kernel> PairKernel(PairWidths width, PairLoop loop) {
  return MakeKernel([width, loop](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& out = context.OutputShape(0);
    const Shape a = context.InputShape(0);
    const Shape b = LegacyBroadcastShape(context.node, a, context.InputShape(1));
    ONNXD_RETURN_IF_ERROR(CheckBroadcast(context.node, a, out));
    ONNXD_RETURN_IF_ERROR(CheckBroadcast(context.node, b, out));
    const auto strided = BroadcastLoop<2>(out, {&a, &b});
    PreparedKernel prepared;
    if (width.a == width.out && a == out) prepared.in_place.push_back({0, 0});
    if (width.b == width.out && b == out) prepared.in_place.push_back({0, 1});
    const bool empty = out.ElementCount() == 0;
    if (const auto row = RepeatedRowOf(strided, width); row && !empty) {
      prepared.compute = [strided, row = *row, loop, width](const KernelContext& k) {
        CombineWithRow(strided, row, width, loop, k);
        return Status::Ok();
      };
      return prepared;
    }
    prepared.compute = [strided, loop, empty, width](const KernelContext& k) {
      if (empty) return Status::Ok();
      const auto* left = k.input<std::byte>(0);
      const auto* right = k.input<std::byte>(1);
      auto* result = k.output<std::byte>(0);
      const int64_t inner = strided.inner_count(), outer = strided.outer_count();
      const int64_t a_step = strided.inner_stride(1), b_step = strided.inner_stride(2);
      if (outer == 1) {
        k.pool().ParallelFor(inner, 16384, [&](int64_t begin, int64_t end) {
          loop(left + begin * a_step * width.a, right + begin * b_step * width.b,
               result + begin * width.out, end - begin, a_step, b_step);
        });
        return Status::Ok();
      }
      k.pool().ParallelFor(outer, 1 + 16384 / inner, [&](int64_t begin, int64_t end) {
        strided.ForOuter(begin, end, [&](const std::array<int64_t, 3>& at) {
          loop(left + at[1] * width.a, right + at[2] * width.b, result + at[0] * width.out, inner,
               a_step, b_step);
        });
      });
      return Status::Ok();
    };
    return prepared;
  });
}

template <typename A, typename B, typename Out, typename Function>
void PairLoopOf(const void* a, const void* b, void* out, int64_t count, int64_t a_step,
                int64_t b_step) {
  const auto* left = static_cast<const A*>(a);
  const auto* right = static_cast<const B*>(b);
  auto* result = static_cast<Out*>(out);
  const Function function;
  for (int64_t i = 0; i < count; ++i) result[i] = function(left[i * a_step], right[i * b_step]);
}

// `function` is a lambda without captures.
template <typename A, typename B, typename Out, typename Function>
std::unique_ptr<Kernel> PairFunction(Function) {
  return PairKernel({sizeof(A), sizeof(B), sizeof(Out)}, PairLoopOf<A, B, Out, Function>);
}

template <math::Binary op>
void SimdPairLoop(const void* a, const void* b, void* out, int64_t count, int64_t a_step,
                  int64_t b_step) {
  const auto* left = static_cast<const float*>(a);
  const auto* right = static_cast<const float*>(b);
  auto* result = static_cast<float*>(out);
  const math::Simd& simd = math::CurrentSimd();
  if (a_step + b_step > 0) {
    simd.binary(op, left, right, result, count, a_step, b_step);
    return;
  }
  for (int64_t i = 0; i < count; ++i) simd.binary(op, left, right, result + i, 1, 1, 1);
}

template <math::Binary op>
std::unique_ptr<Kernel> SimdPair() {
  return PairKernel({sizeof(float), sizeof(float), sizeof(float)}, SimdPairLoop<op>);
}

// Integers wrap around, as two's complement does.
template <typename T, typename Function>
T Wrapping(T a, T b, Function function) {
  if constexpr (std::is_floating_point_v<T>) {
    return function(a, b);
  } else {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(function(static_cast<uint64_t>(static_cast<U>(a)),
                                   static_cast<uint64_t>(static_cast<U>(b))));
  }
}

template <math::Binary simd, typename Function>
Result<std::unique_ptr<Kernel>> ArithmeticKernel(const KernelInfo& info, Function function) {
  if (info.InputType(0) == DataType::kFloat) return SimdPair<simd>();
  std::unique_ptr<Kernel> kernel;
  DispatchNumber(info.InputType(0),
                 [&]<typename T>() { kernel = PairFunction<T, T, T>(function); });
  if (kernel == nullptr) return DeclineType(info.node.op_type, info.InputType(0));
  return kernel;
}

template <typename Function>
Result<std::unique_ptr<Kernel>> ComparisonKernel(const KernelInfo& info, Function function) {
  std::unique_ptr<Kernel> kernel;
  if (info.InputType(0) == DataType::kBool) {
    return PairFunction<uint8_t, uint8_t, bool>(function);
  }
  DispatchNumber(info.InputType(0),
                 [&]<typename T>() { kernel = PairFunction<T, T, bool>(function); });
  if (kernel == nullptr) return DeclineType(info.node.op_type, info.InputType(0));
  return kernel;
}

template <typename Function>
Result<std::unique_ptr<Kernel>> IntegerKernel(const KernelInfo& info, Function function) {
  std::unique_ptr<Kernel> kernel;
  DispatchNumber(info.InputType(0), [&]<typename T>() {
    if constexpr (std::is_integral_v<T>) kernel = PairFunction<T, T, T>(function);
  });
  if (kernel == nullptr) return DeclineType(info.node.op_type, info.InputType(0));
  return kernel;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeAdd(const KernelInfo& info) {
  return ArithmeticKernel<math::Binary::kAdd>(
      info, [](auto a, auto b) { return Wrapping(a, b, [](auto x, auto y) { return x + y; }); });
}

Result<std::unique_ptr<Kernel>> MakeSub(const KernelInfo& info) {
  return ArithmeticKernel<math::Binary::kSub>(
      info, [](auto a, auto b) { return Wrapping(a, b, [](auto x, auto y) { return x - y; }); });
}

Result<std::unique_ptr<Kernel>> MakeMul(const KernelInfo& info) {
  return ArithmeticKernel<math::Binary::kMul>(
      info, [](auto a, auto b) { return Wrapping(a, b, [](auto x, auto y) { return x * y; }); });
}

// Integer division truncates; by zero it gives 0, and the smallest integer by -1 gives itself.
Result<std::unique_ptr<Kernel>> MakeDiv(const KernelInfo& info) {
  return ArithmeticKernel<math::Binary::kDiv>(info, [](auto a, auto b) {
    using T = decltype(a);
    if constexpr (std::is_floating_point_v<T>) {
      return a / b;
    } else {
      if (b == T(0)) return T(0);
      if constexpr (std::is_signed_v<T>) {
        if (b == T(-1)) {
          return static_cast<T>(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(a));
        }
      }
      return static_cast<T>(a / b);
    }
  });
}

// Integer Mod takes the divisor's sign (Python's %), fmod=1 the dividend's (C's fmod); by zero: 0.
Result<std::unique_ptr<Kernel>> MakeMod(const KernelInfo& info) {
  const auto kernel_of = [&]<bool c_style>() {
    const auto mod = [](auto a, auto b) {
      using T = decltype(a);
      if constexpr (std::is_floating_point_v<T>) {
        return std::fmod(a, b);
      } else {
        if (b == T(0)) return T(0);
        if constexpr (std::is_signed_v<T>) {
          if (b == T(-1)) return T(0);
        }
        T rest = static_cast<T>(a % b);
        if (!c_style && rest != 0 && ((rest < 0) != (b < 0))) rest = static_cast<T>(rest + b);
        return rest;
      }
    };
    std::unique_ptr<Kernel> kernel;
    DispatchNumber(info.InputType(0), [&]<typename T>() { kernel = PairFunction<T, T, T>(mod); });
    return kernel;
  };
  auto kernel = info.node.attributes.Int("fmod", 0) != 0 ? kernel_of.operator()<true>()
                                                         : kernel_of.operator()<false>();
  if (kernel == nullptr) return DeclineType("Mod", info.InputType(0));
  return kernel;
}

namespace {

// Strings are equal or not; their order is no operator's.
Result<std::vector<Value>> EqualStrings(const Node&, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& y = inputs[1].tensor();
  ONNXD_ASSIGN_OR_RETURN(const SymbolicShape shape,
                         Broadcast(ToSymbolic(x.shape()), ToSymbolic(y.shape())));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kBool, *ToConcrete(shape)));
  const auto loop = BroadcastLoop<2>(out.shape(), {&x.shape(), &y.shape()});
  if (out.ElementCount() > 0) {
    loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
      for (int64_t i = 0; i < loop.inner_count(); ++i) {
        out.mutable_data<bool>()[at[0] + i * loop.inner_stride(0)] =
            x.data<std::string>()[at[1] + i * loop.inner_stride(1)] ==
            y.data<std::string>()[at[2] + i * loop.inner_stride(2)];
      }
    });
  }
  return std::vector<Value>{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeEqual(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kString) return MakeEagerKernel(EqualStrings);
  return ComparisonKernel(info, [](auto a, auto b) { return a == b; });
}
Result<std::unique_ptr<Kernel>> MakeLess(const KernelInfo& info) {
  return ComparisonKernel(info, [](auto a, auto b) { return a < b; });
}
Result<std::unique_ptr<Kernel>> MakeLessOrEqual(const KernelInfo& info) {
  return ComparisonKernel(info, [](auto a, auto b) { return a <= b; });
}
Result<std::unique_ptr<Kernel>> MakeGreater(const KernelInfo& info) {
  return ComparisonKernel(info, [](auto a, auto b) { return a > b; });
}
Result<std::unique_ptr<Kernel>> MakeGreaterOrEqual(const KernelInfo& info) {
  return ComparisonKernel(info, [](auto a, auto b) { return a >= b; });
}

Result<std::unique_ptr<Kernel>> MakeAnd(const KernelInfo&) {
  return PairFunction<uint8_t, uint8_t, bool>(
      [](uint8_t a, uint8_t b) { return a != 0 && b != 0; });
}
Result<std::unique_ptr<Kernel>> MakeOr(const KernelInfo&) {
  return PairFunction<uint8_t, uint8_t, bool>(
      [](uint8_t a, uint8_t b) { return a != 0 || b != 0; });
}
Result<std::unique_ptr<Kernel>> MakeXor(const KernelInfo&) {
  return PairFunction<uint8_t, uint8_t, bool>(
      [](uint8_t a, uint8_t b) { return (a != 0) != (b != 0); });
}

Result<std::unique_ptr<Kernel>> MakeBitwiseAnd(const KernelInfo& info) {
  return IntegerKernel(info, [](auto a, auto b) { return static_cast<decltype(a)>(a & b); });
}
Result<std::unique_ptr<Kernel>> MakeBitwiseOr(const KernelInfo& info) {
  return IntegerKernel(info, [](auto a, auto b) { return static_cast<decltype(a)>(a | b); });
}
Result<std::unique_ptr<Kernel>> MakeBitwiseXor(const KernelInfo& info) {
  return IntegerKernel(info, [](auto a, auto b) { return static_cast<decltype(a)>(a ^ b); });
}

namespace {

// Pairs of types that are rare.
Result<std::vector<Value>> PowThroughDouble(const Node&, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& y = inputs[1].tensor();
  ONNXD_ASSIGN_OR_RETURN(const SymbolicShape shape,
                         Broadcast(ToSymbolic(x.shape()), ToSymbolic(y.shape())));
  const Shape out_shape = *ToConcrete(shape);
  const std::vector<double> a = ElementsAs<double>(x), b = ElementsAs<double>(y);
  std::vector<double> out(static_cast<size_t>(out_shape.ElementCount()));
  const auto loop = BroadcastLoop<2>(out_shape, {&x.shape(), &y.shape()});
  if (!out.empty()) {
    loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
      for (int64_t i = 0; i < loop.inner_count(); ++i) {
        out[static_cast<size_t>(at[0] + i * loop.inner_stride(0))] =
            std::pow(a[static_cast<size_t>(at[1] + i * loop.inner_stride(1))],
                     b[static_cast<size_t>(at[2] + i * loop.inner_stride(2))]);
      }
    });
  }
  return OneValue(TensorFrom(x.type(), out_shape, out));
}

}  // namespace

namespace {

// Squares and cubes are products.
float PowerOf(float x, float y) {
  if (y == 2) return x * x;
  if (y == 3) return x * x * x;
  return std::pow(x, y);
}

void PowerLoop(const void* a, const void* b, void* out, int64_t count, int64_t a_step,
               int64_t b_step) {
  const auto* x = static_cast<const float*>(a);
  const auto* y = static_cast<const float*>(b);
  auto* result = static_cast<float*>(out);
  const bool is_product = b_step == 0 && a_step == 1 && (*y == 2 || *y == 3);
  if (!is_product) {
    for (int64_t i = 0; i < count; ++i) result[i] = PowerOf(x[i * a_step], y[i * b_step]);
    return;
  }
  constexpr int64_t kChunk = 256;
  const math::Simd& simd = math::CurrentSimd();
  const bool is_cube = *y == 3;
  for (int64_t i = 0; i < count; i += kChunk) {
    const int64_t n = std::min(kChunk, count - i);
    float squares[kChunk];  // result may be x
    simd.binary(math::Binary::kMul, x + i, x + i, is_cube ? squares : result + i, n, 1, 1);
    if (is_cube) simd.binary(math::Binary::kMul, squares, x + i, result + i, n, 1, 1);
  }
}

// Steps that the compiler knows.
template <int64_t slope_step>
void PReluRow(const float* x, const float* slope, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    out[i] = x[i] < 0 ? x[i] * slope[i * slope_step] : x[i];
  }
}

void PReluLoop(const void* a, const void* b, void* out, int64_t count, int64_t a_step,
               int64_t b_step) {
  const auto* x = static_cast<const float*>(a);
  const auto* slope = static_cast<const float*>(b);
  auto* result = static_cast<float*>(out);
  if (a_step == 1 && b_step == 0) return PReluRow<0>(x, slope, result, count);
  if (a_step == 1 && b_step == 1) return PReluRow<1>(x, slope, result, count);
  for (int64_t i = 0; i < count; ++i) {
    const float value = x[i * a_step];
    result[i] = value < 0 ? value * slope[i * b_step] : value;
  }
}

}  // namespace

// x ** y with the type of x; integers go through double, as exponents of other types do.
Result<std::unique_ptr<Kernel>> MakePow(const KernelInfo& info) {
  const DataType base = info.InputType(0), exponent = info.InputType(1);
  if (!IsNumber(base) || !IsNumber(exponent)) return DeclineType("Pow", base);
  if (base == DataType::kFloat && exponent == DataType::kFloat) {
    return PairKernel({sizeof(float), sizeof(float), sizeof(float)}, PowerLoop);
  }
  const auto power = [](auto x, auto y) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>) {
      if (y == decltype(y)(2)) return x * x;
      if (y == decltype(y)(3)) return x * x * x;
      return static_cast<T>(std::pow(x, static_cast<T>(y)));
    } else {
      const double result = std::pow(static_cast<double>(x), static_cast<double>(y));
      if (!(result > static_cast<double>(std::numeric_limits<T>::lowest()))) {
        return result != result ? T(0) : std::numeric_limits<T>::lowest();
      }
      if (result >= static_cast<double>(std::numeric_limits<T>::max())) {
        return std::numeric_limits<T>::max();
      }
      return static_cast<T>(result);
    }
  };
  std::unique_ptr<Kernel> kernel;
  const auto make = [&]<typename X, typename Y>() { kernel = PairFunction<X, Y, X>(power); };
  // The pairs that exporters write; the rest is declined by name.
  const auto with_exponent = [&]<typename X>() {
    if (exponent == DataType::kFloat) make.template operator()<X, float>();
    if (exponent == DataType::kDouble) make.template operator()<X, double>();
    if (exponent == DataType::kInt32) make.template operator()<X, int32_t>();
    if (exponent == DataType::kInt64) make.template operator()<X, int64_t>();
  };
  if (base == DataType::kFloat) with_exponent.operator()<float>();
  if (base == DataType::kDouble) with_exponent.operator()<double>();
  if (base == DataType::kInt32) with_exponent.operator()<int32_t>();
  if (base == DataType::kInt64) with_exponent.operator()<int64_t>();
  if (kernel == nullptr) return MakeEagerKernel(PowThroughDouble);
  return kernel;
}

// PRelu: the slope broadcasts to x in one direction; before version 7 a slope per channel is [C].
Result<std::unique_ptr<Kernel>> MakePRelu(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kFloat) {
    return PairKernel({sizeof(float), sizeof(float), sizeof(float)}, PReluLoop);
  }
  std::unique_ptr<Kernel> kernel;
  DispatchNumber(info.InputType(0), [&]<typename T>() {
    kernel = PairFunction<T, T, T>(
        [](T x, T slope) { return x < T(0) ? static_cast<T>(x * slope) : x; });
  });
  if (kernel == nullptr) return DeclineType("PRelu", info.InputType(0));
  return kernel;
}

namespace {

enum class Fold { kMax, kMin, kSum };

template <typename T>
T Folded(Fold fold, T left, T right) {
  if (fold == Fold::kMax) return left != left || left > right ? left : right;
  if (fold == Fold::kMin) return left != left || left < right ? left : right;
  return static_cast<T>(left + right);
}

// One row of an input into the result, [n].
template <typename T>
void FoldRow(Fold fold, T* result, const T* in, int64_t n, int64_t step) {
  if constexpr (std::is_same_v<T, float>) {
    const math::Binary op = fold == Fold::kMax   ? math::Binary::kMax
                            : fold == Fold::kMin ? math::Binary::kMin
                                                 : math::Binary::kAdd;
    math::CurrentSimd().binary(op, result, in, result, n, 1, step);
  } else {
    for (int64_t i = 0; i < n; ++i) result[i] = Folded(fold, result[i], in[i * step]);
  }
}

}  // namespace

// Max, Min, Sum and Mean take any number of inputs: they are folded into the output.
Result<std::unique_ptr<Kernel>> MakeVariadic(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  const std::string& op = info.node.op_type;
  const bool mean = op == "Mean";
  const Fold fold = op == "Max" ? Fold::kMax : op == "Min" ? Fold::kMin : Fold::kSum;
  if (!IsNumber(type)) return DeclineType(op, type);
  if (type == DataType::kFloat && info.node.inputs.size() == 2 && !mean) {
    if (fold == Fold::kMax) return SimdPair<math::Binary::kMax>();
    if (fold == Fold::kMin) return SimdPair<math::Binary::kMin>();
    return SimdPair<math::Binary::kAdd>();
  }
  return MakeKernel([type, fold, mean](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& out = context.OutputShape(0);
    std::vector<StridedLoop<2>> loops;
    for (const OperandInfo& input : context.inputs) {
      loops.push_back(BroadcastLoop<1>(out, {input.shape}));
    }
    const int64_t count = out.ElementCount();
    PreparedKernel prepared;
    prepared.compute = [type, fold, mean, loops, count](const KernelContext& k) {
      if (count == 0) return Status::Ok();
      DispatchNumber(type, [&]<typename T>() {
        T* result = k.output<T>(0);
        CopyStrided(loops[0], sizeof(T), result, k.input<T>(0));
        for (size_t i = 1; i < loops.size(); ++i) {
          const T* in = k.input<T>(i);
          const StridedLoop<2>& loop = loops[i];
          loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 2>& at) {
            FoldRow(fold, result + at[0], in + at[1], loop.inner_count(), loop.inner_stride(1));
          });
        }
        if (!mean) return;
        const T inputs = static_cast<T>(loops.size());
        for (int64_t i = 0; i < count; ++i) result[i] = static_cast<T>(result[i] / inputs);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

// Steps are 0 or 1, those of the output first; the usual ones get loops that compilers vectorize.
template <typename T>
void SelectElements(const uint8_t* condition, const T* x, const T* y, T* out, int64_t count,
                    const std::array<int64_t, 4>& step) {
  if (step[1] == 0) {  // one condition for all
    const T* from = *condition != 0 ? x : y;
    const int64_t advance = *condition != 0 ? step[2] : step[3];
    for (int64_t i = 0; i < count; ++i) out[i] = from[i * advance];
  } else if (step[2] == 0 && step[3] == 0) {
    const T yes = *x, no = *y;
    for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? yes : no;
  } else if (step[2] == 0) {
    const T yes = *x;
    for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? yes : y[i];
  } else if (step[3] == 0) {
    const T no = *y;
    for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? x[i] : no;
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = condition[i] != 0 ? x[i] : y[i];
  }
}

// Where(condition, X, Y).
Result<std::unique_ptr<Kernel>> MakeWhere(const KernelInfo& info) {
  const DataType type = info.InputType(1);
  if (!IsMovable(type)) return DeclineType("Where", type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& out = context.OutputShape(0);
    const auto loop = BroadcastLoop<3>(
        out, {context.inputs[0].shape, context.inputs[1].shape, context.inputs[2].shape});
    const bool empty = out.ElementCount() == 0;
    PreparedKernel prepared;
    prepared.compute = [type, loop, empty](const KernelContext& k) {
      if (empty) return Status::Ok();
      DispatchWidth(type, [&]<typename T>() {
        const std::array<int64_t, 4> step = {loop.inner_stride(0), loop.inner_stride(1),
                                             loop.inner_stride(2), loop.inner_stride(3)};
        loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 4>& at) {
          SelectElements(k.input<uint8_t>(0) + at[1], k.input<T>(1) + at[2], k.input<T>(2) + at[3],
                         k.output<T>(0) + at[0], loop.inner_count(), step);
        });
      });
      return Status::Ok();
    };
    return prepared;
  });
}

// com.microsoft BiasGelu and FastGelu: gelu of X plus a row, exact or by tanh.
Result<std::unique_ptr<Kernel>> MakeBiasGelu(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  const auto gelu = info.node.op_type == "FastGelu" ? math::Unary::kFastGelu : math::Unary::kGelu;
  return MakeKernel([gelu](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& x = context.InputShape(0);
    const int64_t count = x.ElementCount();
    int64_t row = std::max<int64_t>(count, 1);
    if (context.HasInput(1)) {
      row = context.InputShape(1).ElementCount();
      if (x.rank() < 1 || row != x[x.rank() - 1]) {
        return InvalidArgument(StrCat(Describe(context.node), ": bias of shape ",
                                      context.InputShape(1).ToString(), " for an input of shape ",
                                      x.ToString()));
      }
    }
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [=](const KernelContext& k) {
      const math::Simd& simd = math::CurrentSimd();
      const int64_t rows = count / std::max<int64_t>(1, row);
      k.pool().ParallelFor(rows, 1 + 4096 / std::max<int64_t>(1, row), [&](int64_t b, int64_t e) {
        for (int64_t i = b; i < e; ++i) {
          const float* in = k.input<float>(0) + i * row;
          float* out = k.output<float>(0) + i * row;
          if (const float* bias = k.input<float>(1)) {
            simd.binary(math::Binary::kAdd, in, bias, out, row, 1, 1);
            in = out;
          }
          simd.unary(gelu, in, out, row);
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
