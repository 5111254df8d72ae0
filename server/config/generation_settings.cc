#include "server/config/generation_settings.h"

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

Status CheckBeside(const char* key, const std::string& file) {
  if (file.find('/') == std::string::npos && !file.starts_with('.')) return Status::Ok();
  return InvalidArgument(
      StrCat("generation: ", key, " '", file, "' must be the name of a file beside the model's"));
}

}  // namespace

const std::vector<OptionKey<GenerationSettings>>& GenerationSettingsKeys() {
  using G = GenerationSettings;
  constexpr int64_t kMostTokens = int64_t{1} << 24;
  static const std::vector<OptionKey<G>> keys = {
      TextKey("tokenizer", &G::tokenizer),
      NumberKey("context_length", &G::context_length, 0, kMostTokens),
      NumberKey("max_sequences", &G::max_sequences, 1, 1024),
      NumberKey("queue_requests", &G::queue_requests, 0, 100'000),
      NumberKey("prefill_tokens", &G::prefill_tokens, 1, kMostTokens),
      NumbersKey("stop_tokens", &G::stop_tokens, 0, int64_t{1} << 26),
      TextKey("chat_template", &G::chat_template),
  };
  return keys;
}

Status CheckGeneration(const GenerationSettings& generation) {
  if (!generation.active()) {
    return generation == GenerationSettings() ? Status::Ok()
                                              : InvalidArgument("generation: it needs a tokenizer");
  }
  ONNXD_RETURN_IF_ERROR(CheckBeside("tokenizer", generation.tokenizer));
  return CheckBeside("chat_template", generation.chat_template);
}

}  // namespace onnxd
