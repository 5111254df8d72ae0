// onnxd::DepthWindows (runtime/ops/depth_windows.h).
#include "runtime/ops/depth_windows.h"

#include <algorithm>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kGrain = 1 << 16;  // elements that are worth another thread

struct Plan {
  DepthWindows windows;
  int64_t images;            // of the result
  int64_t pixels, channels;  // of an image of the input

  int64_t plane() const { return pixels * channels; }
};

// One image of the result.
void JoinPlanes(const Plan& plan, const float* x, int64_t image, float* out) {
  const DepthWindows& w = plan.windows;
  const int64_t volume = image / w.outputs();
  const int64_t first = image % w.outputs() * w.stride - w.pad_begin;
  for (int64_t q = 0; q < w.kernel; ++q) {
    const int64_t depth = first + q * w.dilation;
    const bool inside = depth >= 0 && depth < w.depth;
    const float* from = inside ? x + (volume * w.depth + depth) * plan.plane() : nullptr;
    // Pieces that stay together, and how far they are apart in the result.
    const int64_t pieces = w.channels_last ? plan.pixels : 1;
    const int64_t length = plan.plane() / pieces;
    float* to = out + q * length;
    for (int64_t i = 0; i < pieces; ++i, to += w.kernel * length) {
      if (inside) {
        std::copy_n(from + i * length, length, to);
      } else {
        std::fill_n(to, length, 0.0f);
      }
    }
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeDepthWindows(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return DeclineType("DepthWindows", info.InputType(0));
  ONNXD_ASSIGN_OR_RETURN(const DepthWindows windows, DepthWindowsOf(info.node));
  return MakeKernel([windows](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& x = context.InputShape(0);
    if (x.rank() != 4 || x[0] % windows.depth != 0) {
      return InvalidArgument(StrCat(Describe(context.node), ": X of shape ", x.ToString(),
                                    " is not of volumes of ", windows.depth, " planes"));
    }
    Plan plan{windows, x[0] / windows.depth * windows.outputs(), x[2] * x[3], x[1]};
    if (windows.channels_last) plan.pixels = x[1] * x[2], plan.channels = x[3];
    PreparedKernel prepared;
    prepared.compute = [plan](const KernelContext& k) {
      const int64_t each = plan.plane() * plan.windows.kernel;
      const auto run = [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          JoinPlanes(plan, k.input<float>(0), i, k.output<float>(0) + i * each);
        }
      };
      if (each > 0) k.pool().ParallelFor(plan.images, 1 + kGrain / each, run);
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
