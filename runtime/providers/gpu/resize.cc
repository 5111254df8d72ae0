// Resize and Upsample: one axis after another, by the tables that the CPU has (ops/resize_plan.h).
#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/ops/resize_plan.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {
namespace {

// in [outer, extent, inner], out [outer, size, inner]. A position is -1 where the extrapolation
// value stands.
constexpr std::string_view kSource = R"(
KERNEL resize_axis(GLOBAL const IN* in, GLOBAL OUT* out, GLOBAL const i32* positions,
                   GLOBAL const f32* weights, i64 count, i64 extent, i64 size, i64 inner, i32 taps,
                   f32 extrapolation) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 column = i % inner, x = i / inner % size, base = i / inner / size * extent;
  const i64 first = x * taps;
#if PICKS
  OUT_PUT(out, i, IN_GET(in, (base + positions[first]) * inner + column));
#else
  OUT_C sum = (OUT_C)extrapolation;
  if (positions[first] >= 0) {
    sum = 0;
    for (i32 tap = 0; tap < taps; ++tap) {
      sum += (OUT_C)weights[first + tap] * IN_GET(in, (base + positions[first + tap]) * inner + column);
    }
  }
  OUT_PUT(out, i, sum);
#endif
}
)";

struct Pass {
  GpuProgram kernel;
  DeviceBuffer positions, weights;
  int64_t count, extent, size, inner;
  int32_t taps;
  bool from_scratch, to_scratch;
};

template <typename T>
Result<DeviceBuffer> UploadAll(GpuDevice& device, const std::vector<T>& values) {
  return device.Upload(std::as_bytes(std::span(values)));
}

std::vector<int32_t> PositionsOf(const ResizeAxisPlan& plan) {
  std::vector<int32_t> positions(plan.index.begin(), plan.index.end());
  for (size_t x = 0; x < plan.outside.size(); ++x) {
    if (plan.outside[x]) positions[x * plan.taps] = -1;
  }
  return positions;
}

// Intermediate images are of the type that sums have.
std::string SourceOf(DataType type, DataType between, bool picks, bool first, bool last) {
  return StrCat(DefineType("IN", first ? type : between), DefineType("OUT", last ? type : between),
                Define("PICKS", picks ? 1 : 0), kSource);
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuResize(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(const ResizeMode mode, ResizeModeOf(info.node));
  const bool picks = mode.interpolation == ResizeMode::Interpolation::kNearest &&
                     mode.coordinates != "tf_crop_and_resize";
  const DataType own = info.InputType(0);
  const DataType type = picks ? MovedAs(own) : own;
  if (type == DataType::kUndefined || (!picks && (!IsDeviceType(own) || !IsFloatingPoint(own)))) {
    return DeclineOnDevice(info, own);
  }
  const bool half = !picks && DataTypeBits(type) < 32;
  const DataType between = half ? DataType::kFloat : type;
  const auto prepare = [=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) return NeedsValues();
    std::vector<const Tensor*> known;
    for (const OperandInfo& input : context.inputs) known.push_back(input.value);
    ONNXD_ASSIGN_OR_RETURN(const ResizePlan plan,
                           PlanResize(mode, context.node, context.InputShape(0), known));
    PreparedKernel prepared;
    if (context.OutputShape(0).ElementCount() == 0) return NothingToDo();
    if (plan.axes.empty()) {
      prepared.views = {{0, 0}};
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    const size_t image_bytes =
        static_cast<size_t>(plan.buffer) * static_cast<size_t>(DataTypeBits(between) / 8);
    std::vector<Pass> passes;
    Shape current = plan.in;
    for (size_t i = 0; i < plan.axes.size(); ++i) {
      const auto& [axis, axis_plan] = plan.axes[i];
      const bool first = i == 0, last = i + 1 == plan.axes.size();
      Pass pass;
      pass.from_scratch = !first;
      pass.to_scratch = !last;
      pass.extent = current[axis];
      pass.size = axis_plan.size();
      pass.inner = current.ElementCount(axis + 1, current.rank());
      pass.taps = static_cast<int32_t>(axis_plan.taps);
      current[axis] = pass.size;
      pass.count = current.ElementCount();
      ONNXD_ASSIGN_OR_RETURN(pass.positions, UploadAll(device, PositionsOf(axis_plan)));
      ONNXD_ASSIGN_OR_RETURN(pass.weights, UploadAll(device, axis_plan.weights));
      ONNXD_ASSIGN_OR_RETURN(
          pass.kernel,
          device.FindKernel(SourceOf(type, between, picks, first, last), "resize_axis"));
      passes.push_back(std::move(pass));
    }
    prepared.scratch_bytes = 2 * image_bytes;
    prepared.compute = [passes, image_bytes,
                        extrapolation =
                            static_cast<float>(plan.extrapolation)](const KernelContext& k) {
      auto* from = k.scratch<std::byte>();
      auto* to = from + image_bytes;
      for (const Pass& pass : passes) {
        LaunchArguments arguments;
        arguments.Pointer(pass.from_scratch ? from : k.input<void>(0));
        arguments.Pointer(pass.to_scratch ? to : k.output<void>(0));
        arguments.Pointer(pass.positions.get()).Pointer(pass.weights.get());
        arguments.Value(pass.count).Value(pass.extent).Value(pass.size).Value(pass.inner);
        arguments.Value(pass.taps).Value(extrapolation);
        ONNXD_RETURN_IF_ERROR(Launch(k, pass.kernel, LaunchGrid::Over(pass.count), arguments));
        std::swap(from, to);
      }
      return Status::Ok();
    };
    return prepared;
  };
  return MakeGpuKernel(prepare, {1, 2, 3});
}

}  // namespace onnxd
