#include "runtime/device/warpgroup_units.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr std::string_view kDescriptor = R"(
FUNCTION u64 TILE_DESCRIPTOR(u32 address, u32 beside, u32 below) {
  return (u64)(address >> 4 & 0x3fffu) | (u64)(beside >> 4) << 16 | (u64)(below >> 4) << 32 |
         (u64)1 << 62;
}
)";

constexpr std::string_view kCuda = R"(
#define LOCAL_ROOM(room, count) extern __shared__ __align__(1024) uint4 room[];
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARPGROUPS
#define ROOM_ADDRESS(room) local_address(room)
#define COPIES_TO_PRODUCTS() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define PRODUCTS_BEGIN() asm volatile("wgmma.fence.sync.aligned;" ::: "memory")
#define PRODUCTS_END() asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory")
#define PRODUCTS_WAIT(left) asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(left) : "memory")
#define SUMS_STAY(sums, count) \
  UNROLL \
  for (i32 sum = 0; sum < (count); ++sum) asm volatile("" : "+f"((sums)[sum]) :: "memory")
#endif
)";

constexpr std::string_view kOpenCl = R"(
#define LOCAL_ROOM(room, count) LOCAL uint4 room[count];
#define ROOM_ADDRESS(room) 0u
#define COPIES_TO_PRODUCTS()
#define PRODUCTS_BEGIN()
#define PRODUCTS_END()
#define PRODUCTS_WAIT(left)
#define SUMS_STAY(sums, count)
// Element p of row `at` of a tile.
FUNCTION u16 element_of_tile(u64 descriptor, i32 at, i32 p, bool turned, __local const uint4* room) {
  const u32 begin = (u32)(descriptor & 0x3fffu) << 4;
  const u32 beside = (u32)(descriptor >> 16 & 0x3fffu) << 4;
  const u32 below = (u32)(descriptor >> 32 & 0x3fffu) << 4;
  const u32 by_rows = (u32)(at / 8) * below + (u32)(at % 8 * 128 + p * 2);
  const u32 by_elements =
      (u32)(at / 64) * beside + (u32)(at % 64 * 2) + (u32)(p / 8) * below + (u32)(p % 8 * 128);
  const u32 address = begin + (turned ? by_elements : by_rows);
  return ((__local const u16*)room)[(address ^ (address >> 3 & 0x70u)) / 2];
}
)";

// %0 to %(sums - 1) are the sums, then come both descriptors and a one: sums are added to.
std::string Instruction(DataType type, int64_t columns, bool turned) {
  const std::string_view name = type == DataType::kFloat16 ? "f16" : "bf16";
  const int64_t sums = columns / 2;
  std::string operands, places;
  for (int64_t i = 0; i < sums; ++i) {
    operands += StrCat(i == 0 ? "" : ", ", "%", i);
    places += StrCat(i == 0 ? "" : ", ", "\"+f\"(sums[", i, "])");
  }
  return StrCat("  asm volatile(\"{ .reg .pred added; setp.ne.b32 added, %", sums + 2,
                ", 0; wgmma.mma_async.sync.aligned.m64n", columns, "k16.f32.", name, ".", name,
                " {", operands, "}, %", sums, ", %", sums + 1, ", added, 1, 1, 0, ", turned ? 1 : 0,
                "; }\"\n               : ", places, " : \"l\"(a), \"l\"(b), \"r\"(1));\n");
}

}  // namespace

std::string_view WarpgroupUnits(Dialect dialect) {
  static const std::string cuda = StrCat(kDescriptor, kCuda), opencl = StrCat(kDescriptor, kOpenCl);
  return dialect == Dialect::kCuda ? cuda : opencl;
}

std::string WarpgroupMultiply(DataType type, int64_t columns, bool turned) {
  const std::string_view converted = type == DataType::kFloat16 ? "f16_to_f32" : "bf16_to_f32";
  return StrCat(R"(#ifdef HAS_WARPGROUPS
FUNCTION void warpgroup_multiply(f32* sums, u64 a, u64 b, const uint4*) {
)",
                Instruction(type, columns, turned), R"(}
#else
FUNCTION void warpgroup_multiply(f32* sums, u64 a, u64 b, LOCAL_POINTER const uint4* room) {
  for (i32 i = 0; i < )",
                columns / 2, R"(; ++i) {
    const i32 row = LANE(0) % 128 / 32 * 16 + LANE(0) % 32 / 4 + i / 2 % 2 * 8;
    const i32 column = i / 4 * 8 + LANE(0) % 4 * 2 + i % 2;
    for (i32 p = 0; p < 16; ++p) {
      sums[i] += )",
                converted, "(element_of_tile(a, row, p, false, room)) * ", converted,
                "(element_of_tile(b, column, p, ", turned ? "true" : "false", R"(, room));
    }
  }
}
#endif
)");
}

}  // namespace onnxd
