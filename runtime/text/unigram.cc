#include "runtime/text/unigram.h"

#include <algorithm>
#include <limits>

#include "runtime/text/byte_tokens.h"
#include "runtime/text/unicode.h"

namespace onnxd {

Result<std::unique_ptr<Unigram>> Unigram::Make(std::vector<UnigramPiece> pieces,
                                               UnigramOptions options) {
  auto model = std::make_unique<Unigram>();
  model->byte_tokens_.fill(-1);
  std::vector<std::pair<std::string_view, int32_t>> candidates;
  float lowest = std::numeric_limits<float>::max(), highest = std::numeric_limits<float>::lowest();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const UnigramPiece& piece = pieces[i];
    if (const int byte = ByteOfToken(piece.text); byte >= 0) {
      model->byte_tokens_[static_cast<size_t>(byte)] = static_cast<int64_t>(i);
    }
    if (!piece.is_candidate) continue;
    candidates.emplace_back(piece.text, static_cast<int32_t>(i));
    if (piece.user_defined) continue;
    lowest = std::min(lowest, piece.score);
    highest = std::max(highest, piece.score);
  }
  ONNXD_ASSIGN_OR_RETURN(model->tree_, PrefixTree::Make(std::move(candidates)));
  const bool any = lowest <= highest;
  model->lowest_ = any ? lowest : 0;
  model->highest_ = any ? highest : 0;
  model->has_all_bytes_ = std::none_of(model->byte_tokens_.begin(), model->byte_tokens_.end(),
                                       [](int64_t id) { return id < 0; });
  model->pieces_ = std::move(pieces);
  model->options_ = options;
  return model;
}

float Unigram::ScoreOf(int32_t number) const {
  const UnigramPiece& piece = pieces_[static_cast<size_t>(number)];
  return piece.user_defined ? static_cast<float>(piece.text.size()) * highest_ - 0.1f : piece.score;
}

void Unigram::AddUnknown(std::string_view text, uint32_t begin, uint32_t end,
                         std::vector<Token>& out) const {
  if (options_.byte_fallback && has_all_bytes_) {
    for (uint32_t at = begin; at < end; ++at) {
      out.push_back({byte_tokens_[static_cast<unsigned char>(text[at])], at, at + 1});
    }
    return;
  }
  if (!options_.unknown) return;
  // Neighbours are one.
  if (!out.empty() && out.back().id == *options_.unknown && out.back().end == begin) {
    out.back().end = end;
  } else {
    out.push_back({*options_.unknown, begin, end});
  }
}

void Unigram::Encode(std::string_view text, std::vector<Token>& out) const {
  constexpr float kUnknownPenalty = 10;
  struct Best {
    float score = 0;
    int32_t number = PrefixTree::kNone;  // the last token of the best way here; kNone: unknown
    uint32_t begin = 0;
    bool reached = false;
  };
  std::vector<Best> best(text.size() + 1);
  best[0].reached = true;
  const auto offer = [&](size_t begin, size_t end, float score, int32_t number) {
    Best& to = best[end];
    const float sum = best[begin].score + score;
    if (to.reached && sum <= to.score) return;
    to = {sum, number, static_cast<uint32_t>(begin), true};
  };
  for (size_t at = 0; at < text.size();) {
    const size_t character = CodePointAt(text, at).bytes;
    bool single = false;
    int32_t node = 0;
    for (size_t end = at; end < text.size();) {
      node = tree_.Next(node, static_cast<unsigned char>(text[end]));
      if (node == PrefixTree::kNone) break;
      ++end;
      const int32_t number = tree_.number(node);
      if (number == PrefixTree::kNone) continue;
      offer(at, end, ScoreOf(number), number);
      single = single || end - at == character;
    }
    if (!single) offer(at, at + character, lowest_ - kUnknownPenalty, PrefixTree::kNone);
    at += character;
  }
  std::vector<Token> reversed;
  for (auto end = static_cast<uint32_t>(text.size()); end > 0; end = best[end].begin) {
    reversed.push_back({best[end].number, best[end].begin, end});
  }
  for (auto token = reversed.rbegin(); token != reversed.rend(); ++token) {
    if (token->id == PrefixTree::kNone) {
      AddUnknown(text, token->begin, token->end, out);
    } else {
      out.push_back(*token);
    }
  }
}

}  // namespace onnxd
