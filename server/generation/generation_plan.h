// GenerationPlan: how a model writes texts: its tokenizer, its way of taking steps, where it ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/session/inference_session.h"
#include "runtime/text/token_decoder.h"
#include "runtime/text/tokenizer.h"
#include "server/config/generation_settings.h"
#include "server/generation/decoder_plan.h"
#include "server/generation/sampling.h"
#include "server/templates/template.h"

namespace onnxd {

struct GenerationPlan {
  DecoderPlan decoder;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const TokenDecoder> token_decoder;
  int64_t context_length = 0;            // tokens of a prompt and its answer
  std::vector<int64_t> stop_tokens;      // ascending
  SamplingParameters sampling;           // of a request that does not say otherwise
  std::shared_ptr<const Template> chat;  // null: conversations are refused, because of
  std::string why_no_chat;
  bool has_chat_template = false;  // it may be one that cannot be used
  std::map<std::string, std::string> special_tokens;
  int64_t max_sequences = 1, queue_requests = 0, prefill_tokens = 1;
};

// For a session whose file stands in `folder`. Tries, for ten seconds at most, how its sequences
// may be joined. kInvalidArgument and kUnimplemented as MakeDecoderPlan and the tokenizer's files;
// kFailedPrecondition where made-up tokens cannot be computed.
Result<std::shared_ptr<const GenerationPlan>> MakeGenerationPlan(const GenerationSettings& settings,
                                                                 const std::string& folder,
                                                                 const InferenceSession& session);

// What the plan's clients see: `text_input` [batch] and `text_output` [batch].
std::vector<TensorSignature> GenerationInputs();
std::vector<TensorSignature> GenerationOutputs();

}  // namespace onnxd
