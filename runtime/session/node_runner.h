// Runs one node on values that exist: shapes inferred, kernel prepared, outputs allocated. The slow
// way, for what planning cannot do ahead: constant folding, shape arithmetic while planning, and
// nodes whose shapes the data decide.
#pragma once

#include <span>
#include <vector>

#include "runtime/kernel/kernel.h"

namespace onnxd {

// `inputs` has one entry per node.inputs, absent values for absent inputs; `output_types` are the
// static types. kResourceExhausted when outputs and scratch would exceed `max_bytes`.
Result<std::vector<Value>> RunNode(const Kernel& kernel, const Node& node,
                                   std::span<const Value> inputs,
                                   std::span<const ValueType> output_types, ThreadPool& pool,
                                   int64_t max_bytes);

}  // namespace onnxd
