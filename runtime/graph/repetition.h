// Values that only repeat others along axes.
#pragma once

#include "runtime/graph/graph_match.h"

namespace onnxd {

// What Expand, or And with what is all true, made `id` of: a value that broadcasts to it. `id` itself
// where nothing did, or the value has fewer than two axes.
ValueId BeforeRepetition(const Graph& graph, const GraphMatcher& match, ValueId id);

}  // namespace onnxd
