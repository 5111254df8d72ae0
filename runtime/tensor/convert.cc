#include "runtime/tensor/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// Elements of a tile; a multiple of 4, so that tiles of packed types begin at a byte.
constexpr int64_t kTile = 1024;

// Whole numbers travel through int64, all others through double: 2n loops instead of n * n.
bool IsWhole(DataType type) {
  return type == DataType::kBool || (IsInteger(type) && type != DataType::kUint64);
}

struct Tile {
  int64_t whole[kTile];
  double real[kTile];
};

template <typename T>
void LoadAll(const void* in, int64_t begin, int64_t n, auto* out) {
  const T* source = static_cast<const T*>(in) + begin;
  using Out = std::remove_reference_t<decltype(*out)>;
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
      out[i] = static_cast<Out>(static_cast<float>(source[i]));
    } else {
      out[i] = static_cast<Out>(source[i]);
    }
  }
}

unsigned PackedCode(const void* in, int64_t index, int bits) {
  const auto* bytes = static_cast<const uint8_t*>(in);
  const int64_t bit = index * bits;
  return (bytes[bit / 8] >> (bit % 8)) & ((1u << bits) - 1);
}

void LoadPacked(const void* in, int64_t begin, int64_t n, int bits, bool is_signed, int64_t* out) {
  const auto half = int64_t{1} << (bits - 1);
  for (int64_t i = 0; i < n; ++i) {
    const auto code = static_cast<int64_t>(PackedCode(in, begin + i, bits));
    out[i] = is_signed ? (code ^ half) - half : code;
  }
}

void Load(DataType type, const void* in, int64_t begin, int64_t n, Tile& tile) {
  switch (type) {
    case DataType::kFloat:
      return LoadAll<float>(in, begin, n, tile.real);
    case DataType::kDouble:
      return LoadAll<double>(in, begin, n, tile.real);
    case DataType::kFloat16:
      return LoadAll<Float16>(in, begin, n, tile.real);
    case DataType::kBfloat16:
      return LoadAll<Bfloat16>(in, begin, n, tile.real);
    case DataType::kUint64:
      return LoadAll<uint64_t>(in, begin, n, tile.real);
    case DataType::kBool:
    case DataType::kUint8:
      return LoadAll<uint8_t>(in, begin, n, tile.whole);
    case DataType::kInt8:
      return LoadAll<int8_t>(in, begin, n, tile.whole);
    case DataType::kUint16:
      return LoadAll<uint16_t>(in, begin, n, tile.whole);
    case DataType::kInt16:
      return LoadAll<int16_t>(in, begin, n, tile.whole);
    case DataType::kUint32:
      return LoadAll<uint32_t>(in, begin, n, tile.whole);
    case DataType::kInt32:
      return LoadAll<int32_t>(in, begin, n, tile.whole);
    case DataType::kInt64:
      return LoadAll<int64_t>(in, begin, n, tile.whole);
    case DataType::kUint4:
    case DataType::kUint2:
      return LoadPacked(in, begin, n, DataTypeBits(type), false, tile.whole);
    case DataType::kInt4:
    case DataType::kInt2:
      return LoadPacked(in, begin, n, DataTypeBits(type), true, tile.whole);
    default: {
      const int bits = DataTypeBits(type);
      for (int64_t i = 0; i < n; ++i) {
        const auto code = static_cast<uint8_t>(PackedCode(in, begin + i, bits));
        tile.real[i] = MinifloatToFloat(type, code);
      }
    }
  }
}

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0.0;
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
    return T(static_cast<float>(value));
  } else if constexpr (std::is_floating_point_v<T>) {
    return static_cast<T>(value);
  } else {
    return Truncated<T>(value);
  }
}

template <typename T>
T FromWhole(int64_t value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
void StoreAll(const Tile& tile, bool whole, int64_t begin, int64_t n, void* out) {
  T* target = static_cast<T*>(out) + begin;
  if (whole) {
    for (int64_t i = 0; i < n; ++i) target[i] = FromWhole<T>(tile.whole[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) target[i] = FromDouble<T>(tile.real[i]);
  }
}

void StorePackedCode(unsigned code, int64_t index, int bits, void* out) {
  auto* bytes = static_cast<uint8_t*>(out);
  const int64_t bit = index * bits;
  const auto mask = static_cast<uint8_t>(((1u << bits) - 1) << (bit % 8));
  bytes[bit / 8] = static_cast<uint8_t>((bytes[bit / 8] & ~mask) | (code << (bit % 8) & mask));
}

void StorePacked(const Tile& tile, bool whole, int64_t begin, int64_t n, int bits, void* out) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t value = whole ? tile.whole[i] : FromDouble<int64_t>(tile.real[i]);
    StorePackedCode(static_cast<unsigned>(value), begin + i, bits, out);
  }
}

void Store(DataType type, const Tile& tile, bool whole, int64_t begin, int64_t n, void* out,
           const MinifloatOptions& options) {
  switch (type) {
    case DataType::kFloat:
      return StoreAll<float>(tile, whole, begin, n, out);
    case DataType::kDouble:
      return StoreAll<double>(tile, whole, begin, n, out);
    case DataType::kFloat16:
      return StoreAll<Float16>(tile, whole, begin, n, out);
    case DataType::kBfloat16:
      return StoreAll<Bfloat16>(tile, whole, begin, n, out);
    case DataType::kBool:
      return StoreAll<bool>(tile, whole, begin, n, out);
    case DataType::kUint8:
      return StoreAll<uint8_t>(tile, whole, begin, n, out);
    case DataType::kInt8:
      return StoreAll<int8_t>(tile, whole, begin, n, out);
    case DataType::kUint16:
      return StoreAll<uint16_t>(tile, whole, begin, n, out);
    case DataType::kInt16:
      return StoreAll<int16_t>(tile, whole, begin, n, out);
    case DataType::kUint32:
      return StoreAll<uint32_t>(tile, whole, begin, n, out);
    case DataType::kInt32:
      return StoreAll<int32_t>(tile, whole, begin, n, out);
    case DataType::kUint64:
      return StoreAll<uint64_t>(tile, whole, begin, n, out);
    case DataType::kInt64:
      return StoreAll<int64_t>(tile, whole, begin, n, out);
    case DataType::kUint4:
    case DataType::kUint2:
    case DataType::kInt4:
    case DataType::kInt2:
      return StorePacked(tile, whole, begin, n, DataTypeBits(type), out);
    default: {
      const int bits = DataTypeBits(type);
      for (int64_t i = 0; i < n; ++i) {
        const float value =
            whole ? static_cast<float>(tile.whole[i]) : static_cast<float>(tile.real[i]);
        StorePackedCode(FloatToMinifloat(type, value, options), begin + i, bits, out);
      }
    }
  }
}

// As Truncated, without branches: all is computed, and chosen from.
void TruncateFloats(const float* in, int32_t* out, int64_t count) {
  constexpr float kBeyond = 2147483648.0f, kBelow = 2147483520.0f;  // 2^31 and the float before
  for (int64_t i = 0; i < count; ++i) {
    const float x = in[i];
    const float raised = x > -kBeyond ? x : -kBeyond;
    const auto inside = static_cast<int32_t>(raised < kBelow ? raised : kBelow);
    const int32_t kept = x >= kBeyond ? std::numeric_limits<int32_t>::max() : inside;
    out[i] = x == x ? kept : 0;
  }
}

void TruncateFloats(const float* in, int64_t* out, int64_t count) {
  constexpr float kBeyond = 9223372036854775808.0f;
  for (int64_t i = 0; i < count; ++i) {
    const bool inside = in[i] > -kBeyond && in[i] < kBeyond;
    out[i] = inside ? static_cast<int64_t>(in[i]) : Truncated<int64_t>(static_cast<double>(in[i]));
  }
}

void AreNotZero(const void* in, void* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    static_cast<uint8_t*>(out)[i] = static_cast<const float*>(in)[i] != 0.0f ? 1 : 0;
  }
}

template <typename In, typename Out>
void Direct(const void* in, void* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    static_cast<Out*>(out)[i] = static_cast<Out>(static_cast<const In*>(in)[i]);
  }
}

}  // namespace

bool IsConvertible(DataType type) {
  return type == DataType::kBool || IsInteger(type) || IsFloatingPoint(type);
}

void ConvertElements(DataType from, const void* in, DataType to, void* out, int64_t count,
                     const MinifloatOptions& options) {
  using D = DataType;
  if (from == to) {
    std::memmove(out, in, static_cast<size_t>(TensorBytes(from, count).value_or(0)));
    return;
  }
  if (from == D::kInt64 && to == D::kFloat) return Direct<int64_t, float>(in, out, count);
  if (from == D::kInt32 && to == D::kFloat) return Direct<int32_t, float>(in, out, count);
  if (from == D::kUint8 && to == D::kFloat) return Direct<uint8_t, float>(in, out, count);
  if (from == D::kFloat && to == D::kInt32) {
    return TruncateFloats(static_cast<const float*>(in), static_cast<int32_t*>(out), count);
  }
  if (from == D::kFloat && to == D::kInt64) {
    return TruncateFloats(static_cast<const float*>(in), static_cast<int64_t*>(out), count);
  }
  if (from == D::kFloat && to == D::kBool) return AreNotZero(in, out, count);
  if (from == D::kBool && to == D::kFloat) return Direct<uint8_t, float>(in, out, count);
  if (from == D::kInt64 && to == D::kInt32) return Direct<int64_t, int32_t>(in, out, count);
  if (from == D::kInt32 && to == D::kInt64) return Direct<int32_t, int64_t>(in, out, count);
  if (from == D::kUint64 && to == D::kInt64) return Direct<uint64_t, int64_t>(in, out, count);
  if (from == D::kFloat16 && to == D::kFloat) return Direct<Float16, float>(in, out, count);
  if (from == D::kFloat && to == D::kFloat16) return Direct<float, Float16>(in, out, count);
  if (from == D::kBfloat16 && to == D::kFloat) return Direct<Bfloat16, float>(in, out, count);
  if (from == D::kFloat && to == D::kBfloat16) return Direct<float, Bfloat16>(in, out, count);
  Tile tile;
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t n = std::min(kTile, count - begin);
    Load(from, in, begin, n, tile);
    Store(to, tile, IsWhole(from), begin, n, out, options);
  }
}

Result<Tensor> Converted(const Tensor& tensor, DataType to, const MinifloatOptions& options) {
  if (tensor.type() == to) return tensor;
  if (!IsConvertible(tensor.type()) || !IsConvertible(to)) {
    return InvalidArgument(
        StrCat("no conversion from ", DataTypeName(tensor.type()), " to ", DataTypeName(to)));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(to, tensor.shape()));
  if (tensor.ElementCount() > 0) {
    ConvertElements(tensor.type(), tensor.raw(), to, out.mutable_raw(), tensor.ElementCount(),
                    options);
  }
  return out;
}

}  // namespace onnxd
