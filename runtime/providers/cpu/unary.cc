// Elementwise operators of one input.
#include <cmath>
#include <limits>
#include <string_view>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kGrain = 16384;

// Applies an operator to `count` elements; the two may be the same memory. Erased to pointers so
// that the kernel around it is compiled once.
using ElementLoop = std::function<void(const void* in, void* out, int64_t count)>;

std::unique_ptr<Kernel> ElementwiseKernel(int64_t width, ElementLoop loop) {
  return MakeKernel([width, loop](const PrepareContext& context) -> Result<PreparedKernel> {
    const int64_t count = context.InputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [width, loop, count](const KernelContext& k) {
      const auto* in = k.input<std::byte>(0);
      auto* out = k.output<std::byte>(0);
      k.pool().ParallelFor(count, kGrain, [&](int64_t begin, int64_t end) {
        loop(in + begin * width, out + begin * width, end - begin);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

template <typename T, typename Function>
std::unique_ptr<Kernel> PerElement(Function function) {
  return ElementwiseKernel(sizeof(T), [function](const void* in, void* out, int64_t n) {
    const auto* from = static_cast<const T*>(in);
    auto* to = static_cast<T*>(out);
    const Function own = function;  // whose parameters `to` cannot point to
    for (int64_t i = 0; i < n; ++i) to[i] = own(from[i]);
  });
}

// The float path of math::Simd, and the same operator in double.
template <typename Function>
Result<std::unique_ptr<Kernel>> SimdOr(const KernelInfo& info, math::Unary op, Function function) {
  if (info.InputType(0) == DataType::kFloat) {
    return ElementwiseKernel(sizeof(float), [op](const void* in, void* out, int64_t n) {
      math::CurrentSimd().unary(op, static_cast<const float*>(in), static_cast<float*>(out), n);
    });
  }
  if (info.InputType(0) == DataType::kDouble) return PerElement<double>(function);
  return DeclineType(info.node.op_type, info.InputType(0));
}

template <typename Function>
Result<std::unique_ptr<Kernel>> FloatOrDouble(const KernelInfo& info, Function function) {
  if (info.InputType(0) == DataType::kFloat) return PerElement<float>(function);
  if (info.InputType(0) == DataType::kDouble) return PerElement<double>(function);
  return DeclineType(info.node.op_type, info.InputType(0));
}

template <typename Function>
Result<std::unique_ptr<Kernel>> AnyNumber(const KernelInfo& info, Function function) {
  std::unique_ptr<Kernel> kernel;
  DispatchNumber(info.InputType(0), [&]<typename T>() { kernel = PerElement<T>(function); });
  if (kernel == nullptr) return DeclineType(info.node.op_type, info.InputType(0));
  return kernel;
}

// `loop(simd, in, out, count)` for floats, the same operator in double.
template <typename Loop, typename Function>
Result<std::unique_ptr<Kernel>> SimdLoopOr(const KernelInfo& info, Loop loop, Function function) {
  if (info.InputType(0) == DataType::kFloat) {
    return ElementwiseKernel(sizeof(float), [loop](const void* in, void* out, int64_t n) {
      loop(math::CurrentSimd(), static_cast<const float*>(in), static_cast<float*>(out), n);
    });
  }
  if (info.InputType(0) == DataType::kDouble) return PerElement<double>(function);
  return DeclineType(info.node.op_type, info.InputType(0));
}

template <typename T>
T Sigmoid(T x) {
  return T(1) / (T(1) + std::exp(-x));
}

template <typename T>
T Softplus(T x) {
  return x > T(0) ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
}

}  // namespace

#define ONNXD_FLOAT_UNARY(Name, expression)                            \
  Result<std::unique_ptr<Kernel>> Make##Name(const KernelInfo& info) { \
    return FloatOrDouble(info, [](auto x) { return expression; });     \
  }

ONNXD_FLOAT_UNARY(Acosh, std::acosh(x))
ONNXD_FLOAT_UNARY(Asinh, std::asinh(x))
ONNXD_FLOAT_UNARY(Atanh, std::atanh(x))
ONNXD_FLOAT_UNARY(Cosh, std::cosh(x))
ONNXD_FLOAT_UNARY(Reciprocal, decltype(x)(1) / x)
ONNXD_FLOAT_UNARY(Sinh, std::sinh(x))
ONNXD_FLOAT_UNARY(Softsign, x / (decltype(x)(1) + std::abs(x)))
ONNXD_FLOAT_UNARY(Tan, std::tan(x))

#undef ONNXD_FLOAT_UNARY

#define ONNXD_SIMD_UNARY(Name, expression)                                        \
  Result<std::unique_ptr<Kernel>> Make##Name(const KernelInfo& info) {            \
    return SimdOr(info, math::Unary::k##Name, [](auto x) { return expression; }); \
  }

ONNXD_SIMD_UNARY(Ceil, std::ceil(x))
ONNXD_SIMD_UNARY(Acos, std::acos(x))
ONNXD_SIMD_UNARY(Asin, std::asin(x))
ONNXD_SIMD_UNARY(Atan, std::atan(x))
ONNXD_SIMD_UNARY(Cos, std::cos(x))
ONNXD_SIMD_UNARY(Floor, std::floor(x))
ONNXD_SIMD_UNARY(Log, std::log(x))
ONNXD_SIMD_UNARY(Mish, x* std::tanh(Softplus(x)))
ONNXD_SIMD_UNARY(Round, std::nearbyint(x))
ONNXD_SIMD_UNARY(Sin, std::sin(x))
ONNXD_SIMD_UNARY(Softplus, Softplus(x))

#undef ONNXD_SIMD_UNARY

Result<std::unique_ptr<Kernel>> MakeRelu(const KernelInfo& info) {
  if (info.InputType(0) == DataType::kFloat) {
    return SimdOr(info, math::Unary::kRelu, [](auto x) { return x; });
  }
  return AnyNumber(info, [](auto x) { return x < decltype(x)(0) ? decltype(x)(0) : x; });
}

Result<std::unique_ptr<Kernel>> MakeSigmoid(const KernelInfo& info) {
  return SimdOr(info, math::Unary::kSigmoid, [](auto x) { return Sigmoid(x); });
}

Result<std::unique_ptr<Kernel>> MakeTanh(const KernelInfo& info) {
  return SimdOr(info, math::Unary::kTanh, [](auto x) { return std::tanh(x); });
}

Result<std::unique_ptr<Kernel>> MakeExp(const KernelInfo& info) {
  return SimdOr(info, math::Unary::kExp, [](auto x) { return std::exp(x); });
}

Result<std::unique_ptr<Kernel>> MakeErf(const KernelInfo& info) {
  return SimdOr(info, math::Unary::kErf, [](auto x) { return std::erf(x); });
}

Result<std::unique_ptr<Kernel>> MakeSqrt(const KernelInfo& info) {
  return SimdOr(info, math::Unary::kSqrt, [](auto x) { return std::sqrt(x); });
}

Result<std::unique_ptr<Kernel>> MakeHardSwish(const KernelInfo& info) {
  return SimdOr(info, math::Unary::kHardSwish, [](auto x) {
    return x * std::min(std::max(x / 6 + decltype(x)(0.5), decltype(x)(0)), decltype(x)(1));
  });
}

Result<std::unique_ptr<Kernel>> MakeGelu(const KernelInfo& info) {
  if (info.node.attributes.String("approximate", "none") == "tanh") {
    return SimdOr(info, math::Unary::kFastGelu, [](auto x) {
      using T = decltype(x);
      const T inner = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
      return T(0.5) * x * (T(1) + std::tanh(inner));
    });
  }
  return SimdOr(info, math::Unary::kGelu, [](auto x) {
    using T = decltype(x);
    return T(0.5) * x * (T(1) + std::erf(x * T(0.7071067811865475)));
  });
}

// com.microsoft QuickGelu and ai.onnx Swish: x * sigmoid(alpha * x).
Result<std::unique_ptr<Kernel>> MakeSwish(const KernelInfo& info) {
  const float alpha =
      info.node.attributes.Float("alpha", info.node.op_type == "QuickGelu" ? 1.702f : 1.0f);
  if (alpha == 1.0f) {
    return SimdOr(info, math::Unary::kSilu, [](auto x) { return x * Sigmoid(x); });
  }
  return SimdLoopOr(
      info,
      [alpha](const math::Simd& simd, const float* in, float* out, int64_t n) {
        simd.swish(in, out, n, alpha);
      },
      [alpha](double x) { return x * Sigmoid(static_cast<double>(alpha) * x); });
}

Result<std::unique_ptr<Kernel>> MakeAbs(const KernelInfo& info) {
  return AnyNumber(info, [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>) {
      return std::abs(x);
    } else {
      // Unsigned negation, so that the smallest integer maps to itself.
      return x < T(0) ? static_cast<T>(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(x)) : x;
    }
  });
}

Result<std::unique_ptr<Kernel>> MakeNeg(const KernelInfo& info) {
  return AnyNumber(info, [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>) {
      return -x;
    } else {
      return static_cast<T>(std::make_unsigned_t<T>(0) - std::make_unsigned_t<T>(x));
    }
  });
}

Result<std::unique_ptr<Kernel>> MakeSign(const KernelInfo& info) {
  return AnyNumber(info, [](auto x) {
    using T = decltype(x);
    if (x != x) return x;
    return static_cast<T>((x > T(0)) - (x < T(0)));
  });
}

Result<std::unique_ptr<Kernel>> MakeLeakyRelu(const KernelInfo& info) {
  const float alpha = info.node.attributes.Float("alpha", 0.01f);
  return SimdLoopOr(
      info,
      [alpha](const math::Simd& simd, const float* in, float* out, int64_t n) {
        simd.leaky_relu(in, out, n, alpha);
      },
      [alpha](double x) { return x < 0 ? static_cast<double>(alpha) * x : x; });
}

Result<std::unique_ptr<Kernel>> MakeElu(const KernelInfo& info) {
  const float alpha = info.node.attributes.Float("alpha", 1.0f);
  return SimdLoopOr(
      info,
      [alpha](const math::Simd& simd, const float* in, float* out, int64_t n) {
        simd.elu(in, out, n, 1.0f, alpha, 1.0f);
      },
      [alpha](double x) { return x < 0 ? static_cast<double>(alpha) * std::expm1(x) : x; });
}

Result<std::unique_ptr<Kernel>> MakeCelu(const KernelInfo& info) {
  const float alpha = info.node.attributes.Float("alpha", 1.0f);
  const auto plain = [alpha](auto x) {
    using T = decltype(x);
    return std::max(x, T(0)) + std::min(T(0), T(alpha) * std::expm1(x / T(alpha)));
  };
  if (alpha <= 0) return FloatOrDouble(info, plain);
  return SimdLoopOr(
      info,
      [alpha](const math::Simd& simd, const float* in, float* out, int64_t n) {
        simd.elu(in, out, n, 1.0f, alpha, 1.0f / alpha);
      },
      plain);
}

Result<std::unique_ptr<Kernel>> MakeSelu(const KernelInfo& info) {
  const float alpha = info.node.attributes.Float("alpha", 1.67326319217681884765625f);
  const float gamma = info.node.attributes.Float("gamma", 1.05070102214813232421875f);
  return SimdLoopOr(
      info,
      [alpha, gamma](const math::Simd& simd, const float* in, float* out, int64_t n) {
        simd.elu(in, out, n, gamma, gamma * alpha, 1.0f);
      },
      [alpha, gamma](double x) {
        return static_cast<double>(gamma) *
               (x > 0 ? x : static_cast<double>(alpha) * std::expm1(x));
      });
}

Result<std::unique_ptr<Kernel>> MakeHardSigmoid(const KernelInfo& info) {
  const float alpha = info.node.attributes.Float("alpha", 0.2f);
  const float beta = info.node.attributes.Float("beta", 0.5f);
  return FloatOrDouble(info, [alpha, beta](auto x) {
    using T = decltype(x);
    return std::max(T(0), std::min(T(1), T(alpha) * x + T(beta)));
  });
}

Result<std::unique_ptr<Kernel>> MakeThresholdedRelu(const KernelInfo& info) {
  const float alpha = info.node.attributes.Float("alpha", 1.0f);
  return FloatOrDouble(info, [alpha](auto x) { return x > decltype(x)(alpha) ? x : 0; });
}

Result<std::unique_ptr<Kernel>> MakeShrink(const KernelInfo& info) {
  const float bias = info.node.attributes.Float("bias", 0.0f);
  const float lambda = info.node.attributes.Float("lambd", 0.5f);
  return FloatOrDouble(info, [bias, lambda](auto x) {
    using T = decltype(x);
    return x < -T(lambda) ? x + T(bias) : x > T(lambda) ? x - T(bias) : T(0);
  });
}

Result<std::unique_ptr<Kernel>> MakeNot(const KernelInfo&) {
  return PerElement<uint8_t>([](uint8_t x) { return static_cast<uint8_t>(x == 0); });
}

namespace {

template <typename T>
constexpr T Infinity = std::numeric_limits<T>::infinity();

// Float tests whose result is bool.
template <typename Predicate>
Result<std::unique_ptr<Kernel>> PredicateKernel(const KernelInfo& info, Predicate predicate) {
  const DataType type = info.InputType(0);
  if (!IsFloatOrDouble(type)) return DeclineType(info.node.op_type, type);
  return MakeKernel([type, predicate](const PrepareContext& context) -> Result<PreparedKernel> {
    const int64_t count = context.InputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.compute = [type, predicate, count](const KernelContext& k) {
      DispatchFloat(type, [&]<typename T>() {
        const T* x = k.input<T>(0);
        bool* out = k.output<bool>(0);
        for (int64_t i = 0; i < count; ++i) out[i] = predicate(x[i]);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeIsNaN(const KernelInfo& info) {
  return PredicateKernel(info, [](auto x) { return std::isnan(x); });
}

Result<std::unique_ptr<Kernel>> MakeIsInf(const KernelInfo& info) {
  const bool positive = info.node.attributes.Int("detect_positive", 1) != 0;
  const bool negative = info.node.attributes.Int("detect_negative", 1) != 0;
  // One comparison each, so that compilers take many numbers at once.
  if (positive && negative) {
    return PredicateKernel(info, [](auto x) { return std::abs(x) == Infinity<decltype(x)>; });
  }
  if (positive) return PredicateKernel(info, [](auto x) { return x == Infinity<decltype(x)>; });
  if (negative) return PredicateKernel(info, [](auto x) { return x == -Infinity<decltype(x)>; });
  return PredicateKernel(info, [](auto) { return false; });
}

}  // namespace onnxd
