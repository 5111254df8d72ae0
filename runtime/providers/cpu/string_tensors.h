// Texts as tensors, and lines of an attribute.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/tensor/tensor.h"

namespace onnxd {

Result<Tensor> StringTensor(const Shape& shape, std::vector<std::string> strings);

// Lines between line ends of any system, without those that are empty.
std::vector<std::string_view> NonEmptyLines(std::string_view text);

}  // namespace onnxd
