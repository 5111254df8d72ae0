// RunOptions: what bounds one call of Run.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

namespace onnxd {

struct RunProfile;

struct RunOptions {
  // Checked between steps: kDeadlineExceeded.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // Checked between steps when not null: kCancelled. Must outlive the call.
  const std::atomic<bool>* cancelled = nullptr;
  // Between steps, other threads of the processor may run when none could for so long; zero: they
  // wait until the kernel lets them. See YieldEvery.
  std::chrono::nanoseconds yield_every{0};
  // Of each output, whether it stays in the memory of the device that computes it (Tensor::device),
  // for a next run that takes it as an input; those that are not told come to the host, as do those
  // whose shapes depend on elements.
  std::vector<bool> outputs_on_device;
  // Gets an event per node when not null. Must outlive the call; one call at a time.
  RunProfile* profile = nullptr;
};

}  // namespace onnxd
