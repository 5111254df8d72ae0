#include "runtime/text/tokenizer_json.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/text/byte_pair_encoding.h"
#include "runtime/text/json_steps.h"
#include "runtime/text/unigram.h"
#include "runtime/text/vocabulary.h"
#include "runtime/text/word_piece.h"

namespace onnxd {
namespace {

// A word is a token, or unknown.
class WordLevel : public SubwordModel {
 public:
  WordLevel(std::shared_ptr<const Vocabulary> vocabulary, std::optional<int64_t> unknown)
      : vocabulary_(std::move(vocabulary)), unknown_(unknown) {}
  void Encode(std::string_view word, std::vector<Token>& out) const override {
    const auto id = vocabulary_->Find(word);
    if (id || unknown_)
      out.push_back({id ? *id : *unknown_, 0, static_cast<uint32_t>(word.size())});
  }

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  std::optional<int64_t> unknown_;
};

std::optional<int64_t> UnknownOf(JsonElement model, const Vocabulary& vocabulary) {
  const auto token = As<std::string_view>(Member(model, "unk_token"));
  return token ? vocabulary.Find(*token) : std::nullopt;
}

Result<BytePairEncoding::Pairs> ParseMerges(JsonElement model) {
  BytePairEncoding::Pairs merges;
  for (const JsonElement item : ItemsOf(Member(model, "merges"))) {
    std::string_view text, left, right;
    if (item.get(text) == simdjson::SUCCESS) {
      const size_t blank = text.find(' ');
      if (blank == std::string_view::npos) {
        return InvalidArgument(StrCat("the merge '", text.substr(0, 100), "' is no pair"));
      }
      merges.emplace_back(text.substr(0, blank), text.substr(blank + 1));
      continue;
    }
    const auto pair = As<simdjson::dom::array>(item);
    if (!pair || pair->size() != 2 || pair->at(0).get(left) != simdjson::SUCCESS ||
        pair->at(1).get(right) != simdjson::SUCCESS) {
      return InvalidArgument("a merge is no pair of texts");
    }
    merges.emplace_back(left, right);
  }
  return merges;
}

using Model = Result<std::unique_ptr<const SubwordModel>>;

Model ParseBytePairs(JsonElement model, bool bytes) {
  if (As<double>(Member(model, "dropout")).value_or(0) != 0) {
    return Unimplemented("a BPE model with dropout, which is for training");
  }
  ONNXD_ASSIGN_OR_RETURN(const auto vocabulary, ParseVocabulary(Member(model, "vocab")));
  ONNXD_ASSIGN_OR_RETURN(const auto merges, ParseMerges(model));
  BytePairOptions options;
  options.bytes = bytes;
  options.unknown = UnknownOf(model, *vocabulary);
  options.fuse_unknown = FlagOf(model, "fuse_unk", false);
  options.byte_fallback = FlagOf(model, "byte_fallback", false);
  options.whole_words_first = FlagOf(model, "ignore_merges", false);
  options.continuing_prefix = TextOf(model, "continuing_subword_prefix");
  options.word_suffix = TextOf(model, "end_of_word_suffix");
  return std::unique_ptr<const SubwordModel>(BytePairEncoding::Make(vocabulary, merges, options));
}

Model ParseWordPiece(JsonElement model) {
  ONNXD_ASSIGN_OR_RETURN(const auto vocabulary, ParseVocabulary(Member(model, "vocab")));
  WordPieceOptions options;
  options.continuing_prefix = TextOf(model, "continuing_subword_prefix", "##");
  options.most_characters = As<uint64_t>(Member(model, "max_input_chars_per_word")).value_or(100);
  const auto unknown = UnknownOf(model, *vocabulary);
  if (!unknown) return InvalidArgument("the WordPiece model's unk_token is not in its vocab");
  options.unknown = *unknown;
  ONNXD_ASSIGN_OR_RETURN(auto made, WordPiece::Make(vocabulary->Entries(), options));
  return std::unique_ptr<const SubwordModel>(std::move(made));
}

Model ParseUnigram(JsonElement model) {
  std::vector<UnigramPiece> pieces;
  for (const JsonElement item : ItemsOf(Member(model, "vocab"))) {
    const auto pair = As<simdjson::dom::array>(item);
    std::string_view text;
    double score = 0;
    if (!pair || pair->size() != 2 || pair->at(0).get(text) != simdjson::SUCCESS ||
        pair->at(1).get(score) != simdjson::SUCCESS) {
      return InvalidArgument("a piece of the Unigram model is no pair of text and score");
    }
    pieces.push_back({std::string(text), static_cast<float>(score), !text.empty(), false});
  }
  UnigramOptions options;
  if (const auto unknown = As<int64_t>(Member(model, "unk_id"))) {
    if (*unknown < 0 || *unknown >= static_cast<int64_t>(pieces.size())) {
      return InvalidArgument(StrCat("unk_id ", *unknown, " of ", pieces.size(), " pieces"));
    }
    options.unknown = *unknown;
  }
  options.byte_fallback = FlagOf(model, "byte_fallback", false);
  ONNXD_ASSIGN_OR_RETURN(auto made, Unigram::Make(std::move(pieces), options));
  return std::unique_ptr<const SubwordModel>(std::move(made));
}

Model ParseWordLevel(JsonElement model) {
  ONNXD_ASSIGN_OR_RETURN(const auto vocabulary, ParseVocabulary(Member(model, "vocab")));
  const auto unknown = UnknownOf(model, *vocabulary);
  return std::unique_ptr<const SubwordModel>(std::make_unique<WordLevel>(vocabulary, unknown));
}

// Files of before 2020 do not name the model's type.
std::string ModelType(JsonElement model) {
  const std::string type = TypeName(model);
  if (!type.empty()) return type;
  if (Member(model, "merges")) return "BPE";
  return Member(model, "unk_id") ? "Unigram" : "WordPiece";
}

Model ParseModel(JsonElement model, bool byte_level) {
  const std::string type = ModelType(model);
  if (type == "BPE") return ParseBytePairs(model, byte_level);
  if (type == "WordPiece") return ParseWordPiece(model);
  if (type == "Unigram") return ParseUnigram(model);
  if (type == "WordLevel") return ParseWordLevel(model);
  return Unimplemented(StrCat("the model '", type, "' is not there yet"));
}

Result<std::vector<AddedToken>> ParseAddedTokens(JsonElement json) {
  std::vector<AddedToken> tokens;
  for (const JsonElement item : ItemsOf(Member(json, "added_tokens"))) {
    AddedToken token;
    token.text = TextOf(item, "content");
    token.id = As<int64_t>(Member(item, "id")).value_or(-1);
    ONNXD_RETURN_IF_ERROR(CheckTokenNumber(token.id, token.text));
    token.single_word = FlagOf(item, "single_word", false);
    token.strip_left = FlagOf(item, "lstrip", false);
    token.strip_right = FlagOf(item, "rstrip", false);
    token.normalized = FlagOf(item, "normalized", !FlagOf(item, "special", false));
    if (!token.text.empty()) tokens.push_back(std::move(token));
  }
  return tokens;
}

// ["[CLS]", 101]
Result<TemplatePart> ParseTokenPair(std::optional<JsonElement> json) {
  const auto pair = As<simdjson::dom::array>(json);
  int64_t id = 0;
  if (!pair || pair->size() != 2 || pair->at(1).get(id) != simdjson::SUCCESS) {
    return InvalidArgument("a post-processor's token is no pair of text and number");
  }
  ONNXD_RETURN_IF_ERROR(CheckTokenNumber(id, "of the post-processor"));
  return TemplatePart{TemplatePart::kToken, id, 0};
}

// {"single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id":
// 0}}],
//  "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [101]}}}
// `name`: "single", or "pair", which has a Sequence B as well.
Result<std::vector<TemplatePart>> ParseTemplate(JsonElement json, std::string_view name) {
  std::vector<TemplatePart> parts;
  const auto tokens = Member(json, "special_tokens");
  for (const JsonElement item : ItemsOf(Member(json, name))) {
    if (const auto text = Member(item, "Sequence")) {
      const bool second = TextOf(*text, "id") == "B";
      parts.push_back({second ? TemplatePart::kSecondText : TemplatePart::kText, 0,
                       As<int64_t>(Member(*text, "type_id")).value_or(0)});
      continue;
    }
    const auto special = Member(item, "SpecialToken");
    const std::string written = special ? TextOf(*special, "id") : "";
    const auto token = tokens ? Member(*tokens, written) : std::nullopt;
    if (!token)
      return InvalidArgument(StrCat("the template's token '", written, "' has no number"));
    for (const JsonElement id : ItemsOf(Member(*token, "ids"))) {
      TemplatePart part = {TemplatePart::kToken, As<int64_t>(id).value_or(-1),
                           As<int64_t>(Member(*special, "type_id")).value_or(0)};
      ONNXD_RETURN_IF_ERROR(CheckTokenNumber(part.id, written));
      parts.push_back(part);
    }
  }
  return parts;
}

// Each text stands where it must, once.
Status CheckTemplates(const TokenizerParts& parts) {
  const auto count = [](const std::vector<TemplatePart>& around, TemplatePart::Kind kind) {
    return std::count_if(around.begin(), around.end(),
                         [kind](const TemplatePart& part) { return part.kind == kind; });
  };
  if (count(parts.around, TemplatePart::kText) == 1 &&
      count(parts.around, TemplatePart::kSecondText) == 0 &&
      count(parts.around_pair, TemplatePart::kText) == 1 &&
      count(parts.around_pair, TemplatePart::kSecondText) == 1) {
    return Status::Ok();
  }
  return InvalidArgument("a template must have one text, that of pairs two");
}

Status ParsePostProcessor(JsonElement json, TokenizerParts& parts, bool within = false) {
  const std::string type = TypeName(json);
  if (type == "ByteLevel") {
    parts.trim_offsets = FlagOf(json, "trim_offsets", true);
    parts.prefix_space = FlagOf(json, "add_prefix_space", true);
    return Status::Ok();
  }
  if (type == "TemplateProcessing") {
    ONNXD_ASSIGN_OR_RETURN(parts.around, ParseTemplate(json, "single"));
    if (Member(json, "pair")) {
      ONNXD_ASSIGN_OR_RETURN(parts.around_pair, ParseTemplate(json, "pair"));
    }
    return CheckTemplates(parts);
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ONNXD_ASSIGN_OR_RETURN(const TemplatePart first, ParseTokenPair(Member(json, "cls")));
    ONNXD_ASSIGN_OR_RETURN(const TemplatePart last, ParseTokenPair(Member(json, "sep")));
    const TemplatePart text = {TemplatePart::kText, 0, 0};
    parts.around = {first, text, last};
    if (type == "BertProcessing") {
      TemplatePart second_last = last;
      second_last.type = 1;
      parts.around_pair = {first, text, last, {TemplatePart::kSecondText, 0, 1}, second_last};
      return Status::Ok();
    }
    parts.around_pair = {first, text, last, last, {TemplatePart::kSecondText, 0, 0}, last};
    parts.trim_offsets = FlagOf(json, "trim_offsets", true);
    parts.prefix_space = FlagOf(json, "add_prefix_space", true);
    return Status::Ok();
  }
  if (type == "Sequence" && !within) {
    for (const JsonElement item : ItemsOf(Member(json, "processors"))) {
      ONNXD_RETURN_IF_ERROR(ParsePostProcessor(item, parts, true));
    }
    return Status::Ok();
  }
  return Unimplemented(StrCat("the post-processor '", type, "' is not there yet"));
}

// A token of tokenizer_config.json: its text, or an object with it.
std::string ConfigToken(JsonElement config, std::string_view name) {
  const auto value = Member(config, name);
  if (!value) return {};
  return value->is_object() ? TextOf(*value, "content") : TextOf(config, name);
}

std::optional<int64_t> NumberOf(const std::string& token, const std::vector<AddedToken>& added,
                                JsonElement model) {
  if (token.empty()) return std::nullopt;
  for (const AddedToken& candidate : added) {
    if (candidate.text == token) return candidate.id;
  }
  const auto vocabulary = Member(model, "vocab");
  return vocabulary ? As<int64_t>(Member(*vocabulary, token)) : std::nullopt;
}

// What the configuration asks to stand around texts, where the tokenizer itself has no template.
void AddConfigured(JsonElement config, JsonElement model, TokenizerParts& parts) {
  if (parts.around.size() != 1) return;
  const auto add = [&](std::string_view flag, std::string_view name, bool before) {
    if (!FlagOf(config, flag, false)) return;
    if (const auto id = NumberOf(ConfigToken(config, name), parts.added_tokens, model)) {
      for (auto* around : {&parts.around, &parts.around_pair}) {
        around->insert(before ? around->begin() : around->end(), {TemplatePart::kToken, *id, 0});
      }
    }
  };
  add("add_bos_token", "bos_token", true);
  add("add_eos_token", "eos_token", false);
}

constexpr int64_t kMostLength = int64_t{1} << 24;

// {"max_length": 512, "direction": "Right", "stride": 0, ...}
Status ParseTruncation(std::optional<JsonElement> json, TokenizerParts& parts) {
  if (!json) return Status::Ok();
  const int64_t length = As<int64_t>(Member(*json, "max_length")).value_or(0);
  const auto others = static_cast<int64_t>(parts.around.size()) - 1;
  if (length <= others || length > kMostLength) {
    return InvalidArgument(
        StrCat("truncation to ", length, " tokens, of which ", others, " stand around a text"));
  }
  parts.most_tokens = static_cast<size_t>(length);
  parts.cuts_beginning = TextOf(*json, "direction", "Right") == "Left";
  const std::string strategy = TextOf(*json, "strategy", "LongestFirst");
  if (strategy == "OnlyFirst") parts.truncation = Truncation::kOnlyFirst;
  if (strategy == "OnlySecond") parts.truncation = Truncation::kOnlySecond;
  return Status::Ok();
}

// {"strategy": "BatchLongest" or {"Fixed": 128}, "direction": "Right", "pad_to_multiple_of": null,
// "pad_id": 0, ...}
Result<BatchPadding> ParsePadding(std::optional<JsonElement> json) {
  BatchPadding padding;
  if (!json) return padding;
  padding.pad_id = As<int64_t>(Member(*json, "pad_id")).value_or(0);
  padding.multiple_of = As<int64_t>(Member(*json, "pad_to_multiple_of")).value_or(1);
  padding.left = TextOf(*json, "direction", "Right") == "Left";
  if (const auto strategy = Member(*json, "strategy")) {
    padding.length = As<int64_t>(Member(*strategy, "Fixed")).value_or(0);
  }
  if (padding.length < 0 || padding.length > kMostLength || padding.multiple_of < 1 ||
      padding.multiple_of > kMostLength) {
    return InvalidArgument(
        StrCat("padding to ", padding.length, " tokens and a multiple of ", padding.multiple_of));
  }
  return padding;
}

}  // namespace

Result<JsonTokenizer> ParseTokenizerJson(std::string_view json, std::string_view config_json) {
  JsonObject document, config;
  ONNXD_RETURN_IF_ERROR(document.Parse(json, "the tokenizer"));
  ONNXD_RETURN_IF_ERROR(
      config.Parse(config_json.empty() ? "{}" : config_json, "the tokenizer's configuration"));
  const JsonElement root = document.root();
  const auto model = Member(root, "model");
  if (!model) return InvalidArgument("the tokenizer has no model");

  TokenizerParts parts;
  StepTraits traits;
  ONNXD_ASSIGN_OR_RETURN(parts.added_tokens, ParseAddedTokens(root));
  if (const auto step = Member(root, "normalizer")) {
    ONNXD_ASSIGN_OR_RETURN(parts.normalizer, ParseNormalizer(*step, traits));
  }
  if (const auto step = Member(root, "pre_tokenizer")) {
    ONNXD_ASSIGN_OR_RETURN(parts.pre_tokenizer, ParsePreTokenizer(*step, traits));
  }
  if (traits.byte_level && ModelType(*model) != "BPE") {
    parts.pre_tokenizer = [before = parts.pre_tokenizer, write = WriteBytes()](Pieces& pieces) {
      before(pieces);
      write(pieces);
    };
  }
  ONNXD_ASSIGN_OR_RETURN(parts.model, ParseModel(*model, traits.byte_level));
  if (const auto step = Member(root, "post_processor")) {
    ONNXD_RETURN_IF_ERROR(ParsePostProcessor(*step, parts));
  }
  AddConfigured(config.root(), *model, parts);

  ONNXD_RETURN_IF_ERROR(ParseTruncation(Member(root, "truncation"), parts));

  JsonTokenizer made;
  ONNXD_ASSIGN_OR_RETURN(made.padding, ParsePadding(Member(root, "padding")));
  const auto pad = NumberOf(ConfigToken(config.root(), "pad_token"), parts.added_tokens, *model);
  if (pad) made.padding.pad_id = *pad;
  ONNXD_ASSIGN_OR_RETURN(made.tokenizer, Tokenizer::Make(std::move(parts)));
  return made;
}

}  // namespace onnxd
