#include "runtime/providers/cpu/string_tensors.h"

#include <algorithm>

namespace onnxd {

Result<Tensor> StringTensor(const Shape& shape, std::vector<std::string> strings) {
  ONNXD_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Create(DataType::kString, shape));
  std::move(strings.begin(), strings.end(), tensor.mutable_data<std::string>());
  return tensor;
}

std::vector<std::string_view> NonEmptyLines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty()) lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace onnxd
