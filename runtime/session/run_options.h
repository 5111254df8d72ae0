// RunOptions: what bounds one call of Run.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>

namespace onnxd {

struct RunOptions {
  // Checked between steps: kDeadlineExceeded.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // Checked between steps when not null: kCancelled. Must outlive the call.
  const std::atomic<bool>* cancelled = nullptr;
};

}  // namespace onnxd
