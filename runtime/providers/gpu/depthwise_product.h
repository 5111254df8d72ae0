// Depthwise convolutions of product.h: a lane has some channels of some neighbouring pixels of a
// row, and loads what these share once.
#pragma once

#include <string>

#include "runtime/providers/gpu/product.h"

namespace onnxd {

// Whether a window of such width, dilated as the attributes say, is one: its columns are written
// out in the kernel, and are therefore few.
bool IsForDepthwise(const Attributes& attributes, int64_t window_width);

struct DepthwiseTile {
  int64_t channels, pixels;  // of a lane
  int64_t count;             // of lanes
};

// Requires plan.depthwise.
DepthwiseTile DepthwiseTileOf(const ProductPlan& plan);

// The program of `depthwise_product`, whose arguments are those of `plain_product`. Requires
// plan.depthwise.
std::string DepthwiseSource(const ProductPlan& plan, const DepthwiseTile& tile);

}  // namespace onnxd
