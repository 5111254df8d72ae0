#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Rotary embeddings written out, x * cosines + Concat(-second, first) * sines of the halves of x's
// last axis or of its neighbours, become onnxd::RotaryPositions (ops/rotary_positions.h). `halves`:
// those of float16 and bfloat16, too. Extended.
const GraphPass* RotaryPositionsFusion(bool halves);

}  // namespace onnxd
