// Normalizers and pre-tokenizers, as a tokenizer.json describes them.
#pragma once

#include "runtime/base/status.h"
#include "runtime/text/json_element.h"
#include "runtime/text/normalizers.h"
#include "runtime/text/pre_tokenizers.h"

namespace onnxd {

// Whether pieces end up as bytes, written with ByteCharacters: the model may then look at bytes.
struct StepTraits {
  bool byte_level = false;
};

Result<Normalizer> ParseNormalizer(JsonElement json, StepTraits& traits);
Result<PreTokenizer> ParsePreTokenizer(JsonElement json, StepTraits& traits);

// {"String": text} or {"Regex": expression}.
Result<Matcher> ParsePattern(std::optional<JsonElement> json);
// A text of at most 64 bytes: more that a step puts in have no use, and could take all memory.
Result<std::string> InsertedText(JsonElement json, std::string_view name);

}  // namespace onnxd
