// JSON -> tensors. Conversion is exact: a number that the element type cannot hold is refused.
#pragma once

#include <simdjson.h>

#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

// A parsed document. Elements refer to it; one thread.
class JsonDocument {
 public:
  // kInvalidArgument for malformed JSON, nesting deeper than `max_depth` and repeated keys.
  static Result<std::unique_ptr<JsonDocument>> Parse(std::string_view text, int64_t max_depth);
  const simdjson::dom::element& root() const { return root_; }

 private:
  simdjson::dom::parser parser_;
  simdjson::dom::element root_;
};

// Nested arrays whose shape the nesting gives, for an input of `type`. One rank below the type's
// adds the batch dimension. Integers serve floats, whole floats serve integers. kInvalidArgument
// names `input` and the index: ragged nesting, wrong element type, out of range, or a shape of more
// than `max_elements` (what the document's bytes can hold).
Result<Tensor> TensorFromNested(const simdjson::dom::element& json, const ValueType& type,
                                const std::string& input, int64_t max_elements);

// Flat or nested elements for a stated shape: "data" of the Open Inference Protocol.
Result<Tensor> TensorFromData(const simdjson::dom::element& json, DataType type, const Shape& shape,
                              const std::string& input, int64_t max_elements);

}  // namespace onnxd
