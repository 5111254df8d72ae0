// Cast between numbers, bool and 16-bit floats; Identity-like casts are views.
//
// Conversions go in tiles through int64 or double, so that n types need 2n loops instead of n * n.
// Out of range: floats saturate to the integer type's limits and NaN becomes 0; integers wrap.
#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kTile = 1024;

template <typename Body>
bool DispatchCastable(DataType type, Body body) {
  if (type == DataType::kBool) {
    body.template operator()<bool>();
    return true;
  }
  if (type == DataType::kFloat16) {
    body.template operator()<Float16>();
    return true;
  }
  if (type == DataType::kBfloat16) {
    body.template operator()<Bfloat16>();
    return true;
  }
  return DispatchNumber(type, body);
}

bool IsCastable(DataType type) {
  return DispatchCastable(type, []<typename T>() {});
}

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0.0;
  } else if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    if (std::isnan(value)) return T(0);
    if (value <= static_cast<double>(std::numeric_limits<T>::lowest())) {
      return std::numeric_limits<T>::lowest();
    }
    if (value >= static_cast<double>(std::numeric_limits<T>::max())) {
      return std::numeric_limits<T>::max();
    }
    return static_cast<T>(value);
  }
}

template <typename T>
T FromInteger(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (kIsHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double ToDouble(T value) {
  if constexpr (kIsHalf<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

template <typename In, typename Out>
void Direct(const void* in, void* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    static_cast<Out*>(out)[i] = static_cast<Out>(static_cast<const In*>(in)[i]);
  }
}

void Through(DataType from, DataType to, const void* in, void* out, int64_t count) {
  const bool integer = !IsFloatingPoint(from) && from != DataType::kUint64;
  int64_t whole[kTile];
  double real[kTile];
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t n = std::min(kTile, count - begin);
    DispatchCastable(from, [&]<typename In>() {
      const In* source = static_cast<const In*>(in) + begin;
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (std::is_integral_v<In> && !std::is_same_v<In, uint64_t>) {
          whole[i] = static_cast<int64_t>(source[i]);
        } else {
          real[i] = ToDouble(source[i]);
        }
      }
    });
    DispatchCastable(to, [&]<typename Out>() {
      Out* target = static_cast<Out*>(out) + begin;
      for (int64_t i = 0; i < n; ++i) {
        target[i] = integer ? FromInteger<Out>(whole[i]) : FromDouble<Out>(real[i]);
      }
    });
  }
}

void Convert(DataType from, DataType to, const void* in, void* out, int64_t count) {
  using D = DataType;
  if (from == D::kInt64 && to == D::kFloat) return Direct<int64_t, float>(in, out, count);
  if (from == D::kInt32 && to == D::kFloat) return Direct<int32_t, float>(in, out, count);
  if (from == D::kUint8 && to == D::kFloat) return Direct<uint8_t, float>(in, out, count);
  if (from == D::kBool && to == D::kFloat) return Direct<bool, float>(in, out, count);
  if (from == D::kInt64 && to == D::kInt32) return Direct<int64_t, int32_t>(in, out, count);
  if (from == D::kInt32 && to == D::kInt64) return Direct<int32_t, int64_t>(in, out, count);
  if (from == D::kUint64 && to == D::kInt64) return Direct<uint64_t, int64_t>(in, out, count);
  Through(from, to, in, out, count);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeCast(const KernelInfo& info) {
  const DataType from = info.InputType(0), to = info.OutputType(0);
  if (from != to && (!IsCastable(from) || !IsCastable(to))) {
    return Unimplemented(
        StrCat("Cast from ", DataTypeName(from), " to ", DataTypeName(to), " is not supported"));
  }
  return MakeKernel([from, to](const PrepareContext& context) -> Result<PreparedKernel> {
    PreparedKernel prepared;
    if (from == to && from != DataType::kString) {
      prepared.views = {{0, 0}};
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    if (from == DataType::kString) {
      prepared.compute = [](const KernelContext& k) {
        k.output_value(0) = k.input_value(0);
        return Status::Ok();
      };
      return prepared;
    }
    const int64_t count = context.InputShape(0).ElementCount();
    prepared.compute = [from, to, count](const KernelContext& k) {
      Convert(from, to, k.input<void>(0), k.output<void>(0), count);
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
