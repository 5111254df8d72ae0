#include "runtime/providers/gpu/activation.h"

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/pointwise_expressions.h"

namespace onnxd {

Result<std::string> ActivationExpression(const Node& node, std::string_view type,
                                         const std::string& x) {
  const std::string name = node.attributes.String("activation", "");
  if (name.empty()) return x;
  const std::vector<float> parameters = node.attributes.Floats("activation_params");
  // The operator of that name, with its own attributes.
  Node activation;
  activation.op_type = name;
  activation.since_version = 6;  // Clip's bounds are attributes
  if (name == "Silu") {
    activation.op_type = "Swish";
  } else if (name == "FastGelu") {
    activation.op_type = "Gelu";
    activation.attributes.Set("approximate", std::string("tanh"));
  }
  const auto attribute = [&](size_t i, std::string_view as) {
    if (i < parameters.size()) activation.attributes.Set(std::string(as), parameters[i]);
  };
  if (name == "Clip") {
    attribute(0, "min");
    attribute(1, "max");
  } else if (name == "LeakyRelu" || name == "HardSigmoid") {
    attribute(0, "alpha");
    attribute(1, "beta");
  }
  const DataType computed = type == "f64" ? DataType::kDouble : DataType::kFloat;
  const auto expression =
      PointwiseExpression(activation, std::span(&computed, 1), computed, std::span(&x, 1));
  if (!expression) return Unimplemented(StrCat("activation '", name, "' on the device"));
  return *expression;
}

}  // namespace onnxd
