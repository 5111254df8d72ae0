#include "runtime/graph/regrouping.h"

namespace onnxd {

bool IsRegrouping(const Node& node) {
  return node.domain.empty() && (node.op_type == "Reshape" || node.op_type == "Flatten" ||
                                 node.op_type == "Squeeze" || node.op_type == "Unsqueeze");
}

}  // namespace onnxd
