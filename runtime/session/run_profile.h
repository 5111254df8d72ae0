// RunProfile: what each node of a run took.
#pragma once

#include <chrono>
#include <vector>

#include "runtime/graph/graph.h"

namespace onnxd {

// Filled by one Run at a time (RunOptions::profile). Nodes point into the session's graph.
struct RunProfile {
  using Clock = std::chrono::steady_clock;

  struct Event {
    const Node* node;
    Clock::time_point begin, end;
  };
  // In the order of execution; nodes of subgraphs follow the node that owns them, within its time.
  std::vector<Event> events;
};

}  // namespace onnxd
