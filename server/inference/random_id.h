// What tells requests and spans apart.
#pragma once

#include <string>

namespace onnxd {

// 16 hexadecimal digits, not all zero, which are not the same twice but no secret either.
std::string RandomId();

}  // namespace onnxd
