// The CPU provider: own kernels for every supported operator, and oneDNN for the heavy ones where
// the build has it. It accepts every operator that onnxd supports, so it stands last in every
// provider list.
#pragma once

#include <memory>

#include "runtime/kernel/execution_provider.h"

namespace onnxd {

std::shared_ptr<const ExecutionProvider> MakeCpuProvider();

}  // namespace onnxd
