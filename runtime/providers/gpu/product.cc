#include "runtime/providers/gpu/product.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

// 256 lanes compute 64 by 64 results, 16 of them each; both operands' tiles go through local
// memory.
constexpr std::string_view kSource = R"(
#define TILE 64
#define STEP 16
KERNEL tiled_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n,
                     i64 k, i64 tiles_down, i64 tiles_across) {
  LOCAL ACC left[STEP * (TILE + 1)];
  LOCAL ACC right[STEP * (TILE + 1)];
  i64 group = GROUP(0);
  const i64 across = group % tiles_across * TILE;
  group /= tiles_across;
  const i64 down = group % tiles_down * TILE;
  const i64 batch = group / tiles_down;
  SETUP
  const i32 row = LANE(0) / 16, column = LANE(0) % 16;
  ACC sums[16];
  for (i32 e = 0; e < 16; ++e) sums[e] = 0;
  for (i64 first = 0; first < k; first += STEP) {
    for (i32 e = LANE(0); e < TILE * STEP; e += 256) {
      {
        const i32 at = A_BY_P ? e / STEP : e % TILE, step = A_BY_P ? e % STEP : e / TILE;
        const i64 i = down + at, p = first + step;
        left[step * (TILE + 1) + at] = i < m && p < k ? (ACC)(LOAD_A) : (ACC)0;
      }
      {
        const i32 at = B_BY_P ? e / STEP : e % TILE, step = B_BY_P ? e % STEP : e / TILE;
        const i64 j = across + at, p = first + step;
        right[step * (TILE + 1) + at] = j < n && p < k ? (ACC)(LOAD_B) : (ACC)0;
      }
    }
    BARRIER();
    for (i32 step = 0; step < STEP; ++step) {
      ACC x[4], w[4];
      for (i32 e = 0; e < 4; ++e) {
        x[e] = left[step * (TILE + 1) + row + 16 * e];
        w[e] = right[step * (TILE + 1) + column + 16 * e];
      }
      for (i32 e = 0; e < 16; ++e) sums[e] += x[e / 4] * w[e % 4];
    }
    BARRIER();
  }
  for (i32 e = 0; e < 16; ++e) {
    const i64 i = down + row + 16 * (e / 4), j = across + column + 16 * (e % 4);
    if (i < m && j < n) {
      const ACC sum = sums[e];
      Y_PUT(y, (batch * m + i) * n + j, RESULT);
    }
  }
}

// A lane for a result, where few rows or columns would leave tiles empty.
KERNEL plain_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n,
                     i64 k, i64 results) {
  const i64 index = GLOBAL_INDEX;
  if (index >= results) return;
  const i64 j = index % n, i = index / n % m, batch = index / n / m;
  SETUP
  ACC sum = 0;
  for (i64 p = 0; p < k; ++p) sum += (ACC)(LOAD_A) * (ACC)(LOAD_B);
  Y_PUT(y, index, RESULT);
}
)";

std::string SourceOf(const ProductText& text) {
  return StrCat(DefineType("A", text.a), DefineType("B", text.b), DefineType("Y", text.y),
                Define("ACC", text.accumulator), Define("A_BY_P", text.a_by_p ? 1 : 0),
                Define("B_BY_P", text.b_by_p ? 1 : 0), Define("PARAMETERS", text.parameters),
                Define("SETUP", text.setup), Define("LOAD_A", text.load_a),
                Define("LOAD_B", text.load_b), Define("RESULT", text.result), text.functions,
                kSource);
}

}  // namespace

std::string AccumulatorOf(DataType type) {
  if (type == DataType::kInt8 || type == DataType::kUint8) return "i32";
  return std::string(ComputeName(type));
}

Result<std::function<Status(const KernelContext&, const void*, const void*, void*,
                            FunctionRef<void(LaunchArguments&)>)>>
MakeProduct(GpuDevice& device, const ProductText& text, const ProductSizes& sizes) {
  constexpr int64_t kFew = 8;
  const bool tiled = sizes.m > kFew && sizes.n > kFew;
  const int64_t down = (sizes.m + 63) / 64, across = (sizes.n + 63) / 64;
  const int64_t results = sizes.batch * sizes.m * sizes.n;
  LaunchGrid grid = LaunchGrid::Over(results);
  if (tiled) grid.groups[0] = static_cast<uint32_t>(sizes.batch * down * across);
  ONNXD_ASSIGN_OR_RETURN(
      const GpuProgram kernel,
      device.FindKernel(SourceOf(text), tiled ? "tiled_product" : "plain_product"));
  return std::function<Status(const KernelContext&, const void*, const void*, void*,
                              FunctionRef<void(LaunchArguments&)>)>(
      [=](const KernelContext& context, const void* a, const void* b, void* y,
          FunctionRef<void(LaunchArguments&)> fill) {
        if (results == 0) return Status::Ok();
        LaunchArguments arguments;
        arguments.Pointer(a).Pointer(b).Pointer(y);
        fill(arguments);
        arguments.Value(sizes.m).Value(sizes.n).Value(sizes.k);
        if (tiled) {
          arguments.Value(down).Value(across);
        } else {
          arguments.Value(results);
        }
        return Launch(context, kernel, grid, arguments);
      });
}

}  // namespace onnxd
