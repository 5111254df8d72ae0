#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// onnxd::ConvChannelsLast in groups of fewer than 8 channels: groups of 8, whose weights from one
// old group to another are 0. oneDNN has fast kernels with AVX2 for these, not for those. Level all.
const GraphPass* WideGroups();

}  // namespace onnxd
