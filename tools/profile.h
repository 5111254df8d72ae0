// What `onnxd bench --profile` writes and prints.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/session/run_profile.h"

namespace onnxd {

struct ProfiledRun {
  RunProfile::Clock::time_point begin, end;
  RunProfile profile;
};

// The run of median length as Chrome's trace event format (JSON), which chrome://tracing and
// Perfetto open: one slice for the run and one per node within it. kInternal when the file cannot
// be written. Requires a run.
Status WriteChromeTrace(const std::string& path, const std::vector<ProfiledRun>& runs);

// Milliseconds per operator type, mean over the runs, and what lies between nodes; the lines sum to
// the wall time.
std::string ProfileTable(const std::vector<ProfiledRun>& runs);

}  // namespace onnxd
