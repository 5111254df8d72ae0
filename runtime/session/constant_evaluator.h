// The evaluator that constant folding uses: the last provider accepts every operator.
#pragma once

#include <memory>
#include <vector>

#include "runtime/graph/graph_pass.h"
#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// Folds at most 64 MB a node and 256 MB in all.
ConstantEvaluator MakeConstantEvaluator(
    std::vector<std::shared_ptr<const ExecutionProvider>> providers,
    std::shared_ptr<ThreadPool> pool);

}  // namespace onnxd
