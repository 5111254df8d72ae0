// tokenizer.json, in which Hugging Face's tokenizers library saves a tokenizer.
#pragma once

#include <memory>
#include <string_view>

#include "runtime/base/status.h"
#include "runtime/text/tokenizer.h"

namespace onnxd {

struct JsonTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  int64_t pad_id = 0;  // what shorter texts of a batch are filled up with
};

// `config`: tokenizer_config.json, which may be empty: what it says of a padding token, of tokens
// before and behind a text, where the tokenizer itself says nothing. kInvalidArgument for what is
// no such file; kUnimplemented, by its name, for a step that is not there.
Result<JsonTokenizer> ParseTokenizerJson(std::string_view json, std::string_view config);

}  // namespace onnxd
