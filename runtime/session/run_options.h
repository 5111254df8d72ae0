// RunOptions: what bounds one call of Run.
#pragma once

#include <atomic>
#include <chrono>
#include <optional>
#include <vector>

#include "runtime/tensor/tensor.h"

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
  // Of each output, the memory of the host that it is written to, of its type and shape; undefined,
  // those that are not told, and those whose shapes depend on elements: new memory. It may be an
  // input's, or begin within it, where the output is that input but for what the run adds to it
  // (GroupQueryAttention and TensorScatter at the same address, DroppedTokens so many tokens behind
  // it): then the input's elements are lost, also when the run fails. kInvalidArgument for memory
  // that does not fit.
  std::vector<Tensor> outputs_into;
  // Gets an event per node when not null. Must outlive the call; one call at a time.
  RunProfile* profile = nullptr;
};

}  // namespace onnxd
