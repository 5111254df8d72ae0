// What a request is called in logs and answers: X-Request-Id.
#pragma once

#include <string>
#include <string_view>

namespace onnxd {

// The client's, where it is 1 to 128 printable ASCII characters without spaces; else 16 hexadecimal
// digits, which are not the same twice but no secret either.
std::string RequestId(std::string_view of_client);

}  // namespace onnxd
