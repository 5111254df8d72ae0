#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include "runtime/base/size_class.h"
#include "runtime/base/str_cat.h"
#include "runtime/providers/fused/fused_kernels.h"
#include "runtime/providers/fused/place_function.h"
#include "runtime/providers/fused/row_operator.h"
#include "runtime/providers/gpu/pointwise_expressions.h"
#include "runtime/providers/gpu/row_kernels.h"
#include "runtime/providers/gpu/tactics.h"

namespace onnxd {
namespace {

// ROW_LANES lanes for a row, which stays in local memory where it has room there; ROWS of them in a
// group, of which the last ones may not be there.
constexpr std::string_view kSource = R"(
#if KEPT
#define FIRST(i) (kept[i] = BEGIN(base + (i)))
#define ELEMENT(i) kept[i]
#else
#define FIRST(i) BEGIN(base + (i))
#define ELEMENT(i) BEGIN(base + (i))
#endif
#define EACH(i) (i64 i = LANE(0); i < own_width; i += ROW_LANES)

KERNEL fused_rows(PARAMETERS i64 rows, i64 width) {
  LOCAL f32 of_rows[ROWS * ROW_LANES];
  LOCAL_POINTER f32* partial = of_rows + LANE(1) * ROW_LANES;
#if KEPT
  LOCAL f32 kept_of_rows[ROWS * KEPT];
  LOCAL_POINTER f32* kept = kept_of_rows + LANE(1) * KEPT;
#endif
  const i64 row = GROUP(0) * ROWS + LANE(1), base = row * width;
  const i64 own_width = row < rows ? width : 0;
#ifdef NORMALIZES
  f32 total = 0.0f;
  for EACH(i) total += FIRST(i);
  f32 mean = 0.0f;
#if CENTERED
  partial[LANE(0)] = total;
  GROUP_REDUCE(partial, PLUS)
  mean = partial[0] / (f32)width;
  ROWS_BARRIER();
#endif
  f32 squares = 0.0f;
  for EACH(i) {
    const f32 x = ELEMENT(i) - mean;
    squares += x * x;
  }
  partial[LANE(0)] = squares;
  GROUP_REDUCE(partial, PLUS)
  const f32 inverse = 1.0f / sqrt(partial[0] / (f32)width + EPSILON);
  for EACH(i) FINISH(AFFINE((ELEMENT(i) - mean) * inverse, base + i), base + i);
#endif
#ifdef SOFTMAX
  f32 largest = -INFINITY_F32;
  for EACH(i) {
    const f32 x = FIRST(i);
    largest = LARGER(largest, x);
  }
  partial[LANE(0)] = largest;
  GROUP_REDUCE(partial, LARGER)
  largest = partial[0];
  ROWS_BARRIER();
  f32 total = 0.0f;
  for EACH(i) total += exp(ELEMENT(i) - largest);
  partial[LANE(0)] = total;
  GROUP_REDUCE(partial, PLUS)
  total = partial[0];
  for EACH(i) FINISH(SOFTMAX(ELEMENT(i)), base + i);
#endif
#ifdef REDUCES
  f32 total = INITIAL;
  for EACH(i) {
    const f32 x = BEGIN(base + i);
    total = REDUCES(total, x);
  }
  partial[LANE(0)] = total;
  GROUP_REDUCE(partial, COMBINE)
  if (LANE(0) == 0 && row < rows) FINISH(LAST(partial[0]), row);
#endif
}
)";

// What the kernel computes of a row: macros.
std::string OperatorText(const Node& node) {
  const std::string& op = node.op_type;
  if (op == "Softmax") return "#define SOFTMAX(x) (exp((x) - largest) / total)\n";
  if (op == "LogSoftmax") return "#define SOFTMAX(x) ((x) - largest - log(total))\n";
  if (!IsReduction(node)) {
    return StrCat(Define("NORMALIZES", 1), Define("CENTERED", op == "LayerNormalization" ? 1 : 0),
                  Define("EPSILON", StrCat("(f32)", node.attributes.Float("epsilon", 1e-5f))));
  }
  const bool largest = op == "ReduceMax", least = op == "ReduceMin";
  std::string_view step = "((a) + (b))", last = "(a)";
  if (largest) step = "LARGER(a, b)";
  if (least) step = "((b) < (a) || (b) != (b) ? (b) : (a))";
  const std::string_view combine = step;
  if (op == "ReduceL1") step = "((a) + fabs(b))";
  if (op == "ReduceL2" || op == "ReduceSumSquare") step = "((a) + (b) * (b))";
  if (op == "ReduceL2") last = "sqrt(a)";
  if (op == "ReduceMean") last = "((a) / (f32)width)";
  return StrCat(Define("INITIAL", largest ? "-INFINITY_F32"
                                  : least ? "INFINITY_F32"
                                          : "0.0f"),
                "#define REDUCES(a, b) ", step, "\n#define COMBINE(a, b) ", combine,
                "\n#define LAST(a) ", last, "\n");
}

// The scale, and the bias, of a normalization.
struct Affine {
  BroadcastOperands operands;
  std::vector<size_t> inputs;
  std::string text;
};

Result<Affine> AffineOf(const Graph& graph, const FusedShapes& shapes, const Node& node) {
  Affine affine;
  affine.text = "#define AFFINE(value, place) (value)\n";
  if (IsReduction(node) || node.inputs.size() < 2) return affine;
  std::vector<DataType> types;
  std::vector<const Shape*> operands;
  for (size_t i = 1; i < node.inputs.size(); ++i) {
    if (node.inputs[i] == kNoValue) continue;
    types.push_back(graph.value(node.inputs[i]).type.element);
    operands.push_back(&shapes.of(node.inputs[i]));
    affine.inputs.push_back(InputPosition(graph, node.inputs[i]));
  }
  ONNXD_ASSIGN_OR_RETURN(
      affine.operands,
      BroadcastOperands::Make(types, operands, shapes.of(node.inputs[0]), "affine_"));
  affine.text = StrCat(
      affine.operands.Types(), "FUNCTION f32 affine(", affine.operands.Parameters(),
      "f32 value, i64 place) { const INDEX i = (INDEX)place; ", affine.operands.Loads(),
      "return value * x0", types.size() > 1 ? " + x1" : "",
      "; }\n#define AFFINE(value, place) affine(", affine.operands.Names(), "value, place)\n");
  return affine;
}

// The nodes behind the rows, and those before them that these read, which are computed again.
std::vector<size_t> WithWhatTheyRead(const Graph& graph, const FusedParts& parts) {
  std::set<ValueId> wanted;
  const auto want = [&](size_t n) {
    wanted.insert(graph.nodes[n].inputs.begin(), graph.nodes[n].inputs.end());
  };
  for (const size_t n : parts.after) want(n);
  std::vector<size_t> nodes;
  for (size_t i = parts.before.size(); i-- > 0;) {
    const size_t n = parts.before[i];
    if (!wanted.contains(graph.nodes[n].outputs[0])) continue;
    want(n);
    nodes.insert(nodes.begin(), n);
  }
  nodes.insert(nodes.end(), parts.after.begin(), parts.after.end());
  return nodes;
}

// Of a row, the best guess first. A warp needs no barriers.
std::vector<uint32_t> LanesFor(int64_t width) {
  if (width <= 64) return {32, 64, 128};
  if (width <= 256) return {64, 32, 128};
  if (width <= 512) return {128, 64, 256, 32};
  if (width <= 1024) return {256, 128, 512, 32};
  if (width <= 4096) return {256, 128, 512};
  return {512, 256, 128};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeFusedRows(const KernelInfo&, FusedGraph graph, size_t rows,
                                              GpuDevice& device) {
  const Node& node = graph->nodes[rows];
  const FusedParts parts = PartsAround(*graph, rows);
  PlaceFunction::Parts begin, finish;
  begin.result = begin.shape = node.inputs[0];
  begin.nodes = parts.before;
  finish.given = finish.shape = node.outputs[0];
  finish.nodes = WithWhatTheyRead(*graph, parts);
  for (size_t i = 0; i < graph->outputs.size(); ++i) {
    const auto gives = [&](size_t n) { return graph->nodes[n].outputs[0] == graph->outputs[i]; };
    const bool early = std::any_of(parts.before.begin(), parts.before.end(), gives);
    (early ? begin : finish).outputs.push_back(i);
  }
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Node& node = graph->nodes[rows];
    ONNXD_ASSIGN_OR_RETURN(const FusedShapes shapes, FusedShapes::Make(*graph, context));
    const Shape& shape = shapes.of(node.inputs[0]);
    if (shape.ElementCount() == 0) {
      const bool gives_nothing =
          std::ranges::all_of(context.outputs, [](const OperandInfo& output) {
            return output.shape == nullptr || output.shape->ElementCount() == 0;
          });
      if (gives_nothing) return NothingToDo();
      return Unimplemented(StrCat(Describe(context.node), ": rows without elements"));
    }
    ONNXD_ASSIGN_OR_RETURN(const PlaceFunction first,
                           PlaceFunction::Make(*graph, shapes, "begin", begin));
    ONNXD_ASSIGN_OR_RETURN(const PlaceFunction last,
                           PlaceFunction::Make(*graph, shapes, "finish", finish));
    ONNXD_ASSIGN_OR_RETURN(const Affine affine, AffineOf(*graph, shapes, node));
    const int axes = RowAxes(node, shape.rank());
    const int64_t width = shape.ElementCount(shape.rank() - axes, shape.rank());
    constexpr int64_t kMostKept = 8 << 10;
    const bool kept = width <= kMostKept && !IsReduction(node);
    const bool wide = shape.ElementCount() > std::numeric_limits<int32_t>::max();
    const int64_t row_count = shape.ElementCount() / width;
    const std::string source =
        StrCat(Define("INDEX", wide ? "i64" : "u32"), Define("KEPT", kept ? SizeClass(width) : 0),
               OperatorText(node), PointwiseFunctions(), first.text(), last.text(), affine.text,
               "#define BEGIN(place) ", first.Call("0", "place"), "\n#define FINISH(value, place) ",
               last.Call("value", "place"), "\n",
               Define("PARAMETERS",
                      StrCat(first.parameters(), last.parameters(), affine.operands.Parameters())),
               kRowFunctions, kSource);
    const auto make = [&](uint32_t lanes) -> Result<PreparedKernel> {
      const int64_t of_group = lanes == 32 ? 4 : 1;
      LaunchGrid grid;
      grid.groups[0] = static_cast<uint32_t>((row_count - 1) / of_group + 1);
      grid.lanes[0] = lanes;
      grid.lanes[1] = static_cast<uint32_t>(of_group);
      const std::string sizes =
          StrCat(Define("ROW_LANES", int64_t{lanes}), Define("ROWS", of_group));
      ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                             device.FindKernel(StrCat(sizes, source), "fused_rows"));
      PreparedKernel prepared;
      prepared.compute = [=](const KernelContext& k) {
        LaunchArguments arguments;
        first.Fill(k, arguments);
        last.Fill(k, arguments);
        affine.operands.Fill(k, affine.inputs, arguments);
        arguments.Value(row_count).Value(width);
        return Launch(k, kernel, grid, arguments);
      };
      return prepared;
    };
    std::vector<Tactic> tactics;
    for (const uint32_t lanes : LanesFor(width)) {
      tactics.push_back({StrCat("rows ", lanes), [&make, lanes] { return make(lanes); }});
    }
    return PrepareFastest(device, context, {source, {row_count, width}}, tactics);
  });
}

}  // namespace onnxd
