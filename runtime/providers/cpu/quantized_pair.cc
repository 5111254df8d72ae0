// com.microsoft QLinearAdd and QLinearMul: A, its scale and zero point; B likewise; the scale and
// zero point of the result. Source of the semantics: onnxruntime's ContribOperators document.
#include <array>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/quantization.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

Status CheckOneNumber(const PrepareContext& context) {
  for (const size_t i : {1, 2, 4, 5, 6, 7}) {
    if (!context.HasInput(i) || context.InputShape(i).ElementCount() == 1) continue;
    return InvalidArgument(StrCat(Describe(context.node), ": operand ", i, " must be one number"));
  }
  return Status::Ok();
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeQuantizedPair(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsByte(type)) return DeclineType(info.node.op_type, type);
  const bool is_signed = type == DataType::kInt8, add = info.node.op_type == "QLinearAdd";
  return MakeKernel([is_signed, add](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_RETURN_IF_ERROR(CheckOneNumber(context));
    const Shape& out = context.OutputShape(0);
    PreparedKernel prepared;
    if (out.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    const auto loop = BroadcastLoop<2>(out, {&context.InputShape(0), &context.InputShape(3)});
    prepared.compute = [loop, is_signed, add](const KernelContext& k) {
      const math::Simd& simd = math::CurrentSimd();
      const auto body = add ? simd.quantized_add : simd.quantized_multiply;
      math::QuantizedOperand a{nullptr, FormatAt(k, 1, is_signed), loop.inner_stride(1)};
      math::QuantizedOperand b{nullptr, FormatAt(k, 4, is_signed), loop.inner_stride(2)};
      const math::Quantization to = FormatAt(k, 6, is_signed);
      loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
        a.data = k.input<uint8_t>(0) + at[1];
        b.data = k.input<uint8_t>(3) + at[2];
        body(a, b, to, k.output<uint8_t>(0) + at[0], loop.inner_count());
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
