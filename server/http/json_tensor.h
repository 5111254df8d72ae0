// JSON -> tensors. Conversion is exact: a number that the element type cannot hold is refused.
#pragma once

#include <string>

#include "runtime/tensor/value.h"
#include "server/http/json_document.h"

namespace onnxd {

struct JsonTensorOptions {
  int64_t max_depth = 64;  // of arrays in arrays, besides kMaxRank
  // Floating types take the tokens NaN, Infinity, -Infinity, Inf and -Inf, which RFC 8259 does not
  // know but Python's json module and RapidJSON write.
  bool non_finite_tokens = false;
  // Texts may be {"b64": "..."}.
  bool base64 = false;
  // For TensorFromNested: the outermost array has a row in each element. What has one rank fewer
  // than its type are rows of one element, not one row.
  bool by_row = false;
};

// About as many elements as so many bytes of text hold.
constexpr int64_t ExpectedElements(size_t text) { return static_cast<int64_t>(text / 8 + 16); }

// Nested arrays whose shape the nesting gives, for an input of `type`. One rank below the type's
// adds the batch dimension. Integers serve floats, whole floats serve integers. kInvalidArgument
// names `input` and the index: ragged nesting, wrong element type, or out of range. `expected`
// elements are made room for at once.
Result<Tensor> TensorFromNested(JsonValue json, const ValueType& type, const std::string& input,
                                int64_t expected, const JsonTensorOptions& options);

// Flat or nested elements for a stated shape: "data" of the Open Inference Protocol. A shape of
// more than `max_elements` (what the text can hold) is refused.
Result<Tensor> TensorFromData(JsonValue json, DataType type, const Shape& shape,
                              const std::string& input, int64_t max_elements,
                              const JsonTensorOptions& options);

}  // namespace onnxd
