#pragma once

#include "runtime/graph/graph_pass.h"

namespace onnxd {

// Nodes of float16 and bfloat16 compute in float, and so do their neighbours after them, so that
// what passes know of floats holds for such models, too: Cast where the graph's own 16 bits come in
// and go out, constants converted once. Results are rounded at the graph's outputs alone. Not where
// another provider takes nodes before the CPU does: what crosses is of 16 bits then. Extended.
const GraphPass* FloatComputation();

}  // namespace onnxd
