// Tokenizer: text to the numbers of tokens, in the steps of Hugging Face's tokenizers library:
// added tokens are taken out, what lies between them is normalized, cut into pieces, and made
// tokens of.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/text/normalizers.h"
#include "runtime/text/pre_tokenizers.h"
#include "runtime/text/prefix_tree.h"
#include "runtime/text/token_model.h"

namespace onnxd {

// A token that is found as it is written, before anything else is done to the text.
struct AddedToken {
  std::string text;
  int64_t id = 0;
  bool single_word = false;  // not within a word
  bool strip_left = false;   // takes the white space before it along
  bool strip_right = false;
  bool normalized = false;  // looked for in the normalized text, itself normalized
};

struct Encoding {
  std::vector<int64_t> ids;
  std::vector<Span>
      offsets;  // of each token, in characters of the text; {0, 0} for those around it
  std::vector<int64_t> types;

  void Add(int64_t id, Span offset = {}, int64_t type = 0) {
    ids.push_back(id);
    offsets.push_back(offset);
    types.push_back(type);
  }
};

// A token around a text, or the text.
struct TemplatePart {
  bool is_text = false;
  int64_t id = 0;
  int64_t type = 0;
};

struct TokenizerParts {
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;       // null: none
  PreTokenizer pre_tokenizer;  // null: one piece
  std::unique_ptr<const TokenModel> model;
  std::vector<TemplatePart> around = {{true, 0, 0}};
  size_t most_tokens = 0;  // of a text with those around it: the others are cut off; 0: any number
  bool cuts_beginning = false;  // and not the end
  bool trim_offsets = false;    // offsets leave out blanks at the ends of a token
  bool prefix_space = false;    // but for one with which the text begins
};

// Immutable once made; any thread.
class Tokenizer {
 public:
  // Fails as PrefixTree::Make does.
  static Result<std::shared_ptr<const Tokenizer>> Make(TokenizerParts parts);

  // Without the tokens around it. Requires less than 2^31 bytes.
  Encoding EncodeText(std::string_view text) const;
  Encoding Encode(std::string_view text) const;

 private:
  struct Found {
    Range range;
    const AddedToken* token;
  };

  // Those of `tree` in a text, from left to right, each the longest there.
  std::vector<Found> FindAdded(const AlignedText& text, const PrefixTree& tree) const;
  void EncodeBetween(AlignedText text, bool begins_text, Encoding& out) const;
  void EncodePieces(AlignedText text, bool begins_text, Encoding& out) const;
  Span OffsetOf(const AlignedText& text, Range token) const;

  TokenizerParts parts_;
  std::vector<std::string> normalized_added_;
  PrefixTree raw_, normalized_;
};

}  // namespace onnxd
