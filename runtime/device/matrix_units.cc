#include "runtime/device/matrix_units.h"

namespace onnxd {
namespace {

constexpr std::string_view kCuda = R"(
#define LOCAL_POINTER
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_8 _Pragma("unroll 8")
#define BOUNDS(lanes, groups) __launch_bounds__(lanes, groups)
#define EXCHANGE(lanes)
#define EXCHANGED 0
#define IF_MATRICES(condition) if (condition)
#define OF_QUAD(name, joined) \
  FUNCTION f32 name(f32 x, i32) { \
    for (i32 lanes = 1; lanes < 4; lanes *= 2) { \
      const f32 other = __shfl_xor_sync(0xffffffffu, x, lanes); \
      x = joined; \
    } \
    return x; \
  }
OF_QUAD(quad_max, other > x || other != other ? other : x)
OF_QUAD(quad_sum, x + other)
FUNCTION u32 f32_to_tf32(f32 x) {
  u32 bits = f32_bits(x);
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
  return bits;
}
#if __CUDA_ARCH__ >= 800
#define MATRIX(name, shape, types) \
  MATRIX_OF(name, f32, "f", shape ".row.col.f32." types ".f32 ")
#define BYTE_MATRIX(name, types) \
  MATRIX_OF(name, i32, "r", "m16n8k32.row.col.s32." types ".s32 ")
#define MATRIX_OF(name, sum, place, instruction) \
  FUNCTION void name(sum* c, const u32* a, const u32* b, i32) { \
    asm("mma.sync.aligned." instruction \
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};" \
        : "+" place(c[0]), "+" place(c[1]), "+" place(c[2]), "+" place(c[3]) \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
MATRIX(matrix_f16, "m16n8k16", "f16.f16")
MATRIX(matrix_bf16, "m16n8k16", "bf16.bf16")
MATRIX(matrix_tf32, "m16n8k8", "tf32.tf32")
BYTE_MATRIX(matrix_i8_i8, "s8.s8")
BYTE_MATRIX(matrix_i8_u8, "s8.u8")
BYTE_MATRIX(matrix_u8_i8, "u8.s8")
BYTE_MATRIX(matrix_u8_u8, "u8.u8")
FUNCTION u32 local_address(const void* at) { return (u32)__cvta_generic_to_shared(at); }
FUNCTION void COPY_16(uint4* to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :: "r"(local_address(to)), "l"(from), "r"(there ? 16 : 0) : "memory");
}
#define COPIES_END() asm volatile("cp.async.commit_group;" ::: "memory")
#define COPIES_WAIT(left) asm volatile("cp.async.wait_group %0;" :: "n"(left) : "memory")
#define LOAD_FOUR(name, turned) \
  FUNCTION void name(u32* words, const uint4* row) { \
    asm volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) \
                 : "r"(local_address(row)) : "memory"); \
  }
LOAD_FOUR(load_four, "")
LOAD_FOUR(load_four_turned, ".trans")
#define LOAD_MATRICES(words, of_lane, row) \
  { \
    const i32 of_lane = LANE(0) % 32; \
    load_four(words, row); \
  }
#define LOAD_MATRICES_TURNED(words, of_lane, row) \
  { \
    const i32 of_lane = LANE(0) % 32; \
    load_four_turned(words, row); \
  }
#endif
)";

constexpr std::string_view kOpenCl = R"(
#define LOCAL_POINTER __local
#define UNROLL
#define UNROLL_BY_8
#define BOUNDS(lanes, groups)
#define EXCHANGE(lanes) LOCAL u32 exchange[(lanes) * 6];
#define EXCHANGED exchange
#define IF_MATRICES(condition)
#define OF_QUAD(name, joined) \
  FUNCTION f32 name(f32 x, __local u32* exchange) { \
    exchange[LANE(0)] = f32_bits(x); \
    BARRIER(); \
    for (i32 lanes = 1; lanes < 4; ++lanes) { \
      const f32 other = f32_of_bits(exchange[LANE(0) ^ lanes]); \
      x = joined; \
    } \
    BARRIER(); \
    return x; \
  }
OF_QUAD(quad_max, other > x || other != other ? other : x)
OF_QUAD(quad_sum, x + other)
FUNCTION u32 f32_to_tf32(f32 x) {
  const u32 bits = f32_bits(x);
  if ((bits & 0x7f800000u) == 0x7f800000u) return bits;
  return (bits + 0x1000u) & 0xffffe000u;
}
FUNCTION f32 word_product_f16(u32 a, u32 b) {
  return f16_to_f32((u16)(a & 0xffffu)) * f16_to_f32((u16)(b & 0xffffu)) +
         f16_to_f32((u16)(a >> 16)) * f16_to_f32((u16)(b >> 16));
}
FUNCTION f32 word_product_bf16(u32 a, u32 b) {
  return f32_of_bits(a << 16) * f32_of_bits(b << 16) +
         f32_of_bits(a & 0xffff0000u) * f32_of_bits(b & 0xffff0000u);
}
FUNCTION f32 word_product_tf32(u32 a, u32 b) { return f32_of_bits(a) * f32_of_bits(b); }
#define WORD_PRODUCT(a_type, b_type) \
  FUNCTION i32 word_product_##a_type##_##b_type(u32 a, u32 b) { \
    i32 sum = 0; \
    for (i32 shift = 0; shift < 32; shift += 8) { \
      sum += (i32)(a_type)(u8)(a >> shift) * (i32)(b_type)(u8)(b >> shift); \
    } \
    return sum; \
  }
WORD_PRODUCT(i8, i8)
WORD_PRODUCT(i8, u8)
WORD_PRODUCT(u8, i8)
WORD_PRODUCT(u8, u8)
#define MATRIX(name, sum, word_product) \
  FUNCTION void name(sum* c, const u32* a, const u32* b, __local u32* exchange) { \
    const i32 lane = LANE(0) % 32; \
    __local u32* warp = exchange + LANE(0) / 32 * 192; \
    for (i32 i = 0; i < 4; ++i) warp[lane * 6 + i] = a[i]; \
    for (i32 i = 0; i < 2; ++i) warp[lane * 6 + 4 + i] = b[i]; \
    BARRIER(); \
    for (i32 i = 0; i < 4; ++i) { \
      const i32 row = lane / 4, column = lane % 4 * 2 + i % 2; \
      for (i32 word = 0; word < 8; ++word) { \
        const i32 half_of_row = word / 4 * 2 + i / 2; \
        c[i] += word_product(warp[(row * 4 + word % 4) * 6 + half_of_row], \
                             warp[(column * 4 + word % 4) * 6 + 4 + word / 4]); \
      } \
    } \
    BARRIER(); \
  }
MATRIX(matrix_f16, f32, word_product_f16)
MATRIX(matrix_bf16, f32, word_product_bf16)
MATRIX(matrix_tf32, f32, word_product_tf32)
MATRIX(matrix_i8_i8, i32, word_product_i8_i8)
MATRIX(matrix_i8_u8, i32, word_product_i8_u8)
MATRIX(matrix_u8_i8, i32, word_product_u8_i8)
MATRIX(matrix_u8_u8, i32, word_product_u8_u8)
FUNCTION void COPY_16(__local uint4* to, __global const void* from, bool there) {
  if (there) {
    *to = *(__global const uint4*)from;
  } else {
    *to = (uint4)(0u);
  }
}
#define COPIES_END()
#define COPIES_WAIT(left)
#define LOAD_MATRICES(words, of_lane, row) \
  for (i32 matrix = 0; matrix < 4; ++matrix) { \
    const i32 of_lane = matrix * 8 + LANE(0) % 32 / 4; \
    words[matrix] = ((__local const u32*)(row))[LANE(0) % 4]; \
  }
#define LOAD_MATRICES_TURNED(words, of_lane, row) \
  for (i32 matrix = 0; matrix < 4; ++matrix) { \
    words[matrix] = 0; \
    for (i32 odd = 0; odd < 2; ++odd) { \
      const i32 of_lane = matrix * 8 + LANE(0) % 4 * 2 + odd; \
      words[matrix] |= (u32)((__local const u16*)(row))[LANE(0) % 32 / 4] << odd * 16; \
    } \
  }
)";

}  // namespace

std::string_view MatrixUnits(Dialect dialect) {
  return dialect == Dialect::kCuda ? kCuda : kOpenCl;
}

}  // namespace onnxd
