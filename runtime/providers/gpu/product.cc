#include "runtime/providers/gpu/product.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/depthwise_product.h"
#include "runtime/providers/gpu/matrix_product.h"
#include "runtime/providers/gpu/tactics.h"
#include "runtime/providers/gpu/warpgroup_product.h"

namespace onnxd {
namespace {

// 16 by 16 lanes compute 64 by 64 results, 16 of them each; both operands' tiles go through local
// memory. Sums are variables of their own, which every compiler keeps in registers.
constexpr std::string_view kSource = R"(
#define TILE 64
#define STEP 16
#define ROWS(DO) DO(0) DO(1) DO(2) DO(3)
#define COLUMNS(DO, r) DO(r, 0) DO(r, 1) DO(r, 2) DO(r, 3)
#define DECLARE(r, c) ACC sum##r##c = 0;
#define DECLARE_ROW(r) COLUMNS(DECLARE, r)
#define LOAD_ROW(r) const ACC x##r = left[step * (TILE + 1) + row + 16 * r];
#define LOAD_COLUMN(c) const ACC w##c = right[step * (TILE + 1) + column + 16 * c];
#define ADD(r, c) sum##r##c += x##r * w##c;
#define ADD_ROW(r) COLUMNS(ADD, r)
#define STORE(r, c) \
  { \
    const IX i = (IX)(down + row + 16 * r), j = (IX)(across + column + 16 * c); \
    if (i < m && j < n) { \
      const ACC sum = sum##r##c; \
      const i64 at = ((i64)batch * m + i) * n + j; \
      const ACC value = RESULT; \
      Y_PUT(y, at, FINISHED); \
    } \
  }
#define STORE_ROW(r) COLUMNS(STORE, r)

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
  const i32 row = LANE(1), column = LANE(0);
  ROWS(DECLARE_ROW)
#if !B_BY_P
  // A lane loads the same column in every step.
  const IX j = (IX)(across + (row * 16 + column) % TILE);
  COLUMN
#endif
  for (i64 first = 0; first < k; first += STEP) {
    for (i32 e = row * 16 + column; e < TILE * STEP; e += 256) {
      {
        const i32 at = A_BY_P ? e / STEP : e % TILE, step = A_BY_P ? e % STEP : e / TILE;
        const IX i = (IX)(down + at), p = (IX)(first + step);
        left[step * (TILE + 1) + at] = i < m && p < k ? (ACC)(LOAD_A) : (ACC)0;
      }
      {
        const i32 at = B_BY_P ? e / STEP : e % TILE, step = B_BY_P ? e % STEP : e / TILE;
        const IX p = (IX)(first + step);
#if B_BY_P
        const IX j = (IX)(across + at);
        COLUMN
#endif
        right[step * (TILE + 1) + at] = j < n && p < k ? (ACC)(LOAD_B) : (ACC)0;
      }
    }
    BARRIER();
    for (i32 step = 0; step < STEP; ++step) {
      ROWS(LOAD_ROW)
      ROWS(LOAD_COLUMN)
      ROWS(ADD_ROW)
    }
    BARRIER();
  }
  ROWS(STORE_ROW)
}

// A lane for a result, where few rows or columns would leave tiles empty.
KERNEL plain_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n,
                     i64 k, i64 results) {
  const i64 index = GLOBAL_INDEX;
  if (index >= results) return;
  const IX j = (IX)(index % n), i = (IX)(index / n % m);
  const i64 batch = index / n / m;
  SETUP
  COLUMN
  ACC sum = 0;
  for (IX p = 0; p < k; ++p) sum += (ACC)(LOAD_A) * (ACC)(LOAD_B);
  const i64 at = index;
  const ACC value = RESULT;
  Y_PUT(y, at, FINISHED);
}

// Few rows, as of a decoder's token: what takes time is to read b once. SLICES lanes share a column's
// sums, each with every SLICES-th of its elements; neighbours read neighbours in p or in j.
#ifdef SLICES
#define GROUP_COLUMNS (256 / SLICES)
KERNEL few_rows_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n,
                        i64 k, i64 tiles_down, i64 tiles_across) {
  LOCAL ACC parts[FEW_ROWS * GROUP_COLUMNS * (SLICES + 1)];
  const i64 across = GROUP(0) % tiles_across * GROUP_COLUMNS;
  const i64 batch = GROUP(0) / tiles_across;
  SETUP
  const i32 lane = LANE(0);
  const i32 slice = B_BY_P ? lane % SLICES : lane / GROUP_COLUMNS;
  const i32 column = B_BY_P ? lane / SLICES : lane % GROUP_COLUMNS;
  ACC sums[FEW_ROWS];
  UNROLL
  for (i32 i = 0; i < FEW_ROWS; ++i) sums[i] = 0;
  const IX j = (IX)(across + column);
  if (j < n) {
    COLUMN
    UNROLL_BY_8
    for (IX p = (IX)slice; p < k; p += SLICES) {
      const ACC of_b = (ACC)(LOAD_B);
      UNROLL
      for (IX i = 0; i < FEW_ROWS; ++i) sums[i] += (ACC)(LOAD_A) * of_b;
    }
  }
  UNROLL
  for (i32 i = 0; i < FEW_ROWS; ++i) {
    parts[(i * GROUP_COLUMNS + column) * (SLICES + 1) + slice] = sums[i];
  }
  BARRIER();
  for (i32 e = lane; e < FEW_ROWS * GROUP_COLUMNS; e += 256) {
    const IX i = (IX)(e / GROUP_COLUMNS), j = (IX)(across + e % GROUP_COLUMNS);
    if (j < n) {
      ACC sum = 0;
      for (i32 part = 0; part < SLICES; ++part) sum += parts[e * (SLICES + 1) + part];
      const i64 at = ((i64)batch * m + i) * n + j;
      const ACC value = RESULT;
      Y_PUT(y, at, FINISHED);
    }
  }
}
#endif

// What is left where the sums are there, for VECTOR of a row at once.
#ifdef VECTOR
KERNEL finish_product(GLOBAL const A* a, GLOBAL const B* b, GLOBAL Y* y, PARAMETERS i64 m, i64 n,
                      i64 k, i64 results, GLOBAL const S* sums) {
  const IX first = (IX)GLOBAL_INDEX * VECTOR;
  if (first >= results) return;
  const IX begin = first % (IX)n, above = first / (IX)n;
  const IX i = above % (IX)m;
  const i64 batch = above / (IX)m;
  SETUP
  S_VECTOR of_sums;
  of_sums.words = *(GLOBAL const S_WORDS*)(sums + first);
  Y_VECTOR of_y;
  UNROLL
  for (i32 e = 0; e < VECTOR; ++e) {
    const IX j = begin + e;
    const ACC sum = (ACC)S_GET(of_sums.at, e);
    const i64 at = (i64)first + e;
    const ACC value = RESULT;
    Y_PUT(of_y.at, e, FINISHED);
  }
  *(GLOBAL Y_WORDS*)(y + first) = of_y.words;
}
#endif
)";

std::string Less(const std::string& load, const std::string& zero) {
  return zero.empty() ? load : StrCat("(i32)", load, " - ", zero);
}

std::string SourceOf(const ProductText& text, bool wide) {
  return StrCat(Define("IX", wide ? "i64" : "i32"), DefineType("A", text.a),
                DefineType("B", text.b), DefineType("Y", text.y), Define("ACC", text.accumulator),
                Define("A_BY_P", text.a_by_p ? 1 : 0), Define("B_BY_P", text.b_by_p ? 1 : 0),
                Define("PARAMETERS", text.parameters), Define("SETUP", text.setup),
                Define("COLUMN", text.column), Define("LOAD_A", Less(text.load_a, text.a_zero)),
                Define("LOAD_B", Less(text.load_b, text.b_zero)), Define("RESULT", text.result),
                Define("FINISHED", text.finished), text.functions, kSource);
}

}  // namespace

std::string AccumulatorOf(DataType type) {
  if (type == DataType::kInt8 || type == DataType::kUint8) return "i32";
  return std::string(ComputeName(type));
}

bool IsZero(const KernelInfo& info, size_t zero_point) {
  if (info.node.input(zero_point) == kNoValue) return true;
  const Initializer* constant = info.constant_input(zero_point);
  if (constant == nullptr) return false;
  const auto plain = constant->Materialize();
  if (!plain.ok()) return false;
  const auto* bytes = static_cast<const std::byte*>(plain->raw());
  return std::all_of(bytes, bytes + plain->bytes(), [](std::byte b) { return b == std::byte{0}; });
}

namespace {

// One way of computing a product.
struct Variant {
  std::string name, source, entry;
  LaunchGrid grid;
  int64_t down = 0, across = 0;  // tiles; 0: a lane for each result
  int64_t of_warpgroups = 0;     // columns, where its arguments end with WarpgroupMaps
};

Variant PlainVariant(const ProductPlan& plan, bool wide) {
  const int64_t results = plan.sizes.batch * plan.sizes.m * plan.sizes.n;
  return {"plain", SourceOf(plan.text, wide), "plain_product", LaunchGrid::Over(results)};
}

constexpr int64_t kFew = 8;  // rows or columns

// Requires few rows.
Variant FewRowsVariant(const ProductPlan& plan, bool wide, int64_t slices) {
  constexpr uint32_t kLanes = 256;
  Variant variant{
      StrCat("few_rows ", slices),
      StrCat(Define("SLICES", slices), Define("FEW_ROWS", plan.sizes.m), SourceOf(plan.text, wide)),
      "few_rows_product",
      {},
      1,
      0};
  const int64_t columns = kLanes / slices;
  variant.across = (plan.sizes.n + columns - 1) / columns;
  variant.grid.groups[0] = static_cast<uint32_t>(plan.sizes.batch * variant.across);
  variant.grid.lanes[0] = kLanes;
  return variant;
}

// A lane for each result where there are enough, else several.
std::vector<Variant> NarrowVariants(const GpuProperties& properties, const ProductPlan& plan,
                                    bool wide) {
  constexpr int64_t kLanesAtOnce = 2048;  // of a multiprocessor
  constexpr int64_t kLeastSteps = 64;
  const ProductSizes& sizes = plan.sizes;
  std::vector<Variant> variants{PlainVariant(plan, wide)};
  if (sizes.m > kFew || sizes.k < kLeastSteps) return variants;
  const bool are_enough = sizes.batch * sizes.n >= properties.multiprocessors * kLanesAtOnce;
  auto place = are_enough ? variants.end() : variants.begin();
  if (plan.text.b_by_p) {
    variants.insert(place, FewRowsVariant(plan, wide, 32));
  } else {
    place = variants.insert(place, FewRowsVariant(plan, wide, 16));
    place = variants.insert(place + 1, FewRowsVariant(plan, wide, 32));
    variants.insert(place + 1, FewRowsVariant(plan, wide, 8));
  }
  return variants;
}

Variant TiledBy(const ProductSizes& sizes, int rows, int columns, std::string source,
                const std::string& entry, std::array<uint32_t, 3> lanes) {
  Variant variant{StrCat(entry, " ", rows, "x", columns), std::move(source), entry, {}, 0, 0};
  variant.down = (sizes.m + rows - 1) / rows;
  variant.across = (sizes.n + columns - 1) / columns;
  variant.grid.groups[0] = static_cast<uint32_t>(sizes.batch * variant.down * variant.across);
  variant.grid.lanes = lanes;
  return variant;
}

Variant TiledVariant(const ProductPlan& plan, bool wide) {
  return TiledBy(plan.sizes, 64, 64, SourceOf(plan.text, wide), "tiled_product", {16, 16, 1});
}

Variant MatrixVariant(const ProductPlan& plan, bool wide, const MatrixTile& tile) {
  return TiledBy(plan.sizes, tile.rows, tile.columns,
                 MatrixProductSource(plan.text, plan.sizes, tile, wide), "matrix_product",
                 {static_cast<uint32_t>(tile.lanes()), 1, 1});
}

Variant WarpgroupVariant(const GpuDevice& device, const ProductPlan& plan, bool wide,
                         int64_t columns) {
  Variant variant = TiledBy(plan.sizes, kWarpgroupRows, static_cast<int>(columns),
                            WarpgroupProductSource(plan, wide, columns), "warpgroup_product", {});
  variant.grid = WarpgroupGrid(device.properties(), device.dialect(), plan.sizes, columns);
  variant.of_warpgroups = columns;
  return variant;
}

// Tiles of which there are enough for every multiprocessor come first, the larger before the
// smaller; then the others, the smaller first.
void AddMatrixVariants(const GpuProperties& properties, const ProductPlan& plan, bool wide,
                       std::vector<Variant>& variants) {
  size_t enough = variants.size();
  for (const MatrixTile& tile : MatrixTiles()) {
    Variant variant = MatrixVariant(plan, wide, tile);
    const bool fills = variant.grid.groups[0] >= static_cast<uint32_t>(properties.multiprocessors);
    variants.insert(variants.begin() + static_cast<std::ptrdiff_t>(enough), std::move(variant));
    if (fills) ++enough;
  }
}

Variant DepthwiseVariant(const ProductPlan& plan) {
  const DepthwiseTile tile = DepthwiseTileOf(plan);
  return {StrCat("depthwise ", tile.channels, "x", tile.pixels), DepthwiseSource(plan, tile),
          "depthwise_product", LaunchGrid::Over(tile.count)};
}

// The best guess first.
std::vector<Variant> VariantsOf(const GpuDevice& device, const ProductPlan& plan) {
  const GpuProperties& properties = device.properties();
  const ProductSizes& sizes = plan.sizes;
  const bool wide = std::max({sizes.m, sizes.n, sizes.k}) > std::numeric_limits<int32_t>::max() / 2;
  constexpr int64_t kMostly = 32;
  std::vector<Variant> variants;
  if (plan.depthwise) return {DepthwiseVariant(plan)};
  if (sizes.m <= kFew || sizes.n <= kFew) return NarrowVariants(properties, plan, wide);
  if (properties.has_warpgroup_units && HasRoomForWarpgroups(properties) &&
      IsForWarpgroups(plan.text, sizes)) {
    for (const int64_t columns : kWarpgroupColumns) {
      variants.push_back(WarpgroupVariant(device, plan, wide, columns));
    }
  }
  if (properties.has_matrix_units && IsForMatrixUnits(plan.text, properties.use_tf32)) {
    AddMatrixVariants(properties, plan, wide, variants);
  } else {
    variants.push_back(TiledVariant(plan, wide));
  }
  if (std::min(sizes.m, sizes.n) <= kMostly) variants.push_back(PlainVariant(plan, wide));
  return variants;
}

Result<PreparedKernel> Prepare(GpuDevice& device, const ProductPlan& plan, const Variant& variant) {
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(variant.source, variant.entry));
  PreparedKernel prepared;
  prepared.compute = [=, sizes = plan.sizes, grid = variant.grid, down = variant.down,
                      across = variant.across, a = plan.a, b = plan.b,
                      fill = variant.of_warpgroups > 0 ? WarpgroupFill(plan) : plan.fill,
                      columns = variant.of_warpgroups, b_rows = plan.text.b_rows,
                      &device](const KernelContext& k) -> Status {
    LaunchArguments arguments;
    arguments.Pointer(k.input<void>(a)).Pointer(k.input<void>(b)).Pointer(k.output<void>(0));
    fill(k, arguments);
    arguments.Value(sizes.m).Value(sizes.n).Value(sizes.k);
    if (columns > 0) {
      ONNXD_ASSIGN_OR_RETURN(const WarpgroupMaps maps, MapsOf(device, b_rows, sizes, columns,
                                                              k.input<void>(a), k.input<void>(b)));
      arguments.Value(down).Value(across).Value(maps.a).Value(maps.b);
    } else if (down > 0) {
      arguments.Value(down).Value(across);
    } else {
      arguments.Value(sizes.batch * sizes.m * sizes.n);
    }
    return Launch(k, kernel, grid, arguments);
  };
  return prepared;
}

struct LibraryWay {
  LibraryKernel kernel;
  bool is_whole;         // it gives the results, not only sums
  size_t a, b;           // inputs of the node that are its operands
  bool has_row = false;  // the sums have the plan's rest to come
};

// Whether the sums are the results already, where they are of their type.
bool IsSumAlone(const ProductText& text) {
  return text.result == "sum" && text.finished == "value" && text.y == text.a;
}

// What a library's workspace takes of scratch memory, which is aligned to less than libraries want.
size_t WorkspaceRoom(const LibraryKernel& way) {
  return way.workspace_bytes == 0 ? 0 : way.workspace_bytes + kWorkspaceAlignment;
}

// The workspace within that room.
void* WorkspaceAt(void* room) {
  const auto at = reinterpret_cast<uintptr_t>(room);
  return reinterpret_cast<void*>((at + kWorkspaceAlignment - 1) / kWorkspaceAlignment *
                                 kWorkspaceAlignment);
}

// A way that gives the results.
PreparedKernel PrepareWhole(const ProductPlan& plan, const LibraryWay& library) {
  const LibraryKernel& way = library.kernel;
  PreparedKernel prepared;
  prepared.scratch_bytes = WorkspaceRoom(way);
  const ProductAddends addends = plan.addends.value_or(ProductAddends());
  prepared.compute = [way, addends, a = library.a, b = library.b](const KernelContext& k) {
    LibraryOperands operands{k.input<void>(a), k.input<void>(b), k.output<void>(0),
                             WorkspaceAt(k.scratch<void>())};
    if (addends.row) operands.row = k.input<void>(*addends.row);
    if (addends.matrix) operands.matrix = k.input<void>(*addends.matrix);
    return way.enqueue(static_cast<GpuStream&>(k.stream()), operands);
  };
  return prepared;
}

// How many results of a row a lane finishes at once: what 16 bytes hold.
int64_t FinishedAtOnce(const ProductPlan& plan, DataType sums) {
  const size_t widest = std::max(DataTypeBits(sums), DataTypeBits(plan.text.y)) / 8;
  auto vector = static_cast<int64_t>(16 / widest);
  while (plan.sizes.n % vector != 0) vector /= 2;
  return vector;
}

std::string FinishSource(const ProductText& text, int64_t results, DataType sums, int64_t vector) {
  const bool wide = results > std::numeric_limits<int32_t>::max() / 2;
  return StrCat(DefineType("S", sums), DefineVector("S", sums, vector), Define("VECTOR", vector),
                DefineType("Y", text.y), DefineVector("Y", text.y, vector), SourceOf(text, wide));
}

// Sums by the library, in scratch memory and finished by a kernel unless they are the results.
Result<PreparedKernel> PrepareLibrary(GpuDevice& device, const ProductPlan& plan,
                                      const LibraryWay& library) {
  const LibraryKernel& way = library.kernel;
  if (library.is_whole) return PrepareWhole(plan, library);
  PreparedKernel prepared;
  const ProductSizes sizes = plan.sizes;
  const int64_t results = sizes.batch * sizes.m * sizes.n;
  const int64_t vector = FinishedAtOnce(plan, way.result);
  const ProductText& text = library.has_row ? plan.rest->text : plan.text;
  ONNXD_ASSIGN_OR_RETURN(
      const GpuProgram kernel,
      device.FindKernel(FinishSource(text, results, way.result, vector), "finish_product"));
  const auto width = static_cast<int64_t>(DataTypeBits(way.result) / 8);
  const auto sum_bytes = static_cast<size_t>(results * width);
  prepared.scratch_bytes = sum_bytes + WorkspaceRoom(way);
  const auto row = library.has_row ? std::optional(plan.rest->row) : std::nullopt;
  prepared.compute = [=, fill = library.has_row ? plan.rest->fill : plan.fill, a = plan.a,
                      b = plan.b, of_way = library.a,
                      other_of_way = library.b](const KernelContext& k) -> Status {
    auto* const sums = k.scratch<std::byte>();
    LibraryOperands operands{k.input<void>(of_way), k.input<void>(other_of_way), sums,
                             WorkspaceAt(sums + sum_bytes)};
    if (row) operands.row = k.input<void>(*row);
    ONNXD_RETURN_IF_ERROR(way.enqueue(static_cast<GpuStream&>(k.stream()), operands));
    LaunchArguments arguments;
    arguments.Pointer(k.input<void>(a)).Pointer(k.input<void>(b)).Pointer(k.output<void>(0));
    fill(k, arguments);
    arguments.Value(sizes.m).Value(sizes.n).Value(sizes.k).Value(results).Pointer(sums);
    return Launch(k, kernel, LaunchGrid::Over(results / vector), arguments);
  };
  return prepared;
}

std::vector<LibraryKernel> ProductWays(DeviceLibrary& library, const ProductPlan& plan,
                                       bool is_whole) {
  LibraryProduct product = *plan.product;
  if (!is_whole) {
    // Where other nodes follow, their input is of the operands' type in the model, too: half the
    // bytes. What the node itself does to its sums is done in float.
    const bool is_of_node = plan.text.result == "sum" && plan.text.y == plan.text.a;
    product.result = is_of_node ? product.operands : DataType::kFloat;
  } else if (plan.addends) {
    product.adds_row = plan.addends->row.has_value();
    product.adds_matrix = plan.addends->matrix.has_value();
    product.relu = plan.addends->relu;
  }
  return library.FindProduct(product);
}

std::vector<LibraryKernel> ConvolutionWays(DeviceLibrary& library, const ProductPlan& plan,
                                           bool is_whole) {
  LibraryConvolution convolution = *plan.convolution;
  if (is_whole && plan.addends) {
    convolution.adds_row = plan.addends->row.has_value();
    convolution.adds_matrix = plan.addends->matrix.has_value();
    convolution.relu = plan.addends->relu;
  }
  return library.FindConvolution(convolution);
}

std::vector<LibraryWay> LibraryWaysOf(const GpuDevice& device, const ProductPlan& plan) {
  std::vector<LibraryWay> ways;
  const auto add = [&](std::vector<LibraryKernel> found, bool is_whole, bool turned = false) {
    for (LibraryKernel& kernel : found) {
      ways.push_back(
          {std::move(kernel), is_whole, turned ? plan.b : plan.a, turned ? plan.a : plan.b});
    }
    return !found.empty();
  };
  const bool is_whole = plan.addends || IsSumAlone(plan.text);
  for (const auto& library : device.libraries()) {
    if (plan.product) {
      bool found = is_whole && add(ProductWays(*library, plan, true), true);
      if (!found && plan.rest) {
        LibraryProduct product = *plan.product;
        product.adds_row = true;
        for (LibraryKernel& kernel : library->FindProduct(product)) {
          ways.push_back({std::move(kernel), false, plan.a, plan.b, true});
          found = true;
        }
      }
      if (!found) add(ProductWays(*library, plan, false), false);
    }
    if (plan.convolution) {
      // To a library, weights are the left operand; by rows of pixels, they are the right one.
      const bool turned = plan.convolution->channels_last;
      const bool found = is_whole && add(ConvolutionWays(*library, plan, true), true, turned);
      if (!found) add(ConvolutionWays(*library, plan, false), false, turned);
    }
  }
  return ways;
}

// The text of the plainest variant, all sizes, and the shapes that other inputs are read by.
TacticQuestion QuestionOf(const ProductPlan& plan, const PrepareContext& context) {
  const ProductSizes& sizes = plan.sizes;
  TacticQuestion question{SourceOf(plan.text, false), {sizes.batch, sizes.m, sizes.n, sizes.k}};
  for (const OperandInfo& input : context.inputs) {
    if (input.shape == nullptr) continue;
    question.text += StrCat(" ", input.shape->rank());
    for (int axis = 0; axis < input.shape->rank(); ++axis) {
      question.sizes.push_back((*input.shape)[axis]);
    }
  }
  return question;
}

}  // namespace

Result<PreparedKernel> PrepareProduct(GpuDevice& device, const ProductPlan& plan,
                                      const PrepareContext& context) {
  if (plan.sizes.batch * plan.sizes.m * plan.sizes.n == 0) return NothingToDo();
  std::vector<Tactic> tactics;
  for (LibraryWay& way : LibraryWaysOf(device, plan)) {
    const std::string name = way.kernel.name;
    tactics.push_back({name, [&device, &plan, made = std::move(way)] {
                         return PrepareLibrary(device, plan, made);
                       }});
  }
  for (Variant& variant : VariantsOf(device, plan)) {
    const std::string name = variant.name;
    tactics.push_back({name, [&device, &plan, made = std::move(variant)] {
                         return Prepare(device, plan, made);
                       }});
  }
  return PrepareFastest(device, context, QuestionOf(plan, context), tactics);
}

std::unique_ptr<Kernel> MakeProductKernel(GpuDevice& device, ProductPlanner planner) {
  return MakeGpuKernel([planner = std::move(planner),
                        &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const ProductPlan plan, planner(context));
    return PrepareProduct(device, plan, context);
  });
}

Result<ProductPlanner> PlannerOf(const KernelInfo& info) {
  const Node& node = info.node;
  if (node.Is("MatMul") || node.Is("FusedMatMul", "com.microsoft")) return PlanMatMul(info);
  if (node.Is("Gemm") && node.since_version >= 7) return PlanGemm(info);
  if (node.Is("Conv") || node.Is("FusedConv", "com.microsoft")) return PlanConv(info);
  if (node.Is("ConvChannelsLast", "onnxd")) return PlanConvChannelsLast(info);
  if (node.Is("ConvTranspose")) return PlanConvTranspose(info);
  if (node.Is("MatMulNBits", "com.microsoft")) return PlanMatMulNBits(info);
  return Unimplemented(StrCat(node.op_type, " is no product"));
}

}  // namespace onnxd
