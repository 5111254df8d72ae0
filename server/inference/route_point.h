// Where a request stands among all, by which a model's split finds its version.
#pragma once

#include <cstdint>
#include <string_view>

namespace onnxd {

// Evenly spread over all numbers. Requests of one key stand together, in this process and in every
// other; of those without a key, each stands as far from those before as can be. Any thread.
uint64_t RoutePoint(std::string_view key);

}  // namespace onnxd
