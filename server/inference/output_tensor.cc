#include "server/inference/output_tensor.h"

#include "server/inference/classification.h"

namespace onnxd {

Result<Tensor> OutputTensor(const NamedValue& output, const std::optional<int64_t>& classification,
                            NonFiniteNumbers& non_finite) {
  if (output.value.is_tensor()) {
    const Tensor& tensor = output.value.tensor();
    return classification ? Classify(tensor, *classification, output.name) : tensor;
  }
  std::string text;
  ONNXD_RETURN_IF_ERROR(AppendNested(text, output.value, non_finite));
  return Tensor::Of<std::string>(Shape{1}, {text});
}

}  // namespace onnxd
