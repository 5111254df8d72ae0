// Values as JSON text. Numbers are the shortest text that reads back as the same number.
#pragma once

#include <string>
#include <string_view>

#include "runtime/tensor/value.h"

namespace onnxd {

// A quoted string; invalid UTF-8 becomes U+FFFD.
void AppendJsonString(std::string& out, std::string_view text);
bool IsUtf8(std::string_view text);

// What NaN and infinities become, which JSON does not know: null; the tokens NaN, Infinity and
// -Infinity; or kInternal for the whole value.
enum class NonFinite { kNull, kToken, kError };

struct NonFiniteNumbers {
  NonFinite form = NonFinite::kNull;
  int64_t count = 0;  // that were written; grows
};

// Elements as one flat array, row-major. kInvalidArgument for strings that are not UTF-8 and for
// types without a JSON form.
Status AppendFlat(std::string& out, const Tensor& tensor, NonFiniteNumbers& non_finite);

// Nested arrays by shape; a scalar is one number. Sequences are arrays, maps are objects with their
// keys as text, an empty optional is null.
Status AppendNested(std::string& out, const Value& value, NonFiniteNumbers& non_finite);

}  // namespace onnxd
