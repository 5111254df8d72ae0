// Which convolutions are worth Winograd's weights.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// onnxd::ConvChannelsLast of 3 x 3, stride 1 and one group becomes ConvWinograd where the image has
// at least 12 rows and columns (tiles of 4 pixels from 24 on, of 2 below), the smallest weights
// first, as long as all of them add at most a fifth to the model's weights, or 4 MB. Level all.
const GraphPass* WinogradSelection();

}  // namespace onnxd
