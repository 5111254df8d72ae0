// Which convolutions are worth Winograd's weights.
#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// onnxd::ConvChannelsLast of 3 x 3, stride 1 and one group becomes ConvWinograd where the image has
// at least 12 rows and columns: in tiles of 4 pixels where these are faster (from 24 rows and
// columns on, or as a race says) and their weights have room, or else of 2. All of them add at most
// a half to the model's weights, or 4 MB; those of images below 24 x 24 pixels a fifth. Level all.
const GraphPass* WinogradSelection();

}  // namespace onnxd
