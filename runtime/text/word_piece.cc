#include "runtime/text/word_piece.h"

#include "runtime/text/unicode.h"

namespace onnxd {

Result<std::unique_ptr<WordPiece>> WordPiece::Make(
    std::vector<std::pair<std::string_view, int32_t>> vocabulary, WordPieceOptions options) {
  auto model = std::make_unique<WordPiece>();
  ONNXD_ASSIGN_OR_RETURN(model->tokens_, PrefixTree::Make(std::move(vocabulary)));
  model->continuing_ = model->tokens_.Walk(0, options.continuing_prefix);
  model->options_ = std::move(options);
  return model;
}

void WordPiece::Encode(std::string_view word, std::vector<Token>& out) const {
  const size_t characters = CountCharacters(word);
  const size_t before = out.size();
  bool known = characters <= options_.most_characters;
  for (size_t at = 0; known && at < word.size();) {
    const int32_t root = at == 0 ? 0 : continuing_;
    PrefixTree::Match match;
    if (root != PrefixTree::kNone) match = tokens_.Longest(word, at, root);
    known = match.number != PrefixTree::kNone;
    const auto begin = static_cast<uint32_t>(at);
    out.push_back({match.number, begin, begin + static_cast<uint32_t>(match.bytes)});
    at += match.bytes;
  }
  if (known) return;
  out.resize(before);
  out.push_back({options_.unknown, 0, static_cast<uint32_t>(word.size())});
}

}  // namespace onnxd
