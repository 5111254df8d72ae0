// A request and its answer without a wire format: what both frontends and the service speak.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"
#include "server/inference/generation_options.h"
#include "server/inference/request_origin.h"
#include "server/inference/sequence_control.h"

namespace onnxd {

struct NamedValue {
  std::string name;
  Value value;
};

// What frontends that know neither names nor types of inputs can ask for.
struct TensorMetadata {
  std::string name;
  ValueType type;
};

struct InferenceRequest {
  std::string id;  // echoed
  RequestOrigin origin;
  std::vector<NamedValue> inputs;
  std::vector<std::string> outputs;  // empty: all
  // When its client stops waiting.
  std::optional<std::chrono::steady_clock::time_point> deadline;
  // Its parameter `timeout`, at most kMostTimeout; counts where the model's settings allow it.
  std::optional<std::chrono::microseconds> timeout;
  static constexpr std::chrono::hours kMostTimeout{24};
  int64_t priority = 0;  // 1 is the most urgent; 0: the default
  SequenceControl sequence;
  GenerationOptions generation;  // counts where the model writes texts
};

// Whether a model that writes texts gets one prompt.
inline bool HasOneText(const InferenceRequest& request) {
  return request.inputs.size() == 1 && request.inputs[0].value.is_tensor() &&
         request.inputs[0].value.tensor().ElementCount() == 1;
}

struct InferenceResponse {
  std::string model, version, id;
  std::vector<NamedValue> outputs;  // in the requested order, else the model's
  std::chrono::nanoseconds queue_time{0}, compute_time{0};
  std::optional<int64_t> input_tokens = std::nullopt;  // that the server made of texts
  std::optional<GeneratedTexts> generated = std::nullopt;
};

// Called once, on an executor thread or the caller's.
using InferenceCallback = std::function<void(Result<InferenceResponse>)>;

}  // namespace onnxd
