#include "runtime/text/sentencepiece.h"

#include <algorithm>
#include <unordered_map>

#include "runtime/base/str_cat.h"
#include "runtime/text/byte_tokens.h"
#include "runtime/text/merge_symbols.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

constexpr std::string_view kSpaceSymbol = "\xe2\x96\x81";  // U+2581
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool IsFound(SentencepieceSpec::PieceType type) {
  using Type = SentencepieceSpec::PieceType;
  return type == Type::kNormal || type == Type::kUserDefined || type == Type::kUnused;
}

// Bytes of several tokens; what is no UTF-8 becomes U+FFFD, a byte at a time.
void AppendBytes(std::string_view bytes, std::string& out) {
  for (size_t at = 0; at < bytes.size();) {
    const auto [value, length] = CodePointAt(bytes, at);
    if (value == kReplacementCharacter) {
      out += kReplacement;
    } else {
      out.append(bytes, at, length);
    }
    at += length;
  }
}

}  // namespace

Result<std::shared_ptr<const Sentencepiece>> Sentencepiece::Make(SentencepieceSpec spec) {
  auto made = std::make_shared<Sentencepiece>();
  ONNXD_ASSIGN_OR_RETURN(made->map_, PrecompiledMap::Parse(spec.normalizer_map));
  ONNXD_ASSIGN_OR_RETURN(made->back_map_, PrecompiledMap::Parse(spec.denormalizer_map));
  std::vector<UnigramPiece> pieces;
  std::vector<int64_t> bytes(256, -1);
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    const SentencepieceSpec::Piece& piece = spec.pieces[i];
    const auto id = static_cast<int64_t>(i);
    if (made->vocabulary_.Find(piece.text)) {
      return InvalidArgument(StrCat("the piece '", piece.text.substr(0, 100), "' is there twice"));
    }
    made->vocabulary_.Set(piece.text, id);
    if (piece.type == Type::kUnknown) made->unknown_ = id;
    const int byte = piece.type == Type::kByte ? ByteOfToken(piece.text) : -1;
    if (piece.type == Type::kByte && byte < 0) {
      return InvalidArgument(StrCat("'", piece.text.substr(0, 100), "' is no piece of a byte"));
    }
    if (byte >= 0) bytes[static_cast<size_t>(byte)] = id;
    const bool candidate = piece.type == Type::kNormal || piece.type == Type::kUserDefined;
    pieces.push_back({piece.text, piece.score, candidate, piece.type == Type::kUserDefined});
  }
  const bool all_bytes =
      std::none_of(bytes.begin(), bytes.end(), [](int64_t id) { return id < 0; });
  if (spec.byte_fallback && !all_bytes) {
    return InvalidArgument("byte_fallback, but not every byte has a piece");
  }
  if (spec.byte_fallback) made->bytes_ = std::move(bytes);
  made->bos_ = made->vocabulary_.Find(spec.bos_piece).value_or(made->unknown_);
  made->eos_ = made->vocabulary_.Find(spec.eos_piece).value_or(made->unknown_);
  std::vector<std::pair<std::string_view, int32_t>> user_defined;
  for (size_t i = 0; i < spec.pieces.size(); ++i) {
    if (spec.pieces[i].type == Type::kUserDefined) {
      user_defined.emplace_back(spec.pieces[i].text, static_cast<int32_t>(i));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(made->user_defined_, PrefixTree::Make(std::move(user_defined)));
  if (spec.model_type == SentencepieceSpec::ModelType::kUnigram) {
    ONNXD_ASSIGN_OR_RETURN(made->unigram_,
                           Unigram::Make(std::move(pieces), {made->unknown_, false}));
  }
  made->spec_ = std::move(spec);
  return std::shared_ptr<const Sentencepiece>(std::move(made));
}

std::pair<std::string_view, size_t> Sentencepiece::NormalizedPrefix(std::string_view text,
                                                                    size_t at) const {
  const auto kept = user_defined_.Longest(text, at);
  if (kept.number != PrefixTree::kNone) return {text.substr(at, kept.bytes), kept.bytes};
  const auto mapped = map_.Longest(text, at);
  if (mapped.bytes > 0) return {mapped.replacement, mapped.bytes};
  const auto [value, bytes] = CodePointAt(text, at);
  if (value == kReplacementCharacter) return {kReplacement, bytes};
  return {text.substr(at, bytes), bytes};
}

Sentencepiece::Normalized Sentencepiece::Normalize(std::string_view text) const {
  Normalized out;
  const bool trim = spec_.remove_extra_whitespaces;
  size_t at = 0;
  while (trim && at < text.size()) {
    const auto [prefix, bytes] = NormalizedPrefix(text, at);
    if (prefix != " ") break;
    at += bytes;
  }
  const std::string_view space = spec_.escape_whitespaces ? kSpaceSymbol : " ";
  const auto append = [&](std::string_view piece, size_t from) {
    out.text += piece;
    out.source.resize(out.text.size(), static_cast<uint32_t>(from));
  };
  if (at == text.size()) {
    out.source.push_back(static_cast<uint32_t>(at));
    return out;
  }
  if (spec_.add_dummy_prefix && !spec_.treat_whitespace_as_suffix) append(space, at);
  bool after_space = trim;
  while (at < text.size()) {
    auto [prefix, bytes] = NormalizedPrefix(text, at);
    while (after_space && prefix.starts_with(' ')) prefix.remove_prefix(1);
    for (const char& c : prefix) append(c == ' ' ? space : std::string_view(&c, 1), at);
    if (!prefix.empty()) after_space = prefix.ends_with(' ');
    if (!trim) after_space = false;
    at += bytes;
  }
  while (trim && out.text.ends_with(space)) {
    out.text.resize(out.text.size() - space.size());
    at = out.source[out.text.size()];
    out.source.resize(out.text.size());
  }
  if (spec_.add_dummy_prefix && spec_.treat_whitespace_as_suffix) append(space, at);
  out.source.push_back(static_cast<uint32_t>(at));
  return out;
}

int64_t Sentencepiece::IdOf(std::string_view piece) const {
  const auto found = vocabulary_.Find(piece);
  return found && IsFound(TypeOf(*found)) ? *found : unknown_;
}

// Pieces that may be merged to but not be a result become again what they were merged from.
void Sentencepiece::EncodePairs(std::string_view text, std::vector<Token>& out) const {
  std::vector<Token> symbols;
  for (size_t at = 0; at < text.size();) {
    const auto kept = user_defined_.Longest(text, at);
    const size_t bytes =
        kept.number != PrefixTree::kNone ? kept.bytes : CodePointAt(text, at).bytes;
    symbols.push_back({IdOf(text.substr(at, bytes)), static_cast<uint32_t>(at),
                       static_cast<uint32_t>(at + bytes)});
    at += bytes;
  }
  std::unordered_map<std::string_view, size_t> unused;  // the length of the left part
  const auto is_frozen = [&](const Token& token) {
    return token.id != unknown_ && TypeOf(token.id) == Type::kUserDefined;
  };
  const auto find = [&](const Token& left, const Token& right) -> std::optional<PossibleMerge> {
    if (is_frozen(left) || is_frozen(right)) return std::nullopt;
    const std::string_view whole = text.substr(left.begin, right.end - left.begin);
    const auto found = vocabulary_.Find(whole);
    if (!found || !IsFound(TypeOf(*found))) return std::nullopt;
    if (TypeOf(*found) == Type::kUnused) unused.emplace(whole, left.end - left.begin);
    return PossibleMerge{-static_cast<double>(spec_.pieces[static_cast<size_t>(*found)].score),
                         *found};
  };
  MergeSymbols(symbols, 0, find);
  // The next to look at is last.
  std::vector<Token> left_over(symbols.rbegin(), symbols.rend());
  while (!left_over.empty()) {
    const Token token = left_over.back();
    left_over.pop_back();
    const std::string_view piece = text.substr(token.begin, token.end - token.begin);
    const auto parts = unused.find(piece);
    if (token.id == unknown_ || TypeOf(token.id) != Type::kUnused || parts == unused.end()) {
      out.push_back(token);
      continue;
    }
    const auto middle = static_cast<uint32_t>(token.begin + parts->second);
    left_over.push_back({IdOf(piece.substr(parts->second)), middle, token.end});
    left_over.push_back({IdOf(piece.substr(0, parts->second)), token.begin, middle});
  }
}

// Words with the white space before them, or behind them, or characters.
void Sentencepiece::EncodeWords(std::string_view text, std::vector<Token>& out) const {
  const bool characters = spec_.model_type == SentencepieceSpec::ModelType::kChar;
  const bool suffix = spec_.treat_whitespace_as_suffix;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    if (characters) {
      const auto kept = user_defined_.Longest(text, at);
      end = at + (kept.number != PrefixTree::kNone ? kept.bytes : CodePointAt(text, at).bytes);
    } else {
      const size_t space = text.find(kSpaceSymbol, suffix ? at : at + 1);
      end = std::min(space, text.size());
      if (suffix && space != std::string_view::npos) end += kSpaceSymbol.size();
    }
    out.push_back(
        {IdOf(text.substr(at, end - at)), static_cast<uint32_t>(at), static_cast<uint32_t>(end)});
    at = end;
  }
}

// Neighbours become one, or the tokens of their bytes.
void Sentencepiece::ReplaceUnknown(std::string_view text, std::vector<Token>& tokens) const {
  std::vector<Token> out;
  for (const Token& token : tokens) {
    if (token.id == unknown_ && !bytes_.empty()) {
      for (uint32_t at = token.begin; at < token.end; ++at) {
        out.push_back({bytes_[static_cast<unsigned char>(text[at])], at, at + 1});
      }
    } else if (token.id == unknown_ && !out.empty() && out.back().id == unknown_) {
      out.back().end = token.end;
    } else {
      out.push_back(token);
    }
  }
  tokens = std::move(out);
}

std::vector<Token> Sentencepiece::EncodeNormalized(std::string_view text) const {
  std::vector<Token> tokens;
  switch (spec_.model_type) {
    case SentencepieceSpec::ModelType::kUnigram:
      unigram_->Encode(text, tokens);
      break;
    case SentencepieceSpec::ModelType::kBpe:
      EncodePairs(text, tokens);
      break;
    case SentencepieceSpec::ModelType::kWord:
    case SentencepieceSpec::ModelType::kChar:
      EncodeWords(text, tokens);
      break;
  }
  ReplaceUnknown(text, tokens);
  return tokens;
}

std::vector<Token> Sentencepiece::Encode(std::string_view text) const {
  const Normalized normalized = Normalize(text);
  std::vector<Token> tokens = EncodeNormalized(normalized.text);
  for (Token& token : tokens) {
    token.begin = normalized.source[token.begin];
    token.end = normalized.source[token.end];
  }
  return tokens;
}

std::string Sentencepiece::Denormalize(const std::string& text) const {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto mapped = back_map_.Longest(text, at);
    const size_t bytes = mapped.bytes > 0 ? mapped.bytes : CodePointAt(text, at).bytes;
    out += mapped.bytes > 0 ? mapped.replacement : std::string_view(text).substr(at, bytes);
    at += bytes;
  }
  return out;
}

Result<std::string> Sentencepiece::Decode(const std::vector<int64_t>& ids) const {
  std::string out, bytes;
  const auto flush = [&] {
    AppendBytes(bytes, out);
    bytes.clear();
  };
  const bool drop_spaces = spec_.add_dummy_prefix || spec_.remove_extra_whitespaces;
  bool at_begin = true, dropped = false;
  for (const int64_t id : ids) {
    if (id < 0 || id >= static_cast<int64_t>(spec_.pieces.size())) {
      return InvalidArgument(StrCat("token ", id, " is not in [0, ", spec_.pieces.size(), ")"));
    }
    if (TypeOf(id) == Type::kByte) {
      bytes += static_cast<char>(ByteOfToken(spec_.pieces[static_cast<size_t>(id)].text));
      continue;
    }
    flush();
    at_begin = at_begin && !dropped && out.empty();
    dropped = false;
    if (TypeOf(id) == Type::kControl) continue;
    if (TypeOf(id) == Type::kUnknown) {
      out += spec_.unknown_surface;
      continue;
    }
    std::string_view piece = spec_.pieces[static_cast<size_t>(id)].text;
    if (at_begin && drop_spaces && piece.starts_with(kSpaceSymbol)) {
      piece.remove_prefix(kSpaceSymbol.size());
      dropped = !spec_.remove_extra_whitespaces;
    }
    while (!piece.empty()) {
      const size_t space = piece.find(kSpaceSymbol);
      out += piece.substr(0, space);
      if (space == std::string_view::npos) break;
      out += ' ';
      piece.remove_prefix(space + kSpaceSymbol.size());
    }
  }
  flush();
  return spec_.denormalizer_map.empty() ? out : Denormalize(out);
}

}  // namespace onnxd
