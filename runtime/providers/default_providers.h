// The one place that knows which providers this build has.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// Providers by priority for `names` ("cuda", "opencl", "cpu"); the CPU provider is added at the end when it
// is not listed. One whose device this machine lacks is left out, and a line of the log says why.
// kInvalidArgument lists the known names.
Result<std::vector<std::shared_ptr<const ExecutionProvider>>> MakeProviders(
    const std::vector<std::string>& names);

}  // namespace onnxd
