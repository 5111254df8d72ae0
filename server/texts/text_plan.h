// TextPlan: how texts become the tokens that a model takes, and the vectors of tokens one for each
// text.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/session/inference_session.h"
#include "server/config/padding_settings.h"
#include "server/config/text_settings.h"

namespace onnxd {

struct TextPlan {
  // One of the session's inputs: from the tokenizer's outputs, or from the client's inputs.
  struct Input {
    bool is_tokens = false;
    size_t index = 0;
    DataType type = DataType::kInt64;
  };
  enum class Pooling { kNone, kMean, kFirst, kLast };

  std::unique_ptr<const InferenceSession> tokenizer;
  int64_t max_length = 0;  // tokens of a row at most; 0: any number
  int64_t pad_id = 0;
  size_t texts = 1;  // of the client's inputs, the first ones
  std::vector<Input> inputs;
  // What the client sees: `text` [batch] and, with pairs, `text_pair` [batch], then the session's
  // inputs that no tokenizer makes; the session's outputs, of which a pooled one becomes
  // `embedding` [batch, size], float.
  std::vector<TensorSignature> client_inputs, client_outputs;
  Pooling pooling = Pooling::kNone;
  size_t pooled = 0;  // output of the session, [batch, tokens, size]
  bool normalizes = false;
};

// Whether a tokenizer makes the input of that name.
bool IsTokenInput(const std::string& name);
// Whether the output is a vector for each token, [batch, tokens, size].
bool HasTokenVectors(const TensorSignature& output);

// For a model with these inputs and outputs whose file stands in `folder`. `options`: of the
// model's session. kInvalidArgument where it has no input `input_ids`, a name is taken, or there is
// nothing to pool; else as MakeTokenizerModel.
Result<std::shared_ptr<const TextPlan>> MakeTextPlan(const TextSettings& settings,
                                                     const std::string& folder,
                                                     const std::vector<TensorSignature>& inputs,
                                                     const std::vector<TensorSignature>& outputs,
                                                     SessionOptions options);

// Lengths, each twice the one before, that requests may be padded to where every other length costs
// much. Empty where the dimension of the tokens has no name, or an input has it that no tokenizer
// makes.
std::vector<PaddedDimension> TextPadding(const TextPlan& plan,
                                         const std::vector<TensorSignature>& inputs);

// The session's inputs and, behind them, the mask: int64 [batch, tokens], 1 where a token is and 0
// where padding is. Errors as InferenceSession::Run.
Result<std::vector<Value>> TokensOf(const TextPlan& plan, std::span<const Value> client_inputs,
                                    const RunOptions& options);

int64_t CountTokens(const Tensor& mask);

// Puts the embeddings in the place of what they are of. kInternal when the output has another shape
// than the mask says; does nothing without pooling.
Status Pool(const TextPlan& plan, const Tensor& mask, std::vector<Value>& outputs);

}  // namespace onnxd
