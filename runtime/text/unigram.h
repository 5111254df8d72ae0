// Unigram language model: of all ways to cut a text into tokens the likeliest. Source: Kudo,
// "Subword regularization" (2018); unknown characters, and what users define, are scored as
// sentencepiece does.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/prefix_tree.h"
#include "runtime/text/subword_model.h"

namespace onnxd {

struct UnigramPiece {
  std::string text;
  float score = 0;            // log of the probability
  bool is_candidate = true;   // found in text; controls and the unknown token are not
  bool user_defined = false;  // better than any way to cut it
};

struct UnigramOptions {
  std::optional<int64_t> unknown;  // for characters of no token; without it these are left out
  bool byte_fallback = false;      // <0x00> to <0xFF> for unknown characters, where all are tokens
};

class Unigram : public SubwordModel {
 public:
  // A token's number is its place in `pieces`. Fails as PrefixTree::Make does.
  static Result<std::unique_ptr<Unigram>> Make(std::vector<UnigramPiece> pieces,
                                               UnigramOptions options);

  // O(n * longest token).
  void Encode(std::string_view piece, std::vector<Token>& out) const override;

 private:
  float ScoreOf(int32_t number) const;
  void AddUnknown(std::string_view text, uint32_t begin, uint32_t end,
                  std::vector<Token>& out) const;

  std::vector<UnigramPiece> pieces_;
  PrefixTree tree_;
  UnigramOptions options_;
  float lowest_ = 0, highest_ = 0;
  std::array<int64_t, 256> byte_tokens_{};
  bool has_all_bytes_ = false;
};

}  // namespace onnxd
