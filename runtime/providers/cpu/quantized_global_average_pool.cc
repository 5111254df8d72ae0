// com.microsoft QLinearGlobalAveragePool. Source of the semantics: onnxruntime's ContribOperators
// document.
#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/quantization.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

struct PoolSizes {
  int64_t images, channels, pixels;
  bool channels_last, is_signed;
};

// The sums of one image's channels.
void SumPixels(const PoolSizes& z, const uint8_t* x, float* sums) {
  if (z.channels_last) {
    math::CurrentSimd().sum_byte_rows(x, z.pixels, z.channels, sums, z.is_signed);
    return;
  }
  for (int64_t c = 0; c < z.channels; ++c) {
    int64_t sum = 0;
    const uint8_t* plane = x + c * z.pixels;
    for (int64_t i = 0; i < z.pixels; ++i) {
      sum += z.is_signed ? static_cast<int8_t>(plane[i]) : plane[i];
    }
    sums[c] = static_cast<float>(sum);
  }
}

Status Pool(const PoolSizes& z, const KernelContext& k) {
  const math::Simd& simd = math::CurrentSimd();
  const math::Quantization from = FormatAt(k, 1, z.is_signed), to = FormatAt(k, 3, z.is_signed);
  auto* sums = k.scratch<float>();
  for (int64_t i = 0; i < z.images; ++i) {
    SumPixels(z, k.input<uint8_t>(0) + i * z.channels * z.pixels, sums);
    simd.affine(sums, sums, z.channels, from.scale / static_cast<float>(z.pixels),
                -from.zero * from.scale);
    simd.quantize(sums, to, k.output<uint8_t>(0) + i * z.channels, z.channels);
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeQuantizedGlobalAveragePool(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsByte(type)) return DeclineType(info.node.op_type, type);
  return MakeKernel([is_signed = type == DataType::kInt8](
                        const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& x = context.InputShape(0);
    for (size_t i = 1; i < 5; ++i) {
      if (!context.HasInput(i) || context.InputShape(i).ElementCount() == 1) continue;
      return InvalidArgument(
          StrCat(Describe(context.node), ": scales and zero points must be one number each"));
    }
    if (x.rank() < 3) {
      return InvalidArgument(StrCat(Describe(context.node), ": the input has no spatial axes"));
    }
    PoolSizes z{x[0], 0, 0, context.node.attributes.Int("channels_last", 0) != 0, is_signed};
    z.channels = x[z.channels_last ? x.rank() - 1 : 1];
    z.pixels = z.channels_last ? x.ElementCount(1, x.rank() - 1) : x.ElementCount(2, x.rank());
    PreparedKernel prepared;
    prepared.scratch_bytes = static_cast<size_t>(z.channels) * sizeof(float);
    prepared.compute = [z](const KernelContext& k) { return Pool(z, k); };
    return prepared;
  });
}

}  // namespace onnxd
