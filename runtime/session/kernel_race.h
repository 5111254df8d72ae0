// The race by which passes choose between kernels where no rule is sure.
#pragma once

#include <memory>
#include <vector>

#include "runtime/graph/graph_pass.h"
#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// Contestants run in turns, a few runs each, and their fastest runs count. Candidates that no
// provider takes, or whose memory is beyond 256 MB, do not run.
KernelRace MakeKernelRace(std::vector<std::shared_ptr<const ExecutionProvider>> providers,
                          std::shared_ptr<ThreadPool> pool);

}  // namespace onnxd
