// TokenDecoder: the numbers of tokens back to text, in the steps of Hugging Face's tokenizers
// library (its "decoders").
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/base/status.h"

namespace onnxd {

// What is done to the tokens' texts, one after another: they may become fewer. Immutable; any
// thread.
using DecoderStep = std::function<void(std::vector<std::string>&)>;

struct WrittenToken {
  std::string text;
  bool special = false;  // says something of the text, and is no part of it
};

// Immutable; any thread.
class TokenDecoder {
 public:
  using Tokens = std::unordered_map<int64_t, WrittenToken>;
  // How tokens write bytes that need not be characters.
  enum class Bytes { kNone, kCharacters, kTokens };  // each as one character; as <0xE2>
  // `steps` empty: the texts with a blank between them.
  TokenDecoder(Tokens tokens, std::vector<DecoderStep> steps, Bytes bytes = Bytes::kNone)
      : tokens_(std::move(tokens)), steps_(std::move(steps)), bytes_(bytes) {}

  // UTF-8. Numbers without a token write nothing. Bytes that are not yet a character, or are none,
  // become U+FFFD.
  std::string Decode(std::span<const int64_t> ids, bool skip_special) const;
  // What the token writes behind others, which may be a part of a character; of special ones their
  // own text. Empty: there is none of that number.
  std::string BytesOf(int64_t id) const;
  // Null: there is none of that number.
  const WrittenToken* Find(int64_t id) const;
  std::optional<int64_t> NumberOf(std::string_view token) const;

 private:
  const Tokens tokens_;
  const std::vector<DecoderStep> steps_;
  const Bytes bytes_;
};

// Of a tokenizer.json. kInvalidArgument for what is no such file; kUnimplemented, by its name, for
// a step that is not there.
Result<std::shared_ptr<const TokenDecoder>> ParseTokenDecoder(std::string_view json);

}  // namespace onnxd
