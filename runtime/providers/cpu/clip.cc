// Clip. Bounds are attributes before opset 11 and scalar inputs from then on.
#include <limits>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {

Result<std::unique_ptr<Kernel>> MakeClip(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType("Clip", type);
  const bool attributes = info.node.since_version < 11;
  const float low = info.node.attributes.Float("min", std::numeric_limits<float>::lowest());
  const float high = info.node.attributes.Float("max", std::numeric_limits<float>::max());
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const int64_t count = context.InputShape(0).ElementCount();
    const bool has_low = !attributes && context.HasInput(1);
    const bool has_high = !attributes && context.HasInput(2);
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        T bottom = std::numeric_limits<T>::lowest(), top = std::numeric_limits<T>::max();
        if (attributes) {
          bottom = static_cast<T>(low);
          top = static_cast<T>(high);
        } else if constexpr (std::is_floating_point_v<T>) {
          bottom = -std::numeric_limits<T>::infinity();
          top = std::numeric_limits<T>::infinity();
        }
        if (has_low) bottom = *k.input<T>(1);
        if (has_high) top = *k.input<T>(2);
        const T* in = k.input<T>(0);
        T* out = k.output<T>(0);
        if constexpr (std::is_same_v<T, float>) {
          math::CurrentSimd().clip(in, out, count, bottom, top);
        } else {
          for (int64_t i = 0; i < count; ++i) {
            const T raised = in[i] < bottom ? bottom : in[i];
            out[i] = raised > top ? top : raised;
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
