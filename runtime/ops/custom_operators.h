// Operators beside the standard's own and the contrib ones: what plug-ins add.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/ops/op_schema.h"
#include "runtime/ops/shape_inference.h"

namespace onnxd {

struct CustomOperator {
  std::string domain, name;
  int since_version = 1;
  int min_inputs = 1, max_inputs = 1;  // those from min_inputs on are optional
  int min_outputs = 1, max_outputs = 1;
  struct NamedAttribute {
    std::string name, kind;  // kind as AttributeKindName spells it
    bool required = false;
  };
  std::vector<NamedAttribute> attributes;
  InferenceFunction infer = nullptr;
};

// Adds operators for the life of the process; all of them or none. Any thread, but models that use
// them load after it. kInvalidArgument when one is known already.
Status RegisterCustomOperators(std::vector<CustomOperator> operators);

// As FindOpSchema and FindInferenceRule, of these operators alone.
const OpSchema* FindCustomSchema(std::string_view domain, std::string_view op, int64_t opset);
InferenceFunction FindCustomInferenceRule(std::string_view domain, std::string_view op);

}  // namespace onnxd
