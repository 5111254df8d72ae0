#include "bench/server/on_demand.h"

#include <simdjson.h>

namespace onnxd {

bool ReadOnDemand(const std::string& text, std::vector<float>& out) {
  simdjson::ondemand::parser parser;
  auto document = parser.iterate(text.data(), text.size(), text.capacity());
  float* to = out.data();
  for (auto row : document["input"].get_array()) {
    for (auto number : row.get_array()) {
      double value;
      if (number.get_double().get(value) != simdjson::SUCCESS) return false;
      *to++ = static_cast<float>(value);
    }
  }
  return to == out.data() + out.size();
}

}  // namespace onnxd
