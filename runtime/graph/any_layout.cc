#include "runtime/graph/any_layout.h"

#include <set>

namespace onnxd {

bool IsElementwiseInAnyLayout(const Node& node) {
  static const std::set<std::string> unary = {
      "Relu", "Sigmoid", "Tanh", "HardSwish", "HardSigmoid", "LeakyRelu", "Elu",
      "Exp",  "Sqrt",    "Abs",  "Neg",       "Softplus",    "Mish",      "Erf",
      "Celu", "Selu",    "Gelu", "Log",       "Reciprocal",  "Swish"};
  if (node.Is("Gelu", "com.microsoft")) return true;
  if (node.Is("FastGelu", "com.microsoft")) return node.input(1) == kNoValue;
  return node.domain.empty() && (unary.contains(node.op_type) || node.op_type == "Clip");
}

bool IsBinaryInAnyLayout(const Node& node) {
  return node.domain.empty() && node.since_version >= 7 &&
         (node.op_type == "Add" || node.op_type == "Sub" || node.op_type == "Mul" ||
          node.op_type == "Div" || node.op_type == "Pow" || node.op_type == "PRelu");
}

}  // namespace onnxd
