#include "runtime/ops/rotary_positions.h"

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements that are worth another thread

Result<PreparedKernel> Prepare(const PrepareContext& context) {
  ONNXD_ASSIGN_OR_RETURN(
      const RotaryRows rows,
      RotaryRowsOf(context.node,
                   {&context.InputShape(0), &context.InputShape(1), &context.InputShape(2)},
                   context.inputs[0].strides, context.OutputShape(0)));
  StridedLoop<3> loop;
  loop.dims = rows.dims;
  loop.strides = rows.strides;
  loop.Merge();
  PreparedKernel prepared;
  const bool interleaved = context.node.attributes.Int("interleaved", 0) != 0;
  prepared.compute = [=](const KernelContext& k) {
    const math::Simd& simd = math::CurrentSimd();
    const auto run = [&](int64_t first, int64_t last) {
      float* out = k.output<float>(0) + first * rows.size;
      loop.ForLeading(loop.dims.size(), first, last, [&](const std::array<int64_t, 3>& at) {
        const float *x = k.input<float>(0) + at[0], *cosines = k.input<float>(1) + at[1];
        const float* sines = k.input<float>(2) + at[2];
        if (interleaved) {
          simd.rotate_pairs(x, cosines, sines, out, rows.size);
        } else {
          simd.rotate_halves(x, cosines, sines, out, rows.size / 2);
        }
        out += rows.size;
      });
    };
    k.pool().ParallelFor(rows.rows, 1 + kGrain / std::max<int64_t>(rows.size, 1), run);
    return Status::Ok();
  };
  return prepared;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeRotaryPositions(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (type != DataType::kFloat) return DeclineType("RotaryPositions", type);
  return MakeKernel(Prepare, {0});
}

}  // namespace onnxd
