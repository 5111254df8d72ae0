#include "runtime/text/token_decoder.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/str_cat.h"
#include "runtime/text/byte_pair_encoding.h"
#include "runtime/text/byte_tokens.h"
#include "runtime/text/json_element.h"
#include "runtime/text/json_steps.h"
#include "runtime/text/normalizers.h"
#include "runtime/text/unicode.h"

namespace onnxd {
namespace {

using Texts = std::vector<std::string>;

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD
constexpr size_t kMostSteps = 64;                          // of a sequence

// How many bytes at `at` begin a character and do not end it, or are no character: 1 to 3, as
// Unicode recommends to replace them (chapter 3.9, U+FFFD substitution of maximal subparts).
size_t IllFormedBytes(std::string_view bytes, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned lead = byte(at);
  const size_t length = lead >= 0xf0 && lead < 0xf5 ? 4 : lead >= 0xe0 && lead < 0xf0 ? 3 : 1;
  size_t count = 1;
  for (; count < length && at + count < bytes.size(); ++count) {
    const unsigned next = byte(at + count);
    unsigned least = 0x80, most = 0xbf;
    if (count == 1) {
      if (lead == 0xe0) least = 0xa0;
      if (lead == 0xed) most = 0x9f;
      if (lead == 0xf0) least = 0x90;
      if (lead == 0xf4) most = 0x8f;
    }
    if (next < least || next > most) break;
  }
  return count;
}

bool IsWritten(std::string_view bytes, size_t at) {
  return bytes.substr(at).starts_with(kReplacement);
}

// With U+FFFD for what is no UTF-8.
std::string WellFormed(std::string_view bytes) {
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    const auto [value, length] = CodePointAt(bytes, at);
    if (value != kReplacementCharacter || IsWritten(bytes, at)) {
      out.append(bytes, at, length);
      at += length;
    } else {
      out += kReplacement;
      at += IllFormedBytes(bytes, at);
    }
  }
  return out;
}

bool IsWellFormed(std::string_view bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const auto [value, length] = CodePointAt(bytes, at);
    if (value == kReplacementCharacter && !IsWritten(bytes, at)) return false;
    at += length;
  }
  return true;
}

void ReplaceAll(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  std::string out;
  size_t at = 0;
  for (size_t found; (found = text.find(from, at)) != text.npos; at = found + from.size()) {
    out.append(text, at, found - at).append(to);
  }
  if (at > 0) text = out.append(text, at);
}

// The blanks that tokens of English leave before marks and shortened words.
void CleanUp(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kChanges = {{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : kChanges) ReplaceAll(text, from, to);
}

const std::unordered_map<char32_t, char>& ByteOfCharacter() {
  static const auto* const bytes = [] {
    auto* const made = new std::unordered_map<char32_t, char>;
    for (size_t i = 0; i < 256; ++i) made->emplace(ByteCharacters()[i], static_cast<char>(i));
    return made;
  }();
  return *bytes;
}

// A token that is not written in such characters is its own bytes.
std::string BytesOfCharacters(const std::string& token) {
  std::string bytes;
  for (size_t at = 0; at < token.size();) {
    const auto [value, length] = CodePointAt(token, at);
    const auto found = ByteOfCharacter().find(value);
    if (found == ByteOfCharacter().end()) return token;
    bytes += found->second;
    at += length;
  }
  return bytes;
}

DecoderStep ByteLevel() {
  return [](Texts& texts) {
    std::string bytes;
    for (const std::string& token : texts) bytes += BytesOfCharacters(token);
    texts = {WellFormed(bytes)};
  };
}

DecoderStep Metaspace(std::string symbol, bool begins_with_blank) {
  return [symbol = std::move(symbol), begins_with_blank](Texts& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      ReplaceAll(texts[i], symbol, i == 0 && begins_with_blank ? "" : " ");
    }
  };
}

DecoderStep WordPiece(std::string prefix, bool cleans_up) {
  return [prefix = std::move(prefix), cleans_up](Texts& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      const bool continues = texts[i].starts_with(prefix);
      if (i > 0) texts[i] = continues ? texts[i].substr(prefix.size()) : " " + texts[i];
      if (cleans_up) CleanUp(texts[i]);
    }
  };
}

DecoderStep WordSuffix(std::string suffix) {
  return [suffix = std::move(suffix)](Texts& texts) {
    for (size_t i = 0; i < texts.size(); ++i) {
      ReplaceAll(texts[i], suffix, i + 1 == texts.size() ? "" : " ");
    }
  };
}

void AppendBytes(std::string& bytes, Texts& texts) {
  if (bytes.empty()) return;
  if (IsWellFormed(bytes)) {
    texts.push_back(std::move(bytes));
  } else {
    texts.insert(texts.end(), bytes.size(), std::string(kReplacement));
  }
  bytes.clear();
}

// Tokens of single bytes, <0xE2>: those of one character become one text.
DecoderStep ByteFallback() {
  return [](Texts& texts) {
    Texts out;
    std::string bytes;
    for (std::string& token : texts) {
      const int byte = ByteOfToken(token);
      if (byte >= 0) {
        bytes += static_cast<char>(byte);
        continue;
      }
      AppendBytes(bytes, out);
      out.push_back(std::move(token));
    }
    AppendBytes(bytes, out);
    texts = std::move(out);
  };
}

DecoderStep Fuse() {
  return [](Texts& texts) {
    std::string all;
    for (const std::string& token : texts) all += token;
    texts = {std::move(all)};
  };
}

DecoderStep Strip(std::string character, size_t from_begin, size_t from_end) {
  return [character = std::move(character), from_begin, from_end](Texts& texts) {
    for (std::string& token : texts) {
      for (size_t i = 0; i < from_begin && token.starts_with(character); ++i) {
        token.erase(0, character.size());
      }
      for (size_t i = 0; i < from_end && token.ends_with(character); ++i) {
        token.resize(token.size() - character.size());
      }
    }
  };
}

DecoderStep Replace(Matcher matcher, std::string to) {
  return [replace = ReplaceMatches(std::move(matcher), std::move(to))](Texts& texts) {
    for (std::string& token : texts) {
      AlignedText text = AlignedText::From(token);
      replace(text);
      EncodedPart encoded;
      encoded.Assign(text, 0, text.size());
      token = std::move(encoded.bytes);
    }
  };
}

// Connectionist temporal classification: a token that is there again at once counts once.
DecoderStep Ctc(std::string pad, std::string word_delimiter, bool cleans_up) {
  return
      [pad = std::move(pad), word_delimiter = std::move(word_delimiter), cleans_up](Texts& texts) {
        texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
        for (std::string& token : texts) {
          ReplaceAll(token, pad, "");
          if (!cleans_up) continue;
          CleanUp(token);
          ReplaceAll(token, word_delimiter, " ");
        }
        std::erase(texts, "");
      };
}

Result<std::vector<DecoderStep>> ParseSteps(JsonElement json, bool within = false);

Result<std::vector<DecoderStep>> ParseSequence(JsonElement json) {
  std::vector<DecoderStep> steps;
  const auto items = ItemsOf(Member(json, "decoders"));
  if (items.size() > kMostSteps) {
    return InvalidArgument(StrCat("a sequence of ", items.size(), " decoders, of which ",
                                  kMostSteps, " are the most"));
  }
  for (const JsonElement item : items) {
    ONNXD_ASSIGN_OR_RETURN(auto parsed, ParseSteps(item, true));
    for (DecoderStep& step : parsed) steps.push_back(std::move(step));
  }
  return steps;
}

Result<DecoderStep> ParseReplace(JsonElement json) {
  ONNXD_ASSIGN_OR_RETURN(Matcher matcher, ParsePattern(Member(json, "pattern")));
  ONNXD_ASSIGN_OR_RETURN(std::string content, InsertedText(json, "content"));
  return Replace(std::move(matcher), std::move(content));
}

Result<DecoderStep> ParseStrip(JsonElement json) {
  std::string character = TextOf(json, "content", " ");
  if (character.empty()) return InvalidArgument("the decoder Strip has no content");
  return Strip(std::move(character), As<uint64_t>(Member(json, "start")).value_or(0),
               As<uint64_t>(Member(json, "stop")).value_or(0));
}

Result<DecoderStep> ParseStep(JsonElement json) {
  const std::string type = TypeName(json);
  if (type == "ByteLevel") return ByteLevel();
  if (type == "Metaspace") {
    const bool prefix = FlagOf(json, "add_prefix_space", true);
    const std::string scheme = TextOf(json, "prepend_scheme", prefix ? "always" : "never");
    return Metaspace(TextOf(json, "replacement", "\xe2\x96\x81"), scheme != "never");
  }
  if (type == "WordPiece") {
    return WordPiece(TextOf(json, "prefix", "##"), FlagOf(json, "cleanup", true));
  }
  if (type == "BPEDecoder") return WordSuffix(TextOf(json, "suffix", "</w>"));
  if (type == "ByteFallback") return ByteFallback();
  if (type == "Fuse") return Fuse();
  if (type == "Strip") return ParseStrip(json);
  if (type == "Replace") return ParseReplace(json);
  if (type == "CTC") {
    return Ctc(TextOf(json, "pad_token", "<pad>"), TextOf(json, "word_delimiter_token", "|"),
               FlagOf(json, "cleanup", true));
  }
  return Unimplemented(StrCat("the decoder '", type, "' is not there yet"));
}

Result<std::vector<DecoderStep>> ParseSteps(JsonElement json, bool within) {
  // A sequence within a sequence has no use, and could be without end.
  if (TypeName(json) == "Sequence" && !within) return ParseSequence(json);
  ONNXD_ASSIGN_OR_RETURN(DecoderStep step, ParseStep(json));
  return std::vector<DecoderStep>{std::move(step)};
}

TokenDecoder::Bytes BytesOf(JsonElement decoder) {
  const auto of_step = [](JsonElement step) {
    const std::string type = TypeName(step);
    if (type == "ByteLevel") return TokenDecoder::Bytes::kCharacters;
    return type == "ByteFallback" ? TokenDecoder::Bytes::kTokens : TokenDecoder::Bytes::kNone;
  };
  if (TypeName(decoder) != "Sequence") return of_step(decoder);
  for (const JsonElement step : ItemsOf(Member(decoder, "decoders"))) {
    if (const auto bytes = of_step(step); bytes != TokenDecoder::Bytes::kNone) return bytes;
  }
  return TokenDecoder::Bytes::kNone;
}

// {"token": number, ...} or, of a Unigram model, [["token", score], ...].
Result<TokenDecoder::Tokens> ParseTokens(JsonElement root) {
  TokenDecoder::Tokens tokens;
  const auto model = Member(root, "model");
  const auto vocabulary = model ? Member(*model, "vocab") : std::nullopt;
  if (!vocabulary) return InvalidArgument("the tokenizer's model has no vocab");
  if (vocabulary->is_array()) {
    int64_t id = 0;
    for (const JsonElement item : ItemsOf(vocabulary)) {
      const auto pair = As<simdjson::dom::array>(item);
      std::string_view text;
      if (!pair || pair->size() != 2 || pair->at(0).get(text) != simdjson::SUCCESS) {
        return InvalidArgument("a piece of the vocab is no pair of text and score");
      }
      tokens[id++].text = text;
    }
  } else {
    ONNXD_ASSIGN_OR_RETURN(const auto parsed, ParseVocabulary(vocabulary));
    for (const auto& [token, id] : parsed->Entries()) tokens[id].text = token;
  }
  for (const JsonElement item : ItemsOf(Member(root, "added_tokens"))) {
    const auto id = As<int64_t>(Member(item, "id")).value_or(-1);
    const std::string text = TextOf(item, "content");
    ONNXD_RETURN_IF_ERROR(CheckTokenNumber(id, text));
    tokens[id] = {text, FlagOf(item, "special", false)};
  }
  return tokens;
}

}  // namespace

std::string TokenDecoder::Decode(std::span<const int64_t> ids, bool skip_special) const {
  Texts texts;
  for (const int64_t id : ids) {
    const WrittenToken* const token = Find(id);
    if (token != nullptr && !(skip_special && token->special)) texts.push_back(token->text);
  }
  if (steps_.empty()) return StrJoin(texts, " ");
  for (const DecoderStep& step : steps_) step(texts);
  std::string out;
  for (const std::string& text : texts) out += text;
  return out;
}

std::string TokenDecoder::BytesOf(int64_t id) const {
  const WrittenToken* const token = Find(id);
  if (token == nullptr) return {};
  if (token->special) return token->text;
  if (bytes_ == Bytes::kCharacters) return BytesOfCharacters(token->text);
  if (bytes_ == Bytes::kTokens) {
    if (const int byte = ByteOfToken(token->text); byte >= 0) return {static_cast<char>(byte)};
  }
  // Of the first one the blank before it may be left out.
  const std::array<int64_t, 2> twice = {id, id};
  const std::string once = Decode(std::span(twice).first(1), false);
  const std::string both = Decode(twice, false);
  return both.starts_with(once) ? both.substr(once.size()) : once;
}

const WrittenToken* TokenDecoder::Find(int64_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::optional<int64_t> TokenDecoder::NumberOf(std::string_view token) const {
  for (const auto& [id, written] : tokens_) {
    if (written.text == token) return id;
  }
  return std::nullopt;
}

Result<std::shared_ptr<const TokenDecoder>> ParseTokenDecoder(std::string_view json) {
  JsonObject document;
  ONNXD_RETURN_IF_ERROR(document.Parse(json, "the tokenizer"));
  ONNXD_ASSIGN_OR_RETURN(auto tokens, ParseTokens(document.root()));
  std::vector<DecoderStep> steps;
  auto bytes = TokenDecoder::Bytes::kNone;
  if (const auto decoder = Member(document.root(), "decoder")) {
    ONNXD_ASSIGN_OR_RETURN(steps, ParseSteps(*decoder));
    bytes = BytesOf(*decoder);
  }
  return std::make_shared<const TokenDecoder>(std::move(tokens), std::move(steps), bytes);
}

}  // namespace onnxd
