// Indices that come from data: clamped before they are used, and the first that is outside is the
// run's failure.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/base/str_cat.h"
#include "runtime/graph/graph.h"
#include "runtime/tensor/device.h"

namespace onnxd {

// checked_index(index, extent, failure, step): in [0, extent); 0 with a failure for what is outside
// of [-extent, extent).
inline constexpr std::string_view kCheckedIndex = R"(
FUNCTION i64 checked_index(i64 index, i64 extent, GLOBAL u32* failure, u32 step) {
  if (index < -extent || index >= extent) {
    RAISE(failure, step, 1u, index);
    return 0;
  }
  return index < 0 ? index + extent : index;
}
)";

// What the CPU answers.
inline std::function<Status(const DeviceFailure&)> IndexOutside(const Node& node) {
  return [name = Describe(node)](const DeviceFailure& failure) {
    return InvalidArgument(StrCat(name, ": index ", failure.value, " is out of range"));
  };
}

}  // namespace onnxd
