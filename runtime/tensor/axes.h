// Lists of axes, as Slice, Pad, Resize and CenterCropPad take them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// Each from 0 on. Fails with kInvalidArgument where one is outside a tensor of this rank, or comes
// twice, which ONNX leaves undefined.
Result<std::vector<int>> NormalizeAxes(std::span<const int64_t> axes, int rank);

}  // namespace onnxd
