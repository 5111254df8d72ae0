// "a,b,c" as its parts.
#pragma once

#include <string>
#include <vector>

namespace onnxd {

// Empty parts are left out, and spaces around parts.
std::vector<std::string> SplitList(const std::string& text, char separator);

}  // namespace onnxd
