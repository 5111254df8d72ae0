// tokenizer.json, in which Hugging Face's tokenizers library saves a tokenizer.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/text/tokenizer.h"

namespace onnxd {

// How the texts of a batch come to the same length.
struct BatchPadding {
  int64_t pad_id = 0;
  int64_t length = 0;       // 0: that of the longest text
  int64_t multiple_of = 1;  // the length is rounded up to one
  bool left = false;        // padding stands before the tokens
};

struct JsonTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  BatchPadding padding;
};

// `config`: tokenizer_config.json, which may be empty: what it says of a padding token, of tokens
// before and behind a text, where the tokenizer itself says nothing. kInvalidArgument for what is
// no such file; kUnimplemented, by its name, for a step that is not there.
Result<JsonTokenizer> ParseTokenizerJson(std::string_view json, std::string_view config);

}  // namespace onnxd
