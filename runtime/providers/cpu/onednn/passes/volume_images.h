#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Convolutions of volumes [batch, channels, depth, height, width] of known depth become those of
// depth images, whose channels are those of all planes that the window sees at once. Comes before
// channels_last. Level all.
const GraphPass* VolumeImages();

}  // namespace onnxd
