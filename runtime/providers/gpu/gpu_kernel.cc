#include "runtime/providers/gpu/gpu_kernel.h"

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"

namespace onnxd {

Status DeclineOnDevice(const KernelInfo& info, DataType type) {
  return Unimplemented(
      StrCat(info.node.op_type, " of ", DataTypeName(type), " is not computed on the device"));
}

Status NeedsValues() {
  return FailedPrecondition("the output shape depends on values that are not known yet");
}

Result<std::vector<int64_t>> KnownInts(const PrepareContext& context, size_t input,
                                       std::string_view attribute, std::vector<int64_t> fallback) {
  if (!attribute.empty() && context.node.attributes.Has(attribute)) {
    return context.node.attributes.Ints(attribute);
  }
  if (!context.HasInput(input)) return fallback;
  const Tensor* value = context.inputs[input].value;
  if (value == nullptr) return NeedsValues();
  return IntElements(*value).value_or(fallback);
}

DataType MovedAs(DataType type) {
  switch (DataTypeBits(type)) {
    case 8:
      return DataType::kUint8;
    case 16:
      return DataType::kUint16;
    case 32:
      return DataType::kUint32;
    case 64:
      return DataType::kUint64;
    default:
      return DataType::kUndefined;
  }
}

}  // namespace onnxd
