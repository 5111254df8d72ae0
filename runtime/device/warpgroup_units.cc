#include "runtime/device/warpgroup_units.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

constexpr std::string_view kDescriptor = R"(
FUNCTION u64 TILE_DESCRIPTOR(u32 address, u32 beside, u32 below) {
  return (u64)(address >> 4 & 0x3fffu) | (u64)(beside >> 4) << 16 | (u64)(below >> 4) << 32 |
         (u64)1 << 62;
}
FUNCTION u64 TILE_FURTHER(u64 descriptor, u32 bytes) {
  return (descriptor & 0xffffffff00000000u) | (u32)((u32)descriptor + (bytes >> 4));
}
)";

constexpr std::string_view kCuda = R"(
struct __align__(128) TileMap { u64 words[16]; };
#define LOCAL_ROOM(room, count) extern __shared__ __align__(1024) uint4 room[];
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define HAS_WARPGROUPS
#define ROOM_ADDRESS(room) local_address(room)
#define COPIES_TO_PRODUCTS() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")
#define IN_PAIRS __cluster_dims__(2, 1, 1)
#define FEWER_REGISTERS() asm volatile("setmaxnreg.dec.sync.aligned.u32 24;")
#define MORE_REGISTERS() asm volatile("setmaxnreg.inc.sync.aligned.u32 240;")
FUNCTION u32 PAIR_RANK() {
  u32 rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
#define PAIR_BARRIER() \
  asm volatile("barrier.cluster.arrive.relaxed;\n barrier.cluster.wait;" \
               ::: "memory")
#define SIGNAL_INIT(at, count) \
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(at), "r"(count) : "memory")
#define SIGNALS_VISIBLE() asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory")
#define SIGNAL_EXPECT(at, bytes) \
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" \
               :: "r"(at), "r"(bytes) : "memory")
#define SIGNAL_PAIR(at, rank) \
  asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;" \
               " mbarrier.arrive.shared::cluster.b64 _, [there]; }" \
               :: "r"(at), "r"(rank) : "memory")
FUNCTION void SIGNAL_WAIT(u32 at, u32 phase) {
  u32 done = 0;
  while (done == 0) {
    asm volatile("{ .reg .pred done;"
                 " mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;"
                 " selp.u32 %0, 1, 0, done; }" : "=r"(done) : "r"(at), "r"(phase) : "memory");
  }
}
#define TILE_MAP(name) const __grid_constant__ TileMap name
#define FETCH_MAP(map) asm volatile("prefetch.tensormap [%0];" :: "l"(&(map)) : "memory")
#define COPY_TILE(to, map, column, row, signal) \
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes" \
               " [%0], [%1, {%3, %4}], [%2];" \
               :: "r"(to), "l"(&(map)), "r"(signal), "r"(column), "r"(row) : "memory")
#define COPY_TILE_TO_PAIR(to, map, column, row, signal) \
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes" \
               ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" \
               :: "r"(to), "l"(&(map)), "r"(signal), "r"(column), "r"(row), "h"((u16)3) : "memory")
#define AWAIT_TURN(own) asm volatile("bar.sync %0, 256;" :: "r"(1 + (own)) : "memory")
#define GIVE_TURN(other) asm volatile("bar.arrive %0, 256;" :: "r"(1 + (other)) : "memory")
#define WARP_BARRIER() __syncwarp()
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
#define IN_PAIRS
typedef struct { u64 words[16]; } TileMap;
#define TILE_MAP(name) const TileMap name
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

// %0 to %(sums - 1) are the sums, then come both sides and a one: sums are added to. The left side
// is a descriptor, or four words.
std::string Instruction(DataType type, int64_t columns, bool turned, bool of_words) {
  const std::string_view name = type == DataType::kFloat16 ? "f16" : "bf16";
  const int64_t sums = columns / 2;
  std::string operands, places;
  for (int64_t i = 0; i < sums; ++i) {
    operands += StrCat(i == 0 ? "" : ", ", "%", i);
    places += StrCat(i == 0 ? "" : ", ", "\"+f\"(sums[", i, "])");
  }
  const auto place = [&](int64_t i) { return StrCat("%", sums + i); };
  const std::string left =
      of_words ? StrCat("{", place(0), ", ", place(1), ", ", place(2), ", ", place(3), "}")
               : place(0);
  const int64_t behind = of_words ? 4 : 1;
  return StrCat("  asm volatile(\"{ .reg .pred added; setp.ne.b32 added, ", place(behind + 1),
                ", 0; wgmma.mma_async.sync.aligned.m64n", columns, "k16.f32.", name, ".", name,
                " {", operands, "}, ", left, ", ", place(behind), ", added, 1, 1, ",
                of_words ? "" : "0, ", turned ? 1 : 0, "; }\"\n               : ", places, " : ",
                of_words ? R"("r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))" : R"("l"(a))",
                R"(, "l"(b), "r"(1));)", "\n");
}

// By plain loops.
std::string Emulation(std::string_view function, DataType type, int64_t columns, bool turned) {
  const std::string_view converted = type == DataType::kFloat16 ? "f16_to_f32" : "bf16_to_f32";
  return StrCat("FUNCTION void ", function,
                R"((f32* sums, u64 a, u64 b, LOCAL_POINTER const uint4* room) {
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
)");
}

}  // namespace

std::string_view WarpgroupUnits(Dialect dialect) {
  static const std::string cuda = StrCat(kDescriptor, kCuda), opencl = StrCat(kDescriptor, kOpenCl);
  return dialect == Dialect::kCuda ? cuda : opencl;
}

std::string WarpgroupMultiply(std::string_view function, DataType type, int64_t columns,
                              bool turned) {
  return StrCat("#ifdef HAS_WARPGROUPS\nFUNCTION void ", function,
                "(f32* sums, u64 a, u64 b, const uint4*) {\n",
                Instruction(type, columns, turned, false), "}\n#else\n",
                Emulation(function, type, columns, turned), "#endif\n");
}

std::string WarpgroupMultiplyWords(std::string_view function, DataType type, int64_t columns) {
  return StrCat("#ifdef HAS_WARPGROUPS\nFUNCTION void ", function,
                "(f32* sums, const u32* a, u64 b) {\n", Instruction(type, columns, true, true),
                "}\n#else\n", Emulation(function, type, columns, true), "#endif\n");
}

}  // namespace onnxd
