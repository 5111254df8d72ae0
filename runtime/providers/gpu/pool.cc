// MaxPool, AveragePool, LpPool and their global forms, windows of up to three axes; MaxPool,
// AveragePool and GlobalAveragePool with the channels last.
#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/ops/convolution.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {
namespace {

// A lane for an output, or for VECTOR neighbouring channels where these are last. Spatial axes are
// seen as three. In Dims: image = extents (3), outputs (3), and channels where they are last, else
// 1; window = kernel (3), strides (3); gaps = dilations (3), pads before (3); ends = pads after
// (3).
constexpr std::string_view kSource = R"(
// How many steps of `gap` lead over `distance`.
FUNCTION IX steps_over(IX distance, IX gap) {
  return distance <= 0 ? 0 : (distance + gap - 1) / gap;
}
FUNCTION IX smaller_of(IX a, IX b) { return a < b ? a : b; }
#define DIM(dims, i) ((IX)dims.at[i])

KERNEL pool(GLOBAL const X* in, GLOBAL X* out, GLOBAL i64* where_out, i64 count, Dims image,
            Dims window, Dims gaps, Dims ends, f32 power) {
  const i64 index = GLOBAL_INDEX * VECTOR;
  if (index >= count) return;
  IX rest = (IX)index;
  const IX channels = DIM(image, 6), channel = rest % channels;
  rest /= channels;
  IX first[3], taps[3], padded = 1, inside = 1;
  UNROLL
  for (i32 axis = 2; axis >= 0; --axis) {
    const IX at = rest % DIM(image, 3 + axis);
    rest /= DIM(image, 3 + axis);
    const IX start = at * DIM(window, 3 + axis) - DIM(gaps, 3 + axis);
    const IX gap = DIM(gaps, axis), extent = DIM(image, axis);
    const IX before = steps_over(-start, gap);
    const IX last = smaller_of(DIM(window, axis), steps_over(extent - start, gap));
    first[axis] = start + before * gap;
    taps[axis] = last > before ? last - before : 0;
    inside *= taps[axis];
    padded *= smaller_of(DIM(window, axis), steps_over(extent + DIM(ends, axis) - start, gap));
  }
  const IX plane = DIM(image, 0) * DIM(image, 1) * DIM(image, 2);
  GLOBAL const X* base = in + (i64)rest * plane * channels + channel;
  ACC results[VECTOR];
  UNROLL
  for (i32 e = 0; e < VECTOR; ++e) results[e] = INITIAL;
  IX where = -1;
  for (IX z = 0; z < taps[0]; ++z) {
    for (IX y = 0; y < taps[1]; ++y) {
      for (IX x = 0; x < taps[2]; ++x) {
        const IX offset = ((first[0] + z * DIM(gaps, 0)) * DIM(image, 1) + first[1] +
                           y * DIM(gaps, 1)) * DIM(image, 2) + first[2] + x * DIM(gaps, 2);
        X_VECTOR values;
        values.words = *(GLOBAL const X_WORDS*)(base + (i64)offset * channels);
        const bool is_first = where < 0;
        UNROLL
        for (i32 e = 0; e < VECTOR; ++e) {
          const ACC value = (ACC)X_GET(values.at, e), result = results[e];
          TAKE
        }
        if (is_first) where = offset;
      }
    }
  }
  X_VECTOR taken;
  UNROLL
  for (i32 e = 0; e < VECTOR; ++e) {
    const ACC result = results[e];
    X_PUT(taken.at, e, RESULT);
  }
  *(GLOBAL X_WORDS*)(out + index) = taken.words;
#ifdef WANTS_INDICES
  i64 flat = where;
#ifdef COLUMN_MAJOR
  if (where >= 0) {
    const IX ix = where % DIM(image, 2), iy = where / DIM(image, 2) % DIM(image, 1);
    flat = ((i64)ix * DIM(image, 1) + iy) * DIM(image, 0) + where / (DIM(image, 2) * DIM(image, 1));
  }
#endif
  where_out[index] = (i64)rest * plane + flat;
#endif
}
)";

struct Pool {
  std::string_view initial, take, result;
};

Pool PoolOf(const Node& node) {
  if (node.op_type.starts_with("MaxPool") || node.op_type == "GlobalMaxPool") {
    return {
        "0",
        "if (is_first || value > result || value != value) { results[e] = value; where = offset; }",
        "result"};
  }
  if (node.op_type == "LpPool" || node.op_type == "GlobalLpPool") {
    return {"0", "results[e] = result + pow(fabs(value), (ACC)power);",
            "pow(result, (ACC)1 / (ACC)power)"};
  }
  const bool padded = node.attributes.Int("count_include_pad", 0) != 0;
  return {"0", "results[e] = result + value;",
          padded ? "(padded == 0 ? (ACC)0 : result / (ACC)padded)"
                 : "(inside == 0 ? (ACC)0 : result / (ACC)inside)"};
}

struct PoolDims {
  DeviceDims image, window, gaps, ends;
};

PoolDims Neutral() {
  PoolDims dims;
  dims.image.values.fill(1);
  dims.window.values.fill(1);
  dims.gaps.values = {1, 1, 1, 0, 0, 0, 0, 0};
  return dims;
}

bool HasChannelsLast(const Node& node) { return node.op_type.ends_with("ChannelsLast"); }

Result<PoolDims> DimsOf(const PrepareContext& context) {
  const Shape& x = context.InputShape(0);
  PoolDims dims = Neutral();
  const bool last = HasChannelsLast(context.node);
  if (last) dims.image.values[6] = x[x.rank() - 1];
  const int begin = last ? 1 : 2, end = x.rank() - (last ? 1 : 0);  // of spatial axes
  if (context.node.op_type.starts_with("Global")) {
    dims.image.values[2] = dims.window.values[2] = x.ElementCount(begin, end);
    return dims;
  }
  if (x.rank() < 3 || x.rank() > 5) {
    return Unimplemented(StrCat(Describe(context.node), ": rank ", x.rank(), " is not supported"));
  }
  const std::vector<int64_t> input(x.begin() + begin, x.begin() + end);
  ONNXD_ASSIGN_OR_RETURN(
      const Window window,
      PoolWindow(context.node, input, context.node.attributes.Ints("kernel_shape")));
  const size_t shift = 3 - input.size();
  for (size_t i = 0; i < input.size(); ++i) {
    dims.image.values[shift + i] = input[i];
    dims.image.values[3 + shift + i] = window.output[i];
    dims.window.values[shift + i] = window.kernel[i];
    dims.window.values[3 + shift + i] = window.strides[i];
    dims.gaps.values[shift + i] = window.dilations[i];
    dims.gaps.values[3 + shift + i] = window.pads_begin[i];
    dims.ends.values[shift + i] = window.pads_end[i];
  }
  return dims;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuPool(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  const bool largest = info.node.op_type.starts_with("MaxPool");
  if (!IsDeviceType(type) || type == DataType::kBool || (!largest && !IsFloatingPoint(type))) {
    return DeclineOnDevice(info, type);
  }
  if (info.node.outputs[0] == kNoValue) return Unimplemented("indices without values");
  const Pool pool = PoolOf(info.node);
  const bool wants_indices = info.node.output(1) != kNoValue;
  std::string source = Define("ACC", ComputeName(type)) + Define("INITIAL", pool.initial) +
                       Define("TAKE", pool.take) + Define("RESULT", pool.result);
  if (wants_indices) source += Define("WANTS_INDICES", 1);
  if (info.node.attributes.Int("storage_order", 0) != 0) source += Define("COLUMN_MAJOR", 1);
  source += kSource;
  const float power = info.node.since_version == 1
                          ? info.node.attributes.Float("p", 2)
                          : static_cast<float>(info.node.attributes.Int("p", 2));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const PoolDims dims, DimsOf(context));
    const int64_t count = context.OutputShape(0).ElementCount();
    if (count == 0) return NothingToDo();
    int64_t farthest = std::max(count, context.InputShape(0).ElementCount());
    for (const DeviceDims* some : {&dims.image, &dims.window, &dims.gaps, &dims.ends}) {
      for (const int64_t value : some->values) farthest = std::max(farthest, value);
    }
    int64_t vector = 16 / static_cast<int64_t>(DataTypeBits(type) / 8);
    while (dims.image.values[6] % vector != 0) vector /= 2;
    const bool wide = farthest > std::numeric_limits<int32_t>::max() / 2;
    ONNXD_ASSIGN_OR_RETURN(
        const GpuProgram kernel,
        device.FindKernel(StrCat(Define("IX", wide ? "i64" : "i32"), Define("VECTOR", vector),
                                 DefineType("X", type), DefineVector("X", type, vector), source),
                          "pool"));
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.output<void>(0)).Pointer(k.output<void>(1));
      arguments.Value(count).Value(dims.image).Value(dims.window).Value(dims.gaps);
      arguments.Value(dims.ends).Value(power);
      return Launch(k, kernel, LaunchGrid::Over(count / vector), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
