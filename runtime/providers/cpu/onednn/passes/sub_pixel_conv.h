#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// ConvTranspose of signals and images whose window is a multiple of its stride: Conv to `stride`
// times the channels for each axis, which are neighbours in the result, and what follows it element
// by element before they are. Source: Shi et al., "Is the deconvolution layer the same as a
// convolutional layer?", 2016. Level all.
const GraphPass* SubPixelConv();

}  // namespace onnxd
