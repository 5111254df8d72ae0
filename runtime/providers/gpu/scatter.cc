// Scatter, ScatterElements, ScatterND. Updates that meet in one place are combined one after
// another, so that the same inputs give the same bits.
#include <algorithm>

#include "runtime/ops/shape_inference.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/providers/gpu/indices.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
// A lane for a line of updates along the axis: what they name differs from other lines'.
KERNEL scatter_lines(GLOBAL const I* indices, GLOBAL const X* updates, GLOBAL X* out, i64 lines,
                     Dims dims, Dims index_strides, Dims strides, i32 rank, i32 axis, i64 extent,
                     GLOBAL u32* failure, u32 step) {
  i64 rest = GLOBAL_INDEX;
  if (rest >= lines) return;
  i64 from = 0, to = 0;
  for (i32 d = rank - 1; d >= 0; --d) {
    if (d == axis) continue;
    const i64 at = rest % dims.at[d];
    rest /= dims.at[d];
    from += at * index_strides.at[d];
    to += at * strides.at[d];
  }
  for (i64 i = 0; i < dims.at[axis]; ++i) {
    const i64 at = from + i * index_strides.at[axis];
    const i64 index = checked_index((i64)indices[at], extent, failure, step);
    const i64 target = to + index * strides.at[axis];
    const X_C old = X_GET(out, target), update = X_GET(updates, at);
    X_PUT(out, target, COMBINE(old, update));
  }
}

// A lane for an element of a slice and `tuples` of the tuples that name one: all of them where they
// may meet.
KERNEL scatter_slices(GLOBAL const I* indices, GLOBAL const X* updates, GLOBAL X* out, i64 slice,
                      i64 width, i64 tuples, i64 lanes, Dims extents, Dims strides,
                      GLOBAL u32* failure, u32 step) {
  const i64 lane = GLOBAL_INDEX;
  if (lane >= lanes) return;
  const i64 element = lane % slice, first = lane / slice * tuples;
  for (i64 tuple = first; tuple < first + tuples; ++tuple) {
    i64 target = element;
    for (i64 j = 0; j < width; ++j) {
      target += checked_index((i64)indices[tuple * width + j], extents.at[j], failure, step) *
                strides.at[j];
    }
    const X_C old = X_GET(out, target), update = X_GET(updates, tuple * slice + element);
    X_PUT(out, target, COMBINE(old, update));
  }
}
)";

// Empty for a reduction that ONNX does not know.
std::string_view CombineOf(const std::string& reduction) {
  if (reduction == "none") return "(update)";
  if (reduction == "add") return "((old) + (update))";
  if (reduction == "mul") return "((old) * (update))";
  if (reduction == "min") return "((update) < (old) ? (update) : (old))";
  if (reduction == "max") return "((update) > (old) ? (update) : (old))";
  return {};
}

struct ScatterText {
  std::string source;
  bool meets;  // the order of updates matters
};

Result<ScatterText> TextOf(const KernelInfo& info) {
  const std::string reduction = info.node.attributes.String("reduction", "none");
  const bool moves = reduction == "none";
  const DataType type = moves ? MovedAs(info.InputType(0)) : info.InputType(0);
  const DataType index = info.InputType(1);
  if (!IsDeviceType(type) || (index != DataType::kInt32 && index != DataType::kInt64)) {
    return DeclineOnDevice(info, info.InputType(0));
  }
  if (CombineOf(reduction).empty()) {
    return InvalidArgument(StrCat(Describe(info.node), ": unknown reduction '", reduction, "'"));
  }
  return ScatterText{
      StrCat(DefineType("X", type), DefineType("I", index), "#define COMBINE(old, update) ",
             CombineOf(reduction), "\n", kCheckedIndex, kSource),
      !moves};
}

// The output begins as the data.
Status CopyData(const KernelContext& k, size_t bytes) {
  if (k.output<void>(0) == k.input<void>(0)) return Status::Ok();
  return k.stream().CopyWithin(k.output<void>(0), k.input<void>(0), bytes);
}

size_t BytesOf(const PrepareContext& context) {
  return static_cast<size_t>(
      TensorBytes(context.inputs[0].type, context.InputShape(0).ElementCount()).value_or(0));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuScatterElements(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(const ScatterText text, TextOf(info));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& data = context.InputShape(0);
    const Shape& indices = context.InputShape(1);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", 0), data.rank()));
    bool fits = indices == context.InputShape(2) && indices.rank() == data.rank();
    for (int i = 0; fits && i < data.rank(); ++i) fits = i == axis || indices[i] <= data[i];
    if (!fits) {
      return InvalidArgument(StrCat(Describe(context.node), ": indices of shape ",
                                    indices.ToString(), " and updates of shape ",
                                    context.InputShape(2).ToString(), " do not fit data of shape ",
                                    data.ToString()));
    }
    const std::vector<int64_t> extents(indices.begin(), indices.end());
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims dims, ToDeviceDims(extents));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims walk, ToDeviceDims(DenseStrides(indices)));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims strides, ToDeviceDims(DenseStrides(data)));
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                           device.FindKernel(text.source, "scatter_lines"));
    const int64_t lines = indices.ElementCount() / std::max<int64_t>(1, indices[axis]);
    const size_t bytes = BytesOf(context);
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.on_failure = IndexOutside(context.node);
    prepared.compute = [=, rank = static_cast<int32_t>(data.rank()), extent = data[axis],
                        nothing = indices.ElementCount() == 0](const KernelContext& k) {
      ONNXD_RETURN_IF_ERROR(CopyData(k, bytes));
      if (nothing) return Status::Ok();
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(1)).Pointer(k.input<void>(2)).Pointer(k.output<void>(0));
      arguments.Value(lines).Value(dims).Value(walk).Value(strides).Value(rank);
      arguments.Value(int32_t{axis}).Value(extent);
      arguments.Pointer(k.stream().failure_word()).Value(k.step());
      return Launch(k, kernel, LaunchGrid::Over(lines), arguments);
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuScatterND(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(const ScatterText text, TextOf(info));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& data = context.InputShape(0);
    const Shape& indices = context.InputShape(1);
    const int64_t width = indices.rank() < 1 ? -1 : indices[indices.rank() - 1];
    if (width < 0 || width > data.rank()) {
      return InvalidArgument(StrCat(Describe(context.node), ": indices of shape ",
                                    indices.ToString(), " do not fit data of shape ",
                                    data.ToString()));
    }
    const int64_t slice = data.ElementCount(static_cast<int>(width), data.rank());
    const int64_t tuples = indices.ElementCount(0, indices.rank() - 1);
    if (context.InputShape(2).ElementCount() != tuples * slice) {
      return InvalidArgument(StrCat(Describe(context.node), ": updates have shape ",
                                    context.InputShape(2).ToString()));
    }
    std::vector<int64_t> extents(data.begin(), data.begin() + width);
    std::vector<int64_t> used = DenseStrides(data);
    used.resize(static_cast<size_t>(width));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims device_extents, ToDeviceDims(extents));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims strides, ToDeviceDims(used));
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                           device.FindKernel(text.source, "scatter_slices"));
    const int64_t per_lane = text.meets ? tuples : 1;
    const int64_t lanes = text.meets ? slice : tuples * slice;
    const size_t bytes = BytesOf(context);
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.on_failure = IndexOutside(context.node);
    prepared.compute = [=, nothing = tuples * slice == 0](const KernelContext& k) {
      ONNXD_RETURN_IF_ERROR(CopyData(k, bytes));
      if (nothing) return Status::Ok();
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(1)).Pointer(k.input<void>(2)).Pointer(k.output<void>(0));
      arguments.Value(slice).Value(width).Value(per_lane).Value(lanes);
      arguments.Value(device_extents).Value(strides);
      arguments.Pointer(k.stream().failure_word()).Value(k.step());
      return Launch(k, kernel, LaunchGrid::Over(lanes), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
