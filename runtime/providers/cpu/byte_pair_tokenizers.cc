// ai.onnx.contrib GPT2Tokenizer, CLIPTokenizer, RobertaTokenizer, SpmTokenizer and BpeDecoder.
// Source of the semantics: onnxruntime-extensions' operators and, where those
// differ from it, Hugging Face's tokenizers library. Offsets are in characters of the text, without
// white space at their ends.
#include <charconv>
#include <map>
#include <set>

#include "runtime/providers/cpu/string_tensors.h"
#include "runtime/providers/cpu/tokenizer_outputs.h"
#include "runtime/text/byte_pair_encoding.h"
#include "runtime/text/byte_tokens.h"
#include "runtime/text/tokenizer_json.h"
#include "runtime/text/vocabulary.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

enum class Family { kGpt2, kClip, kRoberta, kSentencepiece };

// The tokens that a family gives a meaning; "": none.
struct SpecialTokens {
  const char *unknown, *begin, *end, *pad;
};

SpecialTokens SpecialsOf(Family family) {
  constexpr const char* kEndOfText = "<|endoftext|>";
  switch (family) {
    case Family::kGpt2:
      return {kEndOfText, kEndOfText, kEndOfText, ""};
    case Family::kClip:
      return {kEndOfText, "<|startoftext|>", kEndOfText, kEndOfText};
    case Family::kRoberta:
      return {"<unk>", "<s>", "</s>", "<pad>"};
    case Family::kSentencepiece:
      return {"<unk>", "<s>", "</s>", ""};
  }
  return {"", "", "", ""};
}

// Lines "TOKEN=NUMBER"; a token may have '=' in it.
Result<std::vector<AddedToken>> ParseAddedTokens(const Node& node) {
  std::vector<AddedToken> tokens;
  const std::string text = node.attributes.String("added_token", "");
  for (const std::string_view line : NonEmptyLines(text)) {
    const size_t equals = line.rfind('=');
    AddedToken token;
    const char* end = line.data() + line.size();
    if (equals == std::string_view::npos || equals == 0 ||
        std::from_chars(line.data() + equals + 1, end, token.id).ptr != end) {
      return InvalidArgument(StrCat("added_token '", line.substr(0, 100), "' is no TOKEN=NUMBER"));
    }
    token.text = line.substr(0, equals);
    tokens.push_back(std::move(token));
  }
  return tokens;
}

// Lines "LEFT RIGHT"; the first may name a version.
Result<BytePairEncoding::Pairs> ParseMerges(std::string_view text) {
  BytePairEncoding::Pairs merges;
  for (const std::string_view line : NonEmptyLines(text)) {
    if (merges.empty() && line.starts_with("#version")) continue;
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos || blank == 0 || blank + 1 == line.size()) {
      return InvalidArgument(StrCat("the merge '", line.substr(0, 100), "' is no pair"));
    }
    merges.emplace_back(line.substr(0, blank), line.substr(blank + 1));
  }
  if (merges.empty()) return InvalidArgument("merges has no pair");
  return merges;
}

void TidyForClip(AlignedText& text) {
  text.MakeLower();
  // White space becomes one blank, and none at the ends.
  AlignedText out = text.Emptied();
  for (size_t i = 0; i < text.size(); ++i) {
    const bool space = IsWhitespace(text.characters[i]);
    if (space && (out.size() == 0 || out.characters.back() == ' ')) continue;
    out.Append(space ? U' ' : text.characters[i], text.source[i]);
  }
  text = std::move(out);
}

struct BatchTokenizer {
  std::shared_ptr<const Tokenizer> tokenizer;
  RowLayout layout;

  Result<Values> Run(const Node& node, std::span<const Value> inputs) const {
    const Tensor& texts = inputs[0].tensor();
    ONNXD_ASSIGN_OR_RETURN(const std::vector<Encoding> rows, EncodeAll(node, texts, *tokenizer));
    constexpr TokenField kFields[] = {TokenField::kIds, TokenField::kMask, TokenField::kOffsets};
    return TokenTensors(node, texts.shape(), rows, layout, kFields);
  }
};

class BytePairTokenizerBuilder {
 public:
  BytePairTokenizerBuilder(const Node& node, Family family)
      : node_(node), family_(family), specials_(SpecialsOf(family)) {}

  Result<BatchTokenizer> Build() {
    ONNXD_RETURN_IF_ERROR(ReadVocabulary());
    ONNXD_ASSIGN_OR_RETURN(parts_.added_tokens, ParseAddedTokens(node_));
    const int64_t unknown = Special(specials_.unknown);
    const int64_t begin = Special(specials_.begin), end = Special(specials_.end);
    BatchTokenizer made;
    if (*specials_.pad != 0) made.layout.padding.pad_id = Special(specials_.pad);
    made.layout.padding.length = node_.attributes.Int("padding_length", -1);
    made.layout.cuts = true;
    SetAround(begin, end);
    SetSteps();
    const std::string merges = node_.attributes.String("merges", "");
    ONNXD_ASSIGN_OR_RETURN(const auto pairs, ParseMerges(merges));
    BytePairOptions options;
    options.bytes = family_ != Family::kSentencepiece;
    options.byte_fallback = !options.bytes;
    options.unknown = unknown;
    if (family_ == Family::kClip) options.word_suffix = "</w>";
    parts_.model = BytePairEncoding::Make(vocabulary_, pairs, options);
    parts_.trim_offsets = true;
    ONNXD_ASSIGN_OR_RETURN(made.tokenizer, Tokenizer::Make(std::move(parts_)));
    return made;
  }

 private:
  Status ReadVocabulary() {
    const auto parsed = ParseVocabularyJson(node_.attributes.String("vocab", ""));
    if (!parsed.ok()) return parsed.status().WithContext("vocab");
    vocabulary_ = *parsed;
    if (vocabulary_->empty()) return InvalidArgument("vocab has no token");
    return Status::Ok();
  }

  // One that is not in the vocabulary is added to it. It is found in texts, too.
  int64_t Special(const std::string& token) {
    for (const AddedToken& added : parts_.added_tokens) {
      if (added.text == token) return added.id;
    }
    if (!vocabulary_->Find(token))
      vocabulary_->Set(token, static_cast<int64_t>(vocabulary_->size()));
    AddedToken added;
    added.text = token;
    added.id = *vocabulary_->Find(token);
    parts_.added_tokens.push_back(added);
    return added.id;
  }

  void SetAround(int64_t begin, int64_t end) {
    const TemplatePart first = {TemplatePart::kToken, begin, 0}, text = {TemplatePart::kText, 0, 0},
                       last = {TemplatePart::kToken, end, 0};
    const std::string name = node_.attributes.String("model_name", "GPT2");
    const bool bare = family_ == Family::kGpt2 && (name == "GPT2" || name == "CodeGen");
    if (bare) {
      parts_.around = {text};
    } else if (family_ == Family::kSentencepiece) {
      parts_.around = {first, text};
    } else {
      parts_.around = {first, text, last};
    }
  }

  void SetSteps() {
    constexpr const char* kSpaceSymbol = "\xe2\x96\x81";
    if (family_ == Family::kSentencepiece) {
      parts_.normalizer =
          InTurn({PrependText(kSpaceSymbol), ReplaceMatches(Literal(" "), kSpaceSymbol)});
    } else if (family_ == Family::kClip) {
      parts_.normalizer = TidyForClip;
      parts_.pre_tokenizer = Split(ClipWords(), SplitBehavior::kRemoved, true);
    } else {
      parts_.pre_tokenizer = Split(Gpt2Words(), SplitBehavior::kIsolated);
    }
  }

  const Node& node_;
  Family family_;
  SpecialTokens specials_;
  std::shared_ptr<Vocabulary> vocabulary_;
  TokenizerParts parts_;
};

Result<std::unique_ptr<Kernel>> MakeBytePairs(const KernelInfo& info, Family family) {
  ONNXD_ASSIGN_OR_RETURN(BatchTokenizer made, BytePairTokenizerBuilder(info.node, family).Build());
  return MakeEagerKernel([made = std::move(made)](const Node& node, std::span<const Value> inputs) {
    return made.Run(node, inputs);
  });
}

// Texts of tokens: what a token is written with, character by character in bytes.
class BytePairDecoder {
 public:
  static Result<std::shared_ptr<const BytePairDecoder>> Make(const Node& node) {
    auto made = std::make_shared<BytePairDecoder>();
    const auto& a = node.attributes;
    if (a.Int("en_normalization", 0) != 0) {
      return Unimplemented("en_normalization is not there yet");
    }
    made->skips_special_ = a.Int("skip_special_tokens", 0) != 0;
    made->spaces_ = a.Int("whitespace_token", 0) != 0;
    made->unknown_ = a.String("unk_token", "<|endoftext|>");
    std::map<char32_t, char> bytes;
    ONNXD_RETURN_IF_ERROR(
        ForNumbered(node, "byte_decoder", [&](int64_t character, std::string_view byte) {
          int value = 0;
          std::from_chars(byte.data(), byte.data() + byte.size(), value);
          bytes[static_cast<char32_t>(character)] = static_cast<char>(value);
        }));
    const std::string vocabulary = a.String("id_vocab", "");
    for (size_t at = 0; at <= vocabulary.size() && !vocabulary.empty();) {
      const size_t end = std::min(vocabulary.find('\n', at), vocabulary.size());
      made->texts_.push_back(Written(std::string_view(vocabulary).substr(at, end - at), bytes));
      at = end + 1;
    }
    if (made->texts_.empty()) return InvalidArgument("id_vocab has no token");
    ONNXD_RETURN_IF_ERROR(
        ForNumbered(node, "added_tokens",
                    [&](int64_t id, std::string_view token) { made->added_[id] = token; }));
    const std::string specials = a.String("all_special_ids", "");
    for (const std::string_view line : NonEmptyLines(specials)) {
      int64_t id = 0;
      if (std::from_chars(line.data(), line.data() + line.size(), id).ec != std::errc()) {
        return InvalidArgument(StrCat("all_special_ids has '", line.substr(0, 100), "'"));
      }
      made->special_.insert(id);
    }
    return std::shared_ptr<const BytePairDecoder>(std::move(made));
  }

  // ids [..., n] -> texts [...], of [n] [1].
  Result<Values> Run(const Node& node, std::span<const Value> inputs) const {
    const Tensor& ids = inputs[0].tensor();
    std::vector<int64_t> dims = ids.shape().dims();
    if (dims.empty())
      return InvalidArgument(StrCat(Describe(node), ": expected ids [..., n], got []"));
    const auto length = static_cast<size_t>(dims.back());
    dims.pop_back();
    if (dims.empty()) dims.push_back(1);
    const auto tokens = ids.elements<int64_t>();
    std::vector<std::string> texts(static_cast<size_t>(Shape(dims).ElementCount()));
    for (size_t row = 0; row < texts.size(); ++row)
      texts[row] = Text(tokens.subspan(row * length, length));
    return OneValue(StringTensor(Shape(dims), std::move(texts)));
  }

 private:
  // Lines "NUMBER<tab>TEXT".
  template <typename Use>
  static Status ForNumbered(const Node& node, const char* attribute, Use use) {
    const std::string text = node.attributes.String(attribute, "");
    for (const std::string_view line : NonEmptyLines(text)) {
      const size_t tab = line.find('\t');
      int64_t number = 0;
      if (tab == std::string_view::npos ||
          std::from_chars(line.data(), line.data() + tab, number).ptr != line.data() + tab) {
        return InvalidArgument(
            StrCat(attribute, " has '", line.substr(0, 100), "', which is no NUMBER<tab>TEXT"));
      }
      use(number, line.substr(tab + 1));
    }
    return Status::Ok();
  }

  static std::string Written(std::string_view token, const std::map<char32_t, char>& bytes) {
    std::string out;
    if (const int byte = ByteOfToken(token); byte >= 0) {
      out += static_cast<char>(byte);
      return out;
    }
    for (size_t at = 0; at < token.size();) {
      const auto [value, length] = CodePointAt(token, at);
      const auto found = bytes.find(value);
      if (found != bytes.end()) {
        out += found->second;
      } else {
        out.append(token, at, length);
      }
      at += length;
    }
    return out;
  }

  std::string Text(std::span<const int64_t> tokens) const {
    std::string text;
    bool after_special = false;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const int64_t id = tokens[i];
      const bool special = special_.contains(id);
      const bool known = id >= 0 && id < static_cast<int64_t>(texts_.size());
      if (special && skips_special_) {
        after_special = true;
        continue;
      }
      if (spaces_ && special && i > 0 && !after_special) text += ' ';
      if (const auto added = added_.find(id); added != added_.end()) {
        text += added->second;
      } else if (known) {
        text += texts_[static_cast<size_t>(id)];
      } else if (!skips_special_) {
        text += unknown_;
      }
      if (spaces_ && special && i + 1 < tokens.size()) text += ' ';
      after_special = special;
    }
    return text;
  }

  bool skips_special_ = false, spaces_ = false;
  std::string unknown_;
  std::vector<std::string> texts_;
  std::map<int64_t, std::string> added_;
  std::set<int64_t> special_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpt2Tokenizer(const KernelInfo& info) {
  return MakeBytePairs(info, Family::kGpt2);
}
Result<std::unique_ptr<Kernel>> MakeClipTokenizer(const KernelInfo& info) {
  return MakeBytePairs(info, Family::kClip);
}
Result<std::unique_ptr<Kernel>> MakeRobertaTokenizer(const KernelInfo& info) {
  return MakeBytePairs(info, Family::kRoberta);
}
Result<std::unique_ptr<Kernel>> MakeSpmTokenizer(const KernelInfo& info) {
  return MakeBytePairs(info, Family::kSentencepiece);
}

Result<std::unique_ptr<Kernel>> MakeBpeDecoder(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto decoder, BytePairDecoder::Make(info.node));
  return MakeEagerKernel([decoder](const Node& node, std::span<const Value> inputs) {
    return decoder->Run(node, inputs);
  });
}

}  // namespace onnxd
