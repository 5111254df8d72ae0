// Byte pair encoding: of neighbouring symbols the pair that was learned first becomes one, until
// none is left. Source: Sennrich, Haddow and Birch, "Neural machine translation of rare words with
// subword units" (2016); over bytes: Radford et al., "Language models are unsupervised multitask
// learners" (2019).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/text/subword_model.h"
#include "runtime/text/vocabulary.h"

namespace onnxd {

// GPT-2's character for each byte: printable ones stand for themselves, the others for characters
// from U+0100 on. Tokens over bytes are written with them.
const std::array<char32_t, 256>& ByteCharacters();

struct BytePairOptions {
  bool bytes = false;              // symbols are bytes, written with ByteCharacters, not characters
  std::optional<int64_t> unknown;  // for symbols that are no token; without it these are left out
  bool fuse_unknown = false;       // neighbouring unknown symbols are one token
  bool byte_fallback =
      false;  // unknown characters become the tokens <0x00> to <0xFF> of their bytes
  bool whole_words_first = false;  // a word that is a token is that token, whatever its pairs
  std::string continuing_prefix;   // of symbols that do not begin a word
  std::string word_suffix;         // of symbols that end a word, such as "</w>"
};

class BytePairEncoding : public SubwordModel {
 public:
  using Pairs = std::vector<std::pair<std::string_view, std::string_view>>;

  // `merges`: pairs in the order in which they were learned. Pairs of which a part or the whole is
  // no token are left out: they could give none.
  static std::unique_ptr<BytePairEncoding> Make(std::shared_ptr<const Vocabulary> vocabulary,
                                                const Pairs& merges, BytePairOptions options);

  // O(n log n) for n symbols.
  void Encode(std::string_view word, std::vector<Token>& out) const override;

 private:
  struct Merge {
    uint32_t rank = 0;
    int32_t id = 0;
  };

  void AddMerge(int32_t left, int32_t right, Merge merge);
  const Merge* FindMerge(int32_t left, int32_t right) const;
  // What a word consists of before anything is merged.
  void AddSymbols(std::string_view word, std::vector<Token>& out) const;
  // `first`: where the word begins in `out`.
  void AddUnknown(std::string_view word, Token symbol, size_t first, std::vector<Token>& out) const;
  std::string Written(std::string_view bytes) const;

  std::shared_ptr<const Vocabulary> vocabulary_;
  BytePairOptions options_;
  std::array<int32_t, 256> byte_tokens_{};       // of a byte within or at the end of a word
  std::array<int32_t, 256> last_byte_tokens_{};  // with the suffix
  std::array<int32_t, 256> fallback_tokens_{};
  // Open addressing; key: left and right.
  std::vector<std::pair<uint64_t, Merge>> merges_;
};

}  // namespace onnxd
