#include "runtime/text/json_steps.h"

#include "runtime/base/str_cat.h"
#include "runtime/text/precompiled_map.h"

namespace onnxd {
namespace {

// Of a sequence, and the bytes of what a step puts in.
constexpr size_t kMostSteps = 64, kMostInserted = 64;

Result<std::vector<JsonElement>> StepsOf(JsonElement json, std::string_view name) {
  std::vector<JsonElement> steps = ItemsOf(Member(json, name));
  if (steps.size() <= kMostSteps) return steps;
  return InvalidArgument(
      StrCat("a sequence of ", steps.size(), " steps, of which ", kMostSteps, " are the most"));
}

Status NotThere(std::string_view what, std::string_view name) {
  return Unimplemented(StrCat("the ", what, " '", name, "' is not there yet"));
}

// Base64 (RFC 4648), in which the table of characters is written.
Result<std::string> DecodeBase64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (const char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos)
      return InvalidArgument("precompiled_charsmap is no base64");
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out += static_cast<char>(bits >> count);
  }
  return out;
}

Normalizer Precompiled(PrecompiledMap table) {
  return [map = std::make_shared<const PrecompiledMap>(std::move(table))](AlignedText& text) {
    EncodedPart part;
    part.Assign(text, 0, text.size());
    AlignedText out = text.Emptied();
    for (size_t at = 0; at < part.bytes.size();) {
      const auto match = map->Longest(part.bytes, at);
      const size_t first = part.character[at];
      if (match.bytes == 0) {
        out.Append(text.characters[first], text.source[first]);
        at += CodePointAt(part.bytes, at).bytes;
        continue;
      }
      const size_t last = part.character[at + match.bytes - 1];
      out.AppendText(match.replacement, {text.source[first].begin, text.source[last].end});
      at += match.bytes;
    }
    text = std::move(out);
  };
}

Result<SplitBehavior> ParseBehavior(std::string_view name) {
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return NotThere("behavior", name);
}

Result<Normalizer> ParseNormalizerReplace(JsonElement json) {
  ONNXD_ASSIGN_OR_RETURN(Matcher matcher, ParsePattern(Member(json, "pattern")));
  ONNXD_ASSIGN_OR_RETURN(std::string content, InsertedText(json, "content"));
  return ReplaceMatches(std::move(matcher), std::move(content));
}

Result<Normalizer> ParsePrecompiled(JsonElement json) {
  ONNXD_ASSIGN_OR_RETURN(const std::string bytes,
                         DecodeBase64(TextOf(json, "precompiled_charsmap")));
  ONNXD_ASSIGN_OR_RETURN(PrecompiledMap map, PrecompiledMap::Parse(bytes));
  return Precompiled(std::move(map));
}

Result<PreTokenizer> ParseByteLevel(JsonElement json, StepTraits& traits) {
  traits.byte_level = true;
  std::vector<PreTokenizer> steps;
  if (FlagOf(json, "add_prefix_space", true)) steps.push_back(PrefixSpace());
  if (FlagOf(json, "use_regex", true))
    steps.push_back(Split(Gpt2Words(), SplitBehavior::kIsolated));
  return InTurn(std::move(steps));
}

Result<PreTokenizer> ParseMetaspace(JsonElement json) {
  const bool prefix = FlagOf(json, "add_prefix_space", true);
  const std::string scheme = TextOf(json, "prepend_scheme", prefix ? "always" : "never");
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return NotThere("prepend_scheme", scheme);
  }
  return Metaspace(TextOf(json, "replacement", "\xe2\x96\x81"),
                   scheme == "always"  ? PrependScheme::kAlways
                   : scheme == "first" ? PrependScheme::kFirst
                                       : PrependScheme::kNever,
                   FlagOf(json, "split", true));
}

Result<PreTokenizer> ParseSplit(JsonElement json) {
  ONNXD_ASSIGN_OR_RETURN(Matcher matcher, ParsePattern(Member(json, "pattern")));
  ONNXD_ASSIGN_OR_RETURN(const SplitBehavior behavior, ParseBehavior(TextOf(json, "behavior")));
  return Split(std::move(matcher), behavior, FlagOf(json, "invert", false));
}

}  // namespace

Result<Matcher> ParsePattern(std::optional<JsonElement> json) {
  if (const auto text = json ? As<std::string_view>(Member(*json, "String")) : std::nullopt) {
    return Literal(std::string(*text));
  }
  const auto expression = json ? As<std::string_view>(Member(*json, "Regex")) : std::nullopt;
  if (!expression) return InvalidArgument("a pattern that is neither a String nor a Regex");
  return Expression(std::string(*expression));
}

Result<std::string> InsertedText(JsonElement json, std::string_view name) {
  std::string text = TextOf(json, name);
  if (text.size() <= kMostInserted) return text;
  return InvalidArgument(StrCat("a step that puts in ", text.size(), " bytes, of which ",
                                kMostInserted, " are the most"));
}

Result<Normalizer> ParseNormalizer(JsonElement json, StepTraits& traits) {
  const std::string type = TypeName(json);
  if (type == "Sequence") {
    std::vector<Normalizer> steps;
    ONNXD_ASSIGN_OR_RETURN(const auto items, StepsOf(json, "normalizers"));
    for (const JsonElement item : items) {
      // A sequence within a sequence has no use, and could be without end.
      if (TypeName(item) == "Sequence") return NotThere("normalizer", "Sequence within Sequence");
      ONNXD_ASSIGN_OR_RETURN(Normalizer step, ParseNormalizer(item, traits));
      steps.push_back(std::move(step));
    }
    return InTurn(std::move(steps));
  }
  if (type == "BertNormalizer") {
    const bool lowercase = FlagOf(json, "lowercase", true);
    return BertNormalizer({FlagOf(json, "clean_text", true),
                           FlagOf(json, "handle_chinese_chars", true),
                           FlagOf(json, "strip_accents", lowercase), lowercase});
  }
  if (type == "NFC") return Form(NormalForm::kNfc);
  if (type == "NFD") return Form(NormalForm::kNfd);
  if (type == "NFKC") return Form(NormalForm::kNfkc);
  if (type == "NFKD") return Form(NormalForm::kNfkd);
  if (type == "Lowercase") return Lowercase();
  if (type == "StripAccents") return StripAccents();
  if (type == "Strip") {
    return StripEnds(FlagOf(json, "strip_left", true), FlagOf(json, "strip_right", true));
  }
  if (type == "Prepend") {
    ONNXD_ASSIGN_OR_RETURN(std::string text, InsertedText(json, "prepend"));
    return PrependText(std::move(text));
  }
  if (type == "Nmt") return Nmt();
  if (type == "Replace") return ParseNormalizerReplace(json);
  if (type == "Precompiled") return ParsePrecompiled(json);
  return NotThere("normalizer", type);
}

Result<PreTokenizer> ParsePreTokenizer(JsonElement json, StepTraits& traits) {
  const std::string type = TypeName(json);
  if (traits.byte_level) return NotThere("pre-tokenizer behind ByteLevel", type);
  if (type == "Sequence") {
    std::vector<PreTokenizer> steps;
    ONNXD_ASSIGN_OR_RETURN(const auto items, StepsOf(json, "pretokenizers"));
    for (const JsonElement item : items) {
      if (TypeName(item) == "Sequence")
        return NotThere("pre-tokenizer", "Sequence within Sequence");
      ONNXD_ASSIGN_OR_RETURN(PreTokenizer step, ParsePreTokenizer(item, traits));
      steps.push_back(std::move(step));
    }
    return InTurn(std::move(steps));
  }
  if (type == "ByteLevel") return ParseByteLevel(json, traits);
  if (type == "BertPreTokenizer") return BertPreTokenizer();
  if (type == "Metaspace") return ParseMetaspace(json);
  if (type == "Split") return ParseSplit(json);
  if (type == "WhitespaceSplit") return Split(CharacterRuns(IsWhitespace), SplitBehavior::kRemoved);
  if (type == "Whitespace") {
    ONNXD_ASSIGN_OR_RETURN(Matcher words, Expression(R"(\w+|[^\w\s]+)"));
    return Split(std::move(words), SplitBehavior::kRemoved, true);
  }
  if (type == "Punctuation") {
    ONNXD_ASSIGN_OR_RETURN(const SplitBehavior behavior,
                           ParseBehavior(TextOf(json, "behavior", "Isolated")));
    return Split(Characters(IsSplitPunctuation), behavior);
  }
  if (type == "Digits") {
    const bool individual = FlagOf(json, "individual_digits", false);
    return Split(individual ? Characters(IsNumber) : CharacterRuns(IsNumber),
                 SplitBehavior::kIsolated);
  }
  if (type == "CharDelimiterSplit") {
    return Split(Literal(TextOf(json, "delimiter")), SplitBehavior::kRemoved);
  }
  return NotThere("pre-tokenizer", type);
}

}  // namespace onnxd
