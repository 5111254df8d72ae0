// What the files beside a model say of the texts that it writes, as Hugging Face's libraries and
// onnxruntime-genai save them:
//
//   generation_config.json       eos_token_id, temperature, top_p, ..., do_sample
//   config.json                  eos_token_id, max_position_embeddings
//   genai_config.json            eos_token_id, context_length, search
//   tokenizer_config.json        chat_template, the texts of bos_token and eos_token
//   chat_template.jinja, chat_template.json
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "server/config/generation_settings.h"
#include "server/generation/sampling.h"

namespace onnxd {

struct GenerationFiles {
  int64_t context_length = 0;  // 0: nothing says so
  std::vector<int64_t> stop_tokens;
  // Of a request that does not say otherwise.
  SamplingParameters sampling;
  std::string chat_template;  // empty: none
  // bos_token, eos_token, ...: their texts.
  std::map<std::string, std::string> special_tokens;
};

// Whether the model beside these files is one that writes texts, as far as they say.
bool SaysGeneration(const GenerationSettings& settings, const std::string& folder);

// Of the folder. What is missing there, or no such file, says nothing. kNotFound and other errors
// of ReadFile for a chat template that `settings` name.
Result<GenerationFiles> ReadGenerationFiles(const GenerationSettings& settings,
                                            const std::string& folder);

}  // namespace onnxd
