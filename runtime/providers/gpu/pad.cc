// Pad and Trilu.
#include <algorithm>
#include <limits>
#include <numeric>

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

constexpr std::string_view kPadSource = R"(
KERNEL pad(GLOBAL const X* in, GLOBAL const X* value, GLOBAL X* out, i64 count, Dims out_dims,
           Dims in_dims, Dims begin, Dims in_strides, X fill) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  IX rest = (IX)i;
  i64 from = 0;
  i32 outside = 0;
  UNROLL
  for (i32 axis = RANK - 1; axis >= 0; --axis) {
    const IX extent = (IX)in_dims.at[axis], dim = (IX)out_dims.at[axis];
    IX at = (axis == 0 ? rest : rest % dim) - (IX)begin.at[axis];
    rest = axis == 0 ? 0 : rest / dim;
    if (at < 0 || at >= extent) { FOLD }
    from += (i64)at * in_strides.at[axis];
  }
  out[i] = outside ? FILL : in[from];
}
)";

// What position `at` outside of [0, extent) reads.
std::string_view FoldOf(const std::string& mode) {
  if (mode == "constant") return "outside = 1; at = 0;";
  if (mode == "edge")
    return "if (extent == 0) outside = 1; at = at < 0 || extent == 0 ? 0 : extent - 1;";
  if (mode == "wrap")
    return "if (extent == 0) outside = 1; at = extent == 0 ? 0 : (at % extent + extent) % extent;";
  if (mode == "reflect") {
    return "if (extent == 0) outside = 1; if (extent <= 1) { at = 0; } else { "
           "const IX period = 2 * (extent - 1); at = (at % period + period) % period; "
           "if (at >= extent) at = period - at; }";
  }
  return {};
}

// Extents, and what comes before each axis; neighbours without any padding are one axis.
struct PadLoop {
  std::vector<int64_t> in, out, begin;
};

PadLoop LoopOf(const Shape& in, const Shape& out, const std::vector<int64_t>& begin) {
  PadLoop loop;
  bool was_whole = false;
  for (int axis = 0; axis < in.rank(); ++axis) {
    const int64_t before = begin[static_cast<size_t>(axis)];
    const bool is_whole = in[axis] == out[axis] && before == 0;
    if (is_whole && was_whole) {
      loop.in.back() *= in[axis];
      loop.out.back() *= in[axis];
    } else {
      loop.in.push_back(in[axis]);
      loop.out.push_back(out[axis]);
      loop.begin.push_back(before);
    }
    was_whole = is_whole;
  }
  return loop;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuPad(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0), moved = MovedAs(type);
  const std::string mode = info.node.attributes.String("mode", "constant");
  if (moved == DataType::kUndefined) return DeclineOnDevice(info, type);
  if (FoldOf(mode).empty()) return InvalidArgument(StrCat("Pad has no mode '", mode, "'"));
  // Before version 11 the constant is an attribute of floats.
  const bool has_input = info.node.since_version >= 11 && info.node.input(2) != kNoValue;
  const float attribute = info.node.attributes.Float("value", 0.0f);
  if (!has_input && attribute != 0.0f && type != DataType::kFloat) {
    return DeclineOnDevice(info, type);
  }
  const std::string source = StrCat(DefineType("X", moved), Define("FOLD", FoldOf(mode)),
                                    Define("FILL", has_input ? "value[0]" : "fill"), kPadSource);
  return MakeGpuKernel(
      [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        if (context.outputs[0].shape == nullptr) return NeedsValues();
        const Shape& in = context.InputShape(0);
        const Shape& out = context.OutputShape(0);
        const auto rank = static_cast<size_t>(in.rank());
        const char* name = context.node.since_version == 1 ? "paddings" : "pads";
        std::vector<int64_t> all(rank);
        std::iota(all.begin(), all.end(), 0);
        ONNXD_ASSIGN_OR_RETURN(const auto pads, KnownInts(context, 1, name, {}));
        ONNXD_ASSIGN_OR_RETURN(const auto axes, KnownInts(context, 3, "", all));
        if (pads.size() != 2 * axes.size()) {
          return InvalidArgument(StrCat(Describe(context.node), ": ", pads.size(), " pads for ",
                                        axes.size(), " axes"));
        }
        std::vector<int64_t> begin(rank, 0);
        for (size_t i = 0; i < axes.size(); ++i) {
          ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[i], in.rank()));
          begin[static_cast<size_t>(axis)] = pads[i];
        }
        const int64_t count = out.ElementCount();
        if (count == 0) return NothingToDo();
        const PadLoop loop = LoopOf(in, out, begin);
        ONNXD_ASSIGN_OR_RETURN(const DeviceDims out_dims, ToDeviceDims(loop.out));
        ONNXD_ASSIGN_OR_RETURN(const DeviceDims in_dims, ToDeviceDims(loop.in));
        ONNXD_ASSIGN_OR_RETURN(const DeviceDims begins, ToDeviceDims(loop.begin));
        ONNXD_ASSIGN_OR_RETURN(const DeviceDims strides,
                               ToDeviceDims(DenseStrides(Shape(loop.in))));
        const bool wide =
            std::max(count, in.ElementCount()) > std::numeric_limits<int32_t>::max() / 2;
        ONNXD_ASSIGN_OR_RETURN(
            const GpuProgram kernel,
            device.FindKernel(StrCat(Define("IX", wide ? "i64" : "i32"),
                                     Define("RANK", static_cast<int64_t>(loop.in.size())), source),
                              "pad"));
        PreparedKernel prepared;
        prepared.compute = [=](const KernelContext& k) {
          LaunchArguments arguments;
          arguments.Pointer(k.input<void>(0)).Pointer(has_input ? k.input<void>(2) : nullptr);
          arguments.Pointer(k.output<void>(0)).Value(count).Value(out_dims).Value(in_dims);
          arguments.Value(begins).Value(strides);
          switch (DataTypeBits(type)) {
            case 8:
              arguments.Value(uint8_t{0});
              break;
            case 16:
              arguments.Value(uint16_t{0});
              break;
            case 32:
              arguments.Value(attribute);
              break;
            default:
              arguments.Value(uint64_t{0});
          }
          return Launch(k, kernel, LaunchGrid::Over(count), arguments);
        };
        return prepared;
      },
      {1, 3});
}

Result<std::unique_ptr<Kernel>> MakeGpuTrilu(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  if (MovedAs(type) == DataType::kUndefined) return DeclineOnDevice(info, type);
  const bool upper = info.node.attributes.Int("upper", 1) != 0;
  const std::string source = StrCat(DefineType("X", MovedAs(type)), R"(
KERNEL trilu(GLOBAL const X* in, GLOBAL X* out, i64 count, i64 rows, i64 columns, i64 diagonal) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 distance = i % columns - i / columns % rows;
  out[i] = distance )",
                                    upper ? ">=" : "<=", R"( diagonal ? in[i] : 0;
}
)");
  return MakeGpuKernel(
      [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        const Shape& shape = context.InputShape(0);
        if (shape.rank() < 2) {
          return InvalidArgument(StrCat(Describe(context.node), " needs a matrix"));
        }
        ONNXD_ASSIGN_OR_RETURN(const auto diagonals, KnownInts(context, 1, "", {0}));
        const int64_t diagonal = diagonals.empty() ? 0 : diagonals[0];
        const int64_t rows = shape[shape.rank() - 2], columns = shape[shape.rank() - 1];
        const int64_t count = shape.ElementCount();
        if (count == 0) return NothingToDo();
        ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "trilu"));
        PreparedKernel prepared;
        prepared.in_place = {{0, 0}};
        prepared.compute = [=](const KernelContext& k) {
          LaunchArguments arguments;
          arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0)).Value(count);
          arguments.Value(rows).Value(columns).Value(diagonal);
          return Launch(k, kernel, LaunchGrid::Over(count), arguments);
        };
        return prepared;
      },
      {1});
}

}  // namespace onnxd
