// GenerateTexts: a request of a model that writes texts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "server/inference/generation_options.h"
#include "server/models/model_version.h"

namespace onnxd {

struct TextsAsked {
  Tensor texts;  // strings
  GenerationOptions options;
  int64_t priority = 0;
  std::optional<SteadyTime> deadline = std::nullopt;
  std::shared_ptr<std::atomic<bool>> cancelled = nullptr;  // may be null
  std::shared_ptr<const ModelSteps> steps = nullptr;
};

struct TextsWritten {
  Tensor texts;  // one for each that came, in its shape
  GeneratedTexts counts;
  std::chrono::nanoseconds queue_time{0}, compute_time{0};  // of the one that took longest
};

// Makes tokens of each text, and has the version's generator write what follows. `done` is called
// once, from any thread, when all are written or, for all of them, with the first failure: of the
// tokenizer, of the scheduler, of Generator::Submit; kInvalidArgument for more than 64 texts.
void GenerateTexts(Scheduler& scheduler, std::shared_ptr<const ModelVersion> version,
                   TextsAsked asked, std::function<void(Result<TextsWritten>)> done);

}  // namespace onnxd
