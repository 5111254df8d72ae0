// simdjson's On-Demand interface alone, compiled for processors with AVX2: the library that onnxd
// links chooses at run time.
#pragma once

#include <string>
#include <vector>

namespace onnxd {

// Reads {"input": [[numbers]]} into `out`, of as many. The text has room for padding behind it.
bool ReadOnDemand(const std::string& text, std::vector<float>& out);

}  // namespace onnxd
