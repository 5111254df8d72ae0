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
#include "runtime/text/subword_model.h"

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
  std::vector<TextSpan>
      offsets;  // of each token, in characters of the text; {0, 0} for those around it
  std::vector<int64_t> types;

  void Add(int64_t id, TextSpan offset = {}, int64_t type = 0) {
    ids.push_back(id);
    offsets.push_back(offset);
    types.push_back(type);
  }
};

// A token around texts, or a text.
struct TemplatePart {
  enum Kind { kToken, kText, kSecondText };
  Kind kind = kToken;
  int64_t id = 0;
  int64_t type = 0;
};

// Which of two texts that are too long together is cut.
enum class Truncation { kLongestFirst, kOnlyFirst, kOnlySecond };

struct TokenizerParts {
  std::vector<AddedToken> added_tokens;
  Normalizer normalizer;       // null: none
  PreTokenizer pre_tokenizer;  // null: one piece
  std::unique_ptr<const SubwordModel> model;
  std::vector<TemplatePart> around = {{TemplatePart::kText, 0, 0}};
  // Of two texts.
  std::vector<TemplatePart> around_pair = {{TemplatePart::kText, 0, 0},
                                           {TemplatePart::kSecondText, 0, 1}};
  size_t most_tokens = 0;  // with those around: the others are cut off; 0: any number
  Truncation truncation = Truncation::kLongestFirst;
  bool cuts_beginning = false;  // and not the end
  bool trim_offsets = false;    // offsets leave out blanks at the ends of a token
  bool prefix_space = false;    // but for one with which the text begins
};

// Immutable once made; any thread.
class Tokenizer {
 public:
  // Fails as PrefixTree::Make does, and as Encode does for added tokens.
  static Result<std::shared_ptr<const Tokenizer>> Make(TokenizerParts parts);

  // With the tokens around it. Requires less than 2^31 bytes. kResourceExhausted when normalizing
  // makes a text more than 16 times, and 4,096 characters, longer.
  Result<Encoding> Encode(std::string_view text) const;
  Result<Encoding> EncodePair(std::string_view text, std::string_view second) const;
  // Without the tokens around it.
  Result<Encoding> EncodeText(std::string_view text) const;

 private:
  struct Found {
    Range range;
    const AddedToken* token;
  };

  // Those of `tree` in a text, from left to right, each the longest there.
  std::vector<Found> FindAdded(const AlignedText& text, const PrefixTree& tree) const;
  // How many tokens are kept of each text.
  std::pair<size_t, size_t> KeptOf(size_t first, size_t second, size_t around) const;
  void AddKept(const Encoding& text, size_t kept, int64_t type, Encoding& out) const;
  Status EncodeBetween(AlignedText text, bool begins_text, Encoding& out) const;
  void EncodePieces(AlignedText text, bool begins_text, Encoding& out) const;
  TextSpan OffsetOf(const AlignedText& text, Range token) const;

  TokenizerParts parts_;
  std::vector<std::string> normalized_added_;
  PrefixTree raw_, normalized_;
};

}  // namespace onnxd
