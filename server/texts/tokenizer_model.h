// A tokenizer.json as a model: from texts to the inputs of an encoder.
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/graph/model.h"

namespace onnxd {

struct TokenizerOptions {
  bool pairs = false;      // two texts become one row of tokens
  int64_t max_length = 0;  // tokens of a row at most; 0: what the files say
  int64_t length = 0;      // of every row, with padding; 0: that of the longest
  // Whether rows are cut and padded as tokenizer.json says, which is how it was used last; else as
  // transformers does: to what the encoder takes, and to the longest.
  bool as_saved = true;
};

struct TokenizerModel {
  // text [batch], and text_pair where there are pairs -> input_ids, attention_mask, token_type_ids
  // [batch, tokens].
  Model model;
  int64_t max_length = 0;  // tokens of a row at most; 0: any number
  int64_t pad_id = 0;      // the token of padding
};

// Of the file, or of the tokenizer.json in that folder, and the tokenizer_config.json beside it,
// where there is one. Errors as ReadFile and ParseTokenizerJson; kInvalidArgument for files that
// hold no JSON object.
Result<TokenizerModel> MakeTokenizerModel(const std::string& path, const TokenizerOptions& options);

}  // namespace onnxd
