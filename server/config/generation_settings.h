// GenerationSettings: a model that writes text, token after token: the section `generation` of
// NAME/model.yaml.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/option_key.h"

namespace onnxd {

struct GenerationSettings {
  // The name of a file beside the model's; auto: tokenizer.json, where the model is one that writes
  // token after token; empty: clients send its tensors.
  std::string tokenizer;
  int64_t context_length = 0;        // tokens of a prompt and its answer; 0: what the files say
  int64_t max_sequences = 32;        // that share steps; others wait
  int64_t queue_requests = 256;      // that wait
  int64_t prefill_tokens = 512;      // of prompts between two steps of others
  std::vector<int64_t> stop_tokens;  // ascending, besides those that the files name
  std::string chat_template;         // a file beside the model's; empty: what the files say
  bool active() const { return !tokenizer.empty(); }
  bool finds_files() const { return tokenizer == kFindsFiles; }
  static constexpr const char* kFindsFiles = "auto";
  bool operator==(const GenerationSettings&) const = default;
};

const std::vector<OptionKey<GenerationSettings>>& GenerationSettingsKeys();

// kInvalidArgument: files elsewhere than beside the model, or settings without a tokenizer.
Status CheckGeneration(const GenerationSettings& generation);

}  // namespace onnxd
