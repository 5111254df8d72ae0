// RotaryEmbedding-23 and com.microsoft's (runtime/ops/rotary_embedding.h).
#include "runtime/ops/rotary_embedding.h"

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {
namespace {

// POSITIONS as RotarySizes::Positions. An element is turned with its partner.
constexpr std::string_view kSource = R"(
KERNEL turn_pairs(GLOBAL const X* x, GLOBAL const X* cosines, GLOBAL const X* sines,
#if POSITIONS
              GLOBAL const P* positions,
#endif
              GLOBAL X* y, i64 count, i64 sequence, i64 heads, i64 size, i64 rotated, i64 rows,
              i64 width, GLOBAL u32* failure, u32 step) {
  const i64 i = GLOBAL_INDEX;
  if (i >= count) return;
  const i64 d = i % size, lane = i / size;
  if (d >= rotated) {
    y[i] = x[i];
    return;
  }
#if SPLIT_HEADS
  const i64 s = lane % sequence, b = lane / sequence / heads;
#else
  const i64 s = lane / heads % sequence, b = lane / heads / sequence;
#endif
  i64 row = b * sequence + s;
#if POSITIONS
  const i64 named = (i64)positions[POSITIONS == 1 ? 0 : row];
  row = POSITIONS == 1 ? named + s : named;
  if (named < 0 || named >= rows || row >= rows) {
    RAISE(failure, step, 1u, named);
    row = 0;
  }
#endif
  const i64 apart = rotated / 2;
#if INTERLEAVED
  const i64 angle = d / 2, partner = (d & 1) != 0 ? i - 1 : i + 1;
  const bool is_second = (d & 1) != 0;
#else
  const i64 angle = d % apart, partner = d < apart ? i + apart : i - apart;
  const bool is_second = d >= apart;
#endif
  const X_C cosine = X_GET(cosines, row * width + angle), sine = X_GET(sines, row * width + angle);
  const X_C turned = sine * X_GET(x, partner);
  X_PUT(y, i, cosine * X_GET(x, i) + (is_second ? turned : -turned));
}
)";

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuRotaryEmbedding(const KernelInfo& info, GpuDevice& device) {
  const DataType type = info.InputType(0);
  const RotaryInputs at = RotaryInputsOf(info.node);
  if (!IsDeviceType(type) || !IsFloatingPoint(type)) return DeclineOnDevice(info, type);
  for (const size_t i : {at.cosines, at.sines}) {
    if (info.InputType(i) != type) return DeclineOnDevice(info, info.InputType(i));
  }
  const bool has_positions = info.node.input(at.positions) != kNoValue;
  const DataType positions = has_positions ? info.InputType(at.positions) : DataType::kInt64;
  if (positions != DataType::kInt64 && positions != DataType::kInt32) {
    return DeclineOnDevice(info, positions);
  }
  const std::string common = StrCat(DefineType("X", type), DefineType("P", positions));
  return MakeGpuKernel([=, &device](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape* given =
        context.HasInput(at.positions) ? &context.InputShape(at.positions) : nullptr;
    ONNXD_ASSIGN_OR_RETURN(const RotarySizes s, RotarySizesOf(context.node, context.InputShape(0),
                                                              context.InputShape(at.cosines),
                                                              context.InputShape(at.sines), given));
    const int64_t count = context.OutputShape(0).ElementCount();
    if (count == 0) return NothingToDo();
    const std::string source =
        StrCat(common, Define("POSITIONS", static_cast<int64_t>(s.positions)),
               Define("SPLIT_HEADS", s.split_heads ? 1 : 0),
               Define("INTERLEAVED", s.interleaved ? 1 : 0), kSource);
    ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel, device.FindKernel(source, "turn_pairs"));
    PreparedKernel prepared;
    prepared.on_failure = [name = Describe(context.node),
                           rows = s.rows](const DeviceFailure& failure) {
      return InvalidArgument(
          StrCat(name, ": position ", failure.value, " is outside of the ", rows, " of the cache"));
    };
    prepared.compute = [=](const KernelContext& k) {
      LaunchArguments arguments;
      arguments.Pointer(k.input<void>(0)).Pointer(k.input<void>(at.cosines));
      arguments.Pointer(k.input<void>(at.sines));
      if (has_positions) arguments.Pointer(k.input<void>(at.positions));
      arguments.Pointer(k.output<void>(0)).Value(count).Value(s.sequence).Value(s.heads);
      arguments.Value(s.size).Value(s.rotated).Value(s.rows).Value(s.width);
      arguments.Pointer(k.stream().failure_word()).Value(k.step());
      return Launch(k, kernel, LaunchGrid::Over(count), arguments);
    };
    return prepared;
  });
}

}  // namespace onnxd
