// The trial that decides whether requests of a model may share a run.
#pragma once

#include <atomic>
#include <string>

#include "runtime/session/inference_session.h"

namespace onnxd {

// Runs the session on a few random rows, alone and together, free dimensions but the first at a
// small size. Why it must not run several requests at once, with the output that differs or the
// error that came; empty when together and alone agree. Requires that nothing in the graph speaks
// against it (ModelInfo::rows_depend). Takes at most some seconds, and stops when `stopping` turns
// true.
std::string TryBatch(const InferenceSession& session, const std::atomic<bool>& stopping);

}  // namespace onnxd
