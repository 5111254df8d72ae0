#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// ConvTranspose of signals whose window is a multiple of its stride, as vocoders have it: Conv to
// `stride` times the channels, which lie one behind the other in the result, and what follows it
// element by element before they do. Source: Shi et al., "Is the deconvolution layer the same as a
// convolutional layer?", 2016. Level all.
const GraphPass* SubPixelConv();

}  // namespace onnxd
