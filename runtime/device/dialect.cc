#include "runtime/device/dialect.h"

#include "runtime/base/str_cat.h"
#include "runtime/device/matrix_units.h"
#include "runtime/device/warpgroup_units.h"

namespace onnxd {
namespace {

constexpr std::string_view kOpenClPrelude = R"(
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
typedef double f64;
#define HAS_F64
#endif
typedef char i8;
typedef short i16;
typedef int i32;
typedef long i64;
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef ulong u64;
typedef float f32;
#define KERNEL __kernel void
#define FUNCTION static
#define GLOBAL __global
#define LOCAL __local
#define BARRIER() barrier(CLK_LOCAL_MEM_FENCE)
#define GROUP(axis) ((i64)get_group_id(axis))
#define GROUPS(axis) ((i64)get_num_groups(axis))
#define LANE(axis) ((i32)get_local_id(axis))
#define LANES(axis) ((i32)get_local_size(axis))
#define INFINITY_F32 INFINITY
#define NAN_F32 NAN
FUNCTION u32 f32_bits(f32 x) { return as_uint(x); }
FUNCTION f32 f32_of_bits(u32 x) { return as_float(x); }
FUNCTION f32 f16_to_f32(u16 x) { return vload_half(0, (const half*)&x); }
FUNCTION u16 f32_to_f16(f32 x) {
  u16 bits;
  vstore_half_rte(x, 0, (half*)&bits);
  return bits;
}
#define MAX_OR_NAN(x, y) ((x) < (y) ? (y) : (x))
#define QUICK_EXP2(x) exp2(x)
#define QUICK_DIVIDE(a, b) ((a) / (b))
#define PAIR_OF_F16(low, high) ((u32)f32_to_f16(low) | (u32)f32_to_f16(high) << 16)
#define PAIR_OF_BF16(low, high) ((u32)f32_to_bf16(low) | (u32)f32_to_bf16(high) << 16)
#define ATOMIC_CLAIM(word, value) atomic_cmpxchg((volatile __global u32*)(word), 0u, value)
#define ATOMIC_ADD_U32(word, value) atomic_add((volatile __global u32*)(word), value)
)";

constexpr std::string_view kCudaPrelude = R"(
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef float f32;
typedef double f64;
#define HAS_F64
#define KERNEL extern "C" __global__ void
#define FUNCTION static __device__ __forceinline__
#define GLOBAL
#define LOCAL __shared__
#define BARRIER() __syncthreads()
#define GROUP_0 blockIdx.x
#define GROUP_1 blockIdx.y
#define GROUP_2 blockIdx.z
#define GROUPS_0 gridDim.x
#define GROUPS_1 gridDim.y
#define GROUPS_2 gridDim.z
#define LANE_0 threadIdx.x
#define LANE_1 threadIdx.y
#define LANE_2 threadIdx.z
#define LANES_0 blockDim.x
#define LANES_1 blockDim.y
#define LANES_2 blockDim.z
#define GROUP(axis) ((i64)GROUP_##axis)
#define GROUPS(axis) ((i64)GROUPS_##axis)
#define LANE(axis) ((i32)LANE_##axis)
#define LANES(axis) ((i32)LANES_##axis)
#define INFINITY_F32 __int_as_float(0x7f800000)
#define NAN_F32 __int_as_float(0x7fc00000)
FUNCTION u32 f32_bits(f32 x) { return __float_as_uint(x); }
FUNCTION f32 f32_of_bits(u32 x) { return __uint_as_float(x); }
FUNCTION f32 f16_to_f32(u16 x) {
  f32 wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
}
FUNCTION u16 f32_to_f16(f32 x) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
// The larger; NaN if x is.
FUNCTION f32 MAX_OR_NAN(f32 x, f32 y) {
#if __CUDA_ARCH__ >= 800
  f32 larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(x), "f"(y));
  return larger;
#else
  return x < y ? y : x;
#endif
}
// Of numbers up to 0, and of what is far from the largest: for results of 16 bits.
FUNCTION f32 QUICK_EXP2(f32 x) {
  f32 y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#define QUICK_DIVIDE(a, b) __fdividef(a, b)
#define PAIR_OF(name, type) \
  FUNCTION u32 name(f32 low, f32 high) { \
    u32 pair; \
    asm("cvt.rn." type "x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low)); \
    return pair; \
  }
#if __CUDA_ARCH__ >= 800
PAIR_OF(PAIR_OF_F16, "f16")
PAIR_OF(PAIR_OF_BF16, "bf16")
#endif
// What the lane of the same warp has whose number differs by that bit.
#define EXCHANGE_WITH(value, bit) __shfl_xor_sync(0xffffffffu, value, bit)
#define ATOMIC_CLAIM(word, value) atomicCAS((u32*)(word), 0u, value)
#define ATOMIC_ADD_U32(word, value) atomicAdd((u32*)(word), value)
)";

constexpr std::string_view kCommonPrelude = R"(
#define MAX_RANK 8
typedef struct { i64 at[MAX_RANK]; } Dims;
#define LOG2_E 1.4426950408889634f
#define QUICK_EXP(x) QUICK_EXP2((x) * LOG2_E)
#define GLOBAL_INDEX (GROUP(0) * LANES(0) + LANE(0))
FUNCTION f32 bf16_to_f32(u16 x) { return f32_of_bits((u32)x << 16); }
FUNCTION u16 f32_to_bf16(f32 x) {
  const u32 bits = f32_bits(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (u16)((bits >> 16) | 0x40u);
  return (u16)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
FUNCTION void raise_failure(GLOBAL u32* failure, u32 step, u32 code, i64 value) {
  if (ATOMIC_CLAIM(failure, step + 1u) != 0u) return;
  failure[1] = code;
  failure[2] = (u32)((u64)value & 0xffffffffu);
  failure[3] = (u32)((u64)value >> 32);
}
#define RAISE(failure, step, code, value) raise_failure(failure, step, code, value)
)";

struct TypeNames {
  std::string_view storage, compute, get, put;
};

TypeNames NamesOf(DataType type) {
  switch (type) {
    case DataType::kFloat:
      return {"f32", "f32", "p[i]", "p[i] = (v)"};
    case DataType::kDouble:
      return {"f64", "f64", "p[i]", "p[i] = (v)"};
    case DataType::kFloat16:
      return {"u16", "f32", "f16_to_f32(p[i])", "p[i] = f32_to_f16(v)"};
    case DataType::kBfloat16:
      return {"u16", "f32", "bf16_to_f32(p[i])", "p[i] = f32_to_bf16(v)"};
    case DataType::kInt8:
      return {"i8", "i8", "p[i]", "p[i] = (i8)(v)"};
    case DataType::kInt16:
      return {"i16", "i16", "p[i]", "p[i] = (i16)(v)"};
    case DataType::kInt32:
      return {"i32", "i32", "p[i]", "p[i] = (i32)(v)"};
    case DataType::kInt64:
      return {"i64", "i64", "p[i]", "p[i] = (i64)(v)"};
    case DataType::kUint8:
      return {"u8", "u8", "p[i]", "p[i] = (u8)(v)"};
    case DataType::kUint16:
      return {"u16", "u16", "p[i]", "p[i] = (u16)(v)"};
    case DataType::kUint32:
      return {"u32", "u32", "p[i]", "p[i] = (u32)(v)"};
    case DataType::kUint64:
      return {"u64", "u64", "p[i]", "p[i] = (u64)(v)"};
    case DataType::kBool:
      return {"u8", "u8", "p[i]", "p[i] = (u8)((v) ? 1 : 0)"};
    default:
      return {};
  }
}

}  // namespace

std::string_view Prelude(Dialect dialect) {
  static const std::string opencl =
      StrCat(kOpenClPrelude, kCommonPrelude, MatrixUnits(Dialect::kOpenCl),
             WarpgroupUnits(Dialect::kOpenCl));
  static const std::string cuda = StrCat(kCudaPrelude, kCommonPrelude, MatrixUnits(Dialect::kCuda),
                                         WarpgroupUnits(Dialect::kCuda));
  return dialect == Dialect::kOpenCl ? opencl : cuda;
}

bool IsDeviceType(DataType type) { return !NamesOf(type).storage.empty(); }
std::string_view StorageName(DataType type) { return NamesOf(type).storage; }
std::string_view ComputeName(DataType type) { return NamesOf(type).compute; }

std::string DefineType(std::string_view name, DataType type) {
  const TypeNames names = NamesOf(type);
  const auto parenthesised = [](std::string_view text) {
    // p and i are macro arguments.
    std::string out;
    for (size_t at = 0; at < text.size(); ++at) {
      if (text.substr(at).starts_with("p[i]")) {
        out += "(p)[i]";
        at += 3;
      } else {
        out += text[at];
      }
    }
    return out;
  };
  return StrCat("#define ", name, " ", names.storage, "\n#define ", name, "_C ", names.compute,
                "\n#define ", name, "_GET(p, i) ", parenthesised(names.get), "\n#define ", name,
                "_PUT(p, i, v) ", parenthesised(names.put), "\n");
}

std::string_view MovedBy(int64_t bytes) {
  switch (bytes) {
    case 1:
      return "u8";
    case 2:
      return "u16";
    case 4:
      return "u32";
    case 8:
      return "u64";
    default:
      return "uint4";
  }
}

std::string DefineVector(std::string_view name, DataType type, int64_t count) {
  const int64_t bytes = count * static_cast<int64_t>(DataTypeBits(type) / 8);
  return StrCat("#define ", name, "_WORDS ", MovedBy(bytes), "\ntypedef union { ", name,
                "_WORDS words; ", name, " at[", count, "]; } ", name, "_VECTOR;\n");
}

std::string Define(std::string_view name, std::string_view value) {
  return StrCat("#define ", name, " ", value, "\n");
}

std::string Define(std::string_view name, int64_t value) {
  return StrCat("#define ", name, " ", value, "\n");
}

}  // namespace onnxd
