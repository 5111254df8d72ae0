// Tactics: several ways of computing a node, of which the fastest on this device is taken.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/providers/gpu/gpu_kernel.h"

namespace onnxd {

struct Tactic {
  std::string name;
  std::function<Result<PreparedKernel>()> make;
};

// The first tactic, which is the best guess, unless the device searches: then the fastest, which is
// asked of the device by `question` (all that times depend on) or found by running each on buffers
// of its own. Requires a tactic, and kernels without states that read nothing on the host; `make` of
// different tactics may be called at once. Errors are those of the first tactic; others that fail
// are passed over.
Result<PreparedKernel> PrepareFastest(GpuDevice& device, const PrepareContext& context,
                                      const std::string& question,
                                      const std::vector<Tactic>& tactics);

}  // namespace onnxd
