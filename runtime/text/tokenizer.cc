#include "runtime/text/tokenizer.h"

#include <algorithm>

namespace onnxd {
namespace {

bool IsWordAt(const AlignedText& text, size_t at) { return IsWordCharacter(text.characters[at]); }

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Make(TokenizerParts parts) {
  auto made = std::make_shared<Tokenizer>();
  made->parts_ = std::move(parts);
  const auto& added = made->parts_.added_tokens;
  made->normalized_added_.resize(added.size());
  std::vector<std::pair<std::string_view, int32_t>> raw, normalized;
  for (size_t i = 0; i < added.size(); ++i) {
    if (!added[i].normalized || !made->parts_.normalizer) {
      raw.emplace_back(added[i].text, static_cast<int32_t>(i));
      continue;
    }
    AlignedText text = AlignedText::From(added[i].text);
    made->parts_.normalizer(text);
    ONNXD_RETURN_IF_ERROR(text.CheckLength());
    EncodedPart part;
    part.Assign(text, 0, text.size());
    made->normalized_added_[i] = std::move(part.bytes);
    if (!made->normalized_added_[i].empty()) {
      normalized.emplace_back(made->normalized_added_[i], static_cast<int32_t>(i));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(made->raw_, PrefixTree::Make(std::move(raw)));
  ONNXD_ASSIGN_OR_RETURN(made->normalized_, PrefixTree::Make(std::move(normalized)));
  return std::shared_ptr<const Tokenizer>(std::move(made));
}

std::vector<Tokenizer::Found> Tokenizer::FindAdded(const AlignedText& text,
                                                   const PrefixTree& tree) const {
  std::vector<Found> found;
  if (tree.empty()) return found;
  EncodedPart part;
  part.Assign(text, 0, text.size());
  size_t free = 0;  // characters before it belong to the token found last
  for (size_t at = 0; at < part.bytes.size();) {
    const auto match = tree.Longest(part.bytes, at);
    if (match.number == PrefixTree::kNone) {
      ++at;
      continue;
    }
    const AddedToken& token = parts_.added_tokens[static_cast<size_t>(match.number)];
    const size_t end_byte = at + match.bytes;
    Range range = {part.character[at],
                   end_byte < part.character.size() ? part.character[end_byte] : text.size()};
    const bool within_word = (range.begin > 0 && IsWordAt(text, range.begin - 1)) ||
                             (range.end < text.size() && IsWordAt(text, range.end));
    at = end_byte;
    if (token.single_word && within_word) continue;
    while (token.strip_left && range.begin > free &&
           IsWhitespace(text.characters[range.begin - 1])) {
      --range.begin;
    }
    while (token.strip_right && range.end < text.size() &&
           IsWhitespace(text.characters[range.end])) {
      ++range.end;
    }
    while (at < part.bytes.size() && part.character[at] < range.end) ++at;
    found.push_back({range, &token});
    free = range.end;
  }
  return found;
}

void Tokenizer::EncodePieces(AlignedText text, bool begins_text, Encoding& out) const {
  if (text.size() == 0) return;
  const size_t size = text.size();
  Pieces pieces = {std::move(text), {{0, size}}, begins_text};
  if (parts_.pre_tokenizer) parts_.pre_tokenizer(pieces);
  EncodedPart part;
  std::vector<Token> tokens;
  for (const Range range : pieces.ranges) {
    if (range.begin == range.end) continue;
    part.Assign(pieces.text, range.begin, range.end);
    tokens.clear();
    parts_.model->Encode(part.bytes, tokens);
    for (const Token& token : tokens) {
      out.Add(token.id, OffsetOf(pieces.text,
                                 {part.character[token.begin], part.character[token.end - 1] + 1}));
    }
  }
}

TextSpan Tokenizer::OffsetOf(const AlignedText& text, Range token) const {
  auto [first, end] = token;
  if (parts_.trim_offsets) {
    const bool keeps_one = parts_.prefix_space && text.source[first].begin == 0;
    while (first < end && text.characters[first] == ' ') ++first;
    if (keeps_one && first > token.begin) --first;
    while (end > first && text.characters[end - 1] == ' ') --end;
    if (first == end) {
      const uint32_t at = keeps_one ? 0 : text.source[token.end - 1].end;
      return {at, at};
    }
  }
  return {text.source[first].begin, text.source[end - 1].end};
}

Status Tokenizer::EncodeBetween(AlignedText text, bool begins_text, Encoding& out) const {
  if (parts_.normalizer) parts_.normalizer(text);
  ONNXD_RETURN_IF_ERROR(text.CheckLength());
  size_t at = 0;
  for (const Found& found : FindAdded(text, normalized_)) {
    EncodePieces(text.Part(at, found.range.begin), begins_text && at == 0, out);
    out.Add(found.token->id,
            {text.source[found.range.begin].begin, text.source[found.range.end - 1].end});
    at = found.range.end;
  }
  EncodePieces(text.Part(at, text.size()), begins_text && at == 0, out);
  return Status::Ok();
}

Result<Encoding> Tokenizer::EncodeText(std::string_view utf8) const {
  Encoding out;
  const AlignedText text = AlignedText::From(utf8);
  size_t at = 0;
  for (const Found& found : FindAdded(text, raw_)) {
    ONNXD_RETURN_IF_ERROR(EncodeBetween(text.Part(at, found.range.begin), at == 0, out));
    out.Add(found.token->id,
            {static_cast<uint32_t>(found.range.begin), static_cast<uint32_t>(found.range.end)});
    at = found.range.end;
  }
  ONNXD_RETURN_IF_ERROR(EncodeBetween(text.Part(at, text.size()), at == 0, out));
  return out;
}

// Of two texts the longer is cut to the length of the other and then, if that is not enough, both
// to halves.
std::pair<size_t, size_t> Tokenizer::KeptOf(size_t first, size_t second, size_t around) const {
  if (parts_.most_tokens == 0 || first + second + around <= parts_.most_tokens)
    return {first, second};
  const size_t most = parts_.most_tokens - std::min(around, parts_.most_tokens);
  switch (parts_.truncation) {
    case Truncation::kOnlyFirst:
      return {most - std::min(second, most), std::min(second, most)};
    case Truncation::kOnlySecond:
      return {std::min(first, most), most - std::min(first, most)};
    case Truncation::kLongestFirst:
      break;
  }
  const size_t shorter = std::min({first, second, most / 2});
  const size_t longer = most - shorter;
  return first > second ? std::pair(longer, shorter) : std::pair(shorter, longer);
}

void Tokenizer::AddKept(const Encoding& text, size_t kept, int64_t type, Encoding& out) const {
  const size_t begin = parts_.cuts_beginning ? text.ids.size() - kept : 0;
  for (size_t i = begin; i < begin + kept; ++i) out.Add(text.ids[i], text.offsets[i], type);
}

Result<Encoding> Tokenizer::Encode(std::string_view utf8) const {
  ONNXD_ASSIGN_OR_RETURN(const Encoding text, EncodeText(utf8));
  const size_t kept = KeptOf(text.ids.size(), 0, parts_.around.size() - 1).first;
  Encoding out;
  for (const TemplatePart& part : parts_.around) {
    if (part.kind == TemplatePart::kToken) {
      out.Add(part.id, {}, part.type);
    } else {
      AddKept(text, kept, part.type, out);
    }
  }
  return out;
}

Result<Encoding> Tokenizer::EncodePair(std::string_view utf8, std::string_view second_utf8) const {
  ONNXD_ASSIGN_OR_RETURN(const Encoding text, EncodeText(utf8));
  ONNXD_ASSIGN_OR_RETURN(const Encoding second, EncodeText(second_utf8));
  const auto [kept, second_kept] =
      KeptOf(text.ids.size(), second.ids.size(), parts_.around_pair.size() - 2);
  Encoding out;
  for (const TemplatePart& part : parts_.around_pair) {
    if (part.kind == TemplatePart::kToken) {
      out.Add(part.id, {}, part.type);
    } else if (part.kind == TemplatePart::kText) {
      AddKept(text, kept, part.type, out);
    } else {
      AddKept(second, second_kept, part.type, out);
    }
  }
  return out;
}

}  // namespace onnxd
