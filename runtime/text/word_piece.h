// WordPiece: of a word the longest token that it begins with, then of what is left the longest that
// goes on, and so to its end; else the word is unknown. Source: Schuster and Nakajima, "Japanese
// and Korean voice search" (2012), as BERT reads it.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/text/prefix_tree.h"
#include "runtime/text/subword_model.h"

namespace onnxd {

struct WordPieceOptions {
  std::string continuing_prefix = "##";  // of tokens that go on
  int64_t unknown = 0;                   // the token of unknown words
  size_t most_characters = 100;          // longer words are unknown
};

class WordPiece : public SubwordModel {
 public:
  // Fails as PrefixTree::Make does.
  static Result<std::unique_ptr<WordPiece>> Make(
      std::vector<std::pair<std::string_view, int32_t>> vocabulary, WordPieceOptions options);

  void Encode(std::string_view word, std::vector<Token>& out) const override;

 private:
  PrefixTree tokens_;
  int32_t continuing_ = 0;  // where those that go on begin in the tree
  WordPieceOptions options_;
};

}  // namespace onnxd
