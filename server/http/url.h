// Targets of requests: path segments decoded once.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// "/v2/models/a%20b/infer?x=1" -> {"v2", "models", "a b", "infer"}; the query is dropped, and so is
// a trailing slash, and what comes before the path in the form that proxies send,
// "http://host/path". kInvalidArgument for other targets that do not begin with '/', empty
// segments, "." and "..", malformed escapes, and escapes of slashes or control characters.
// Below v1 the verb of "m:predict" is a segment of its own, ":predict".
// Source: RFC 9112, 3.2.
Result<std::vector<std::string>> PathSegments(std::string_view target);

}  // namespace onnxd
