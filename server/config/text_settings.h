// TextSettings: a model that takes texts, of which a tokenizer.json makes its tokens: the section
// `texts` of NAME/model.yaml.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "server/config/option_key.h"

namespace onnxd {

struct TextSettings {
  // The name of a file beside the model's; auto: tokenizer.json, and what else stands there, where
  // the model takes its tokens; empty: clients send tokens.
  std::string tokenizer;
  int64_t max_length = 0;  // tokens of a text, or of two; 0: what the tokenizer's files say
  bool pairs = false;      // two texts become one row, as rerankers take them
  // How the vectors of a text's tokens become one: mean, cls (that of the first token), last (that
  // of the last one); empty: the model's outputs are answered as they are.
  std::string pooling;
  bool normalize = false;  // those vectors, to a length of 1
  bool active() const { return !tokenizer.empty(); }
  bool finds_files() const { return tokenizer == kFindsFiles; }
  static constexpr const char* kFindsFiles = "auto";
  bool operator==(const TextSettings&) const = default;
};

const std::vector<OptionKey<TextSettings>>& TextSettingsKeys();

// kInvalidArgument: a tokenizer elsewhere than beside the model, or settings without one.
Status CheckTexts(const TextSettings& texts);

}  // namespace onnxd
