#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Convolutions of signals [batch, channels, length] become those of images of one row, and what lies
// between them (activations, sums, pools, concatenation) goes along, so that all that is done for
// images holds for signals. Comes before channels_last. Level all.
const GraphPass* SignalImages();

}  // namespace onnxd
