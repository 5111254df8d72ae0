// Kernels as plain functions from values to values, for operators whose arithmetic is rare or whose
// results' shapes the data decide: nothing is prepared, outputs are allocated by each call.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "runtime/kernel/kernel.h"

namespace onnxd {

// One value per node input (absent ones are absent); returns one per node output. Input tensors
// point at memory of the run: an output must not keep them, unless it is the same Value as an
// input.
using EagerFunction =
    std::function<Result<std::vector<Value>>(const Node& node, std::span<const Value> inputs)>;

std::unique_ptr<Kernel> MakeEagerKernel(EagerFunction function);

}  // namespace onnxd
