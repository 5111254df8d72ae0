#include "runtime/base/split_list.h"

namespace onnxd {

std::vector<std::string> SplitList(const std::string& text, char separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin < text.size()) {
    size_t end = text.find(separator, begin);
    if (end == std::string::npos) end = text.size();
    const size_t first = text.find_first_not_of(' ', begin);
    if (first < end) {
      parts.push_back(text.substr(first, text.find_last_not_of(' ', end - 1) + 1 - first));
    }
    begin = end + 1;
  }
  return parts;
}

}  // namespace onnxd
