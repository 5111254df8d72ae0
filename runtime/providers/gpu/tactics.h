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

// All that the times of tactics depend on.
struct TacticQuestion {
  std::string text;                 // what is computed
  std::vector<int64_t> sizes = {};  // of how much
};

// The first tactic, which is the best guess, unless the device searches: then the fastest, which is
// asked of the device or found by running each on buffers of its own. What was found for sizes of
// the same classes (SizeClass; and multiples of eight alike) holds too, so that shapes that
// requests choose, such as lengths of texts, are not each timed. Requires a tactic, and kernels
// without states that read nothing on the host; `make` of different tactics may be called at once.
// Errors are those of the first tactic; others that fail are passed over.
Result<PreparedKernel> PrepareFastest(GpuDevice& device, const PrepareContext& context,
                                      const TacticQuestion& question,
                                      const std::vector<Tactic>& tactics);

}  // namespace onnxd
