// Gather, GatherElements, GatherND, OneHot.
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/axis.h"
#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/providers/gpu/indices.h"
#include "runtime/providers/gpu/pointwise.h"

namespace onnxd {
namespace {

constexpr std::string_view kSource = R"(
// data [outer, extent, inner], out [outer, indices, inner], in units of what is moved at once.
#ifdef ROW_PART
KERNEL gather_rows(GLOBAL const ROW_PART* data, GLOBAL const I* indices, GLOBAL ROW_PART* out,
                   i64 count, i64 extent, i64 inner, i64 index_count, GLOBAL u32* failure,
                   u32 step) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const IX part = (IX)i, inner_parts = (IX)inner;
  const IX column = part % inner_parts, above = part / inner_parts;
  const IX at = above % (IX)index_count, row = above / (IX)index_count;
  const i64 index = checked_index((i64)indices[at], extent, failure, step);
  out[i] = data[((i64)row * extent + index) * inner + column];
}
#endif

// out has the indices' shape; other axes than `axis` name the same position in data.
KERNEL gather_elements(GLOBAL const X* data, GLOBAL const I* indices, GLOBAL X* out, i64 count,
                       Dims dims, Dims strides, i32 rank, i32 axis, i64 extent,
                       GLOBAL u32* failure, u32 step) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  i64 rest = i, offset = 0;
  for (i32 d = rank - 1; d >= 0; --d) {
    const i64 at = rest % dims.at[d];
    rest /= dims.at[d];
    if (d != axis) offset += at * strides.at[d];
  }
  const i64 index = checked_index((i64)indices[i], extent, failure, step);
  out[i] = data[offset + index * strides.at[axis]];
}

// A tuple of `width` indices names a slice of data.
KERNEL gather_slices(GLOBAL const X* data, GLOBAL const I* indices, GLOBAL X* out, i64 count,
                     i64 slice, i64 width, i64 tuples_per_batch, i64 batch_stride, Dims extents,
                     Dims strides, GLOBAL u32* failure, u32 step) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 tuple = i / slice;
  i64 offset = tuple / tuples_per_batch * batch_stride;
  for (i64 j = 0; j < width; ++j) {
    offset += checked_index((i64)indices[tuple * width + j], extents.at[j], failure, step) *
              strides.at[j];
  }
  out[i] = data[offset + i % slice];
}
)";

// Macros for data that is moved and indices of int32 or int64; empty where the device has neither.
std::string SourceOf(DataType data, DataType indices) {
  const bool whole = indices == DataType::kInt32 || indices == DataType::kInt64;
  if (MovedAs(data) == DataType::kUndefined || !whole) return {};
  return StrCat(DefineType("X", MovedAs(data)), DefineType("I", indices), kCheckedIndex, kSource);
}

void AddFailure(const KernelContext& k, LaunchArguments& arguments) {
  arguments.Pointer(k.stream().failure_word()).Value(k.step());
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuGather(const KernelInfo& info, GpuDevice& device) {
  const std::string source = SourceOf(info.InputType(0), info.InputType(1));
  if (source.empty()) return DeclineOnDevice(info, info.InputType(0));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const AxisView view,
                           ViewAt(context.InputShape(0), context.node.attributes.Int("axis", 0)));
    const int64_t count = context.OutputShape(0).ElementCount();
    const int64_t indices = context.InputShape(1).ElementCount();
    if (count == 0) return NothingToDo();
    const auto width = static_cast<int64_t>(DataTypeBits(context.inputs[0].type) / 8);
    int64_t together = 16 / width;
    while (view.inner % together != 0) together /= 2;
    const bool wide = count > std::numeric_limits<int32_t>::max();
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                           device.FindKernel(StrCat(Define("ROW_PART", MovedBy(width * together)),
                                                    Define("IX", wide ? "i64" : "i32"), source),
                                             "gather_rows"));
    PreparedKernel prepared;
    prepared.on_failure = IndexOutside(context.node);
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(1)).Pointer(k.output<void>(0));
      arguments.Value(count / together).Value(view.extent).Value(view.inner / together);
      arguments.Value(indices);
      AddFailure(k, arguments);
      return Launch(k, kernel, LaunchGrid::Over(count / together), arguments);
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuGatherElements(const KernelInfo& info, GpuDevice& device) {
  const std::string source = SourceOf(info.InputType(0), info.InputType(1));
  if (source.empty()) return DeclineOnDevice(info, info.InputType(0));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& data = context.InputShape(0);
    const Shape& indices = context.InputShape(1);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", 0), data.rank()));
    bool fits = indices.rank() == data.rank();
    for (int i = 0; fits && i < data.rank(); ++i) fits = i == axis || indices[i] <= data[i];
    if (!fits) {
      return InvalidArgument(StrCat(Describe(context.node), ": indices do not fit the data"));
    }
    const int64_t count = indices.ElementCount(), extent = data[axis];
    if (count == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims dims,
                           ToDeviceDims(std::vector<int64_t>(indices.begin(), indices.end())));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims strides, ToDeviceDims(DenseStrides(data)));
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "gather_elements"));
    PreparedKernel prepared;
    prepared.on_failure = IndexOutside(context.node);
    prepared.compute = [=, rank = static_cast<int32_t>(data.rank())](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(1)).Pointer(k.output<void>(0));
      arguments.Value(count).Value(dims).Value(strides).Value(rank).Value(int32_t{axis});
      arguments.Value(extent);
      AddFailure(k, arguments);
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuGatherND(const KernelInfo& info, GpuDevice& device) {
  const std::string source = SourceOf(info.InputType(0), info.InputType(1));
  if (source.empty()) return DeclineOnDevice(info, info.InputType(0));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& data = context.InputShape(0);
    const Shape& indices = context.InputShape(1);
    const int64_t batch_dims = context.node.attributes.Int("batch_dims", 0);
    if (indices.rank() < 1 || batch_dims < 0 || batch_dims >= indices.rank() ||
        indices[indices.rank() - 1] + batch_dims > data.rank()) {
      return InvalidArgument(StrCat(Describe(context.node), ": indices of shape ",
                                    indices.ToString(), " do not address data of shape ",
                                    data.ToString()));
    }
    const int batch = static_cast<int>(batch_dims);
    const int64_t width = indices[indices.rank() - 1];
    if (indices.ElementCount(0, batch) != data.ElementCount(0, batch)) {
      return InvalidArgument(StrCat(Describe(context.node), ": batch dimensions differ"));
    }
    const int used = batch + static_cast<int>(width);
    const int64_t slice = data.ElementCount(used, data.rank());
    const int64_t per_batch = std::max<int64_t>(1, indices.ElementCount(batch, indices.rank() - 1));
    const int64_t batch_stride = data.ElementCount(batch, data.rank());
    const auto all_strides = DenseStrides(data);
    std::vector<int64_t> strides, extents;
    for (int axis = batch; axis < used; ++axis) {
      strides.push_back(all_strides[static_cast<size_t>(axis)]);
      extents.push_back(data[axis]);
    }
    const int64_t count = context.OutputShape(0).ElementCount();
    if (count == 0) return NothingToDo();
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims device_extents, ToDeviceDims(extents));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims device_strides, ToDeviceDims(strides));
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "gather_slices"));
    PreparedKernel prepared;
    prepared.on_failure = IndexOutside(context.node);
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(1)).Pointer(k.output<void>(0));
      arguments.Value(count).Value(slice).Value(width).Value(per_batch).Value(batch_stride);
      arguments.Value(device_extents).Value(device_strides);
      AddFailure(k, arguments);
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

// values = [off, on]; indices outside of the depth leave a row of off.
Result<std::unique_ptr<Kernel>> MakeGpuOneHot(const KernelInfo& info, GpuDevice& device) {
  const DataType index = info.InputType(0), type = info.InputType(2);
  if (MovedAs(type) == DataType::kUndefined || !IsInteger(index) || !IsDeviceType(index)) {
    return DeclineOnDevice(info, type);
  }
  const std::string source = StrCat(DefineType("X", MovedAs(type)), DefineType("I", index), R"(
KERNEL one_hot(GLOBAL const I* indices, GLOBAL const X* values, GLOBAL X* out, i64 count,
               i64 depth, i64 inner) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 at = i / inner % depth, row = i / inner / depth;
  const i64 index = (i64)indices[row * inner + i % inner];
  out[i] = values[index == at || index + depth == at ? 1 : 0];
}
)");
  return MakeGpuKernel(
      [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
        if (context.outputs[0].shape == nullptr) return NeedsValues();
        const Shape& out = context.OutputShape(0);
        ONNXD_ASSIGN_OR_RETURN(const AxisView view,
                               ViewAt(out, context.node.attributes.Int("axis", -1)));
        const int64_t count = out.ElementCount();
        if (count == 0) return NothingToDo();
        ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "one_hot"));
        PreparedKernel prepared;
        prepared.compute = [=](const KernelContext& k) {
          LaunchArguments arguments;
          arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(2)).Pointer(k.output<void>(0));
          arguments.Value(count).Value(view.extent).Value(view.inner);
          return Launch(k, kernel, LaunchGrid::Over(count), arguments);
        };
        return prepared;
      },
      {1});
}

}  // namespace onnxd
