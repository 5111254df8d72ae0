// ai.onnx.contrib BertTokenizer, HfBertTokenizer, BasicTokenizer, WordpieceTokenizer and
// BertTokenizerDecoder. Source of the semantics: onnxruntime-extensions' operators, and BERT's
// tokenizer (https://github.com/google-research/bert). Offsets are in characters of the text.
#include <algorithm>
#include <map>
#include <set>

#include "runtime/providers/cpu/string_tensors.h"
#include "runtime/providers/cpu/tokenizer_outputs.h"
#include "runtime/text/vocabulary.h"
#include "runtime/text/word_piece.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// Lines of `vocab_file`: a token's number is its line's, of those that are not empty.
class BertVocabulary {
 public:
  static Result<BertVocabulary> Make(const Node& node) {
    BertVocabulary made;
    const std::string text = node.attributes.String("vocab_file", "");
    for (const std::string_view line : NonEmptyLines(text)) {
      made.lines_.emplace_back(line);
      made.vocabulary_.Set(std::string(line), static_cast<int64_t>(made.lines_.size()) - 1);
    }
    return made;
  }

  // The number of the token that an attribute names.
  Result<int64_t> Special(const Node& node, std::string_view attribute,
                          std::string_view fallback) const {
    const std::string token = node.attributes.String(attribute, fallback);
    if (const auto id = vocabulary_.Find(token)) return *id;
    return InvalidArgument(StrCat(attribute, " '", token, "' is not in vocab_file"));
  }

  const Vocabulary& vocabulary() const { return vocabulary_; }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  Vocabulary vocabulary_;
};

Result<std::shared_ptr<const Tokenizer>> MakeBertPipeline(const Node& node) {
  const auto& a = node.attributes;
  TokenizerParts parts;
  ONNXD_ASSIGN_OR_RETURN(const BertVocabulary words, BertVocabulary::Make(node));
  WordPieceOptions options;
  options.continuing_prefix = a.String("suffix_indicator", "##");
  ONNXD_ASSIGN_OR_RETURN(options.unknown, words.Special(node, "unk_token", "[UNK]"));
  ONNXD_ASSIGN_OR_RETURN(const int64_t classifier, words.Special(node, "cls_token", "[CLS]"));
  ONNXD_ASSIGN_OR_RETURN(const int64_t separator, words.Special(node, "sep_token", "[SEP]"));
  const TemplatePart begin = {TemplatePart::kToken, classifier, 0};
  const TemplatePart text = {TemplatePart::kText, 0, 0};
  const TemplatePart end = {TemplatePart::kToken, separator, 0};
  parts.around = {begin, text, end};
  parts.around_pair = {
      begin, text, end, {TemplatePart::kSecondText, 0, 1}, {TemplatePart::kToken, separator, 1}};
  parts.most_tokens = static_cast<size_t>(std::max<int64_t>(a.Int("max_length", -1), 0));
  const std::string strategy = a.String("truncation_strategy_name", "longest_first");
  if (strategy == "only_first") {
    parts.truncation = Truncation::kOnlyFirst;
  } else if (strategy == "only_second") {
    parts.truncation = Truncation::kOnlySecond;
  } else if (strategy != "longest_first" && strategy != "longest_from_back") {
    return InvalidArgument(
        StrCat("truncation_strategy_name '", strategy, "' is none of those that there are"));
  }
  if (a.Int("do_basic_tokenize", 1) != 0) {
    parts.normalizer =
        BertNormalizer({true, a.Int("tokenize_chinese_chars", 1) != 0,
                        a.Int("strip_accents", 0) != 0, a.Int("do_lower_case", 1) != 0});
    parts.pre_tokenizer = BertPreTokenizer();
  } else {
    parts.pre_tokenizer = Split(CharacterRuns(IsWhitespace), SplitBehavior::kRemoved);
  }
  ONNXD_ASSIGN_OR_RETURN(parts.model, WordPiece::Make(words.vocabulary().Entries(), options));
  return Tokenizer::Make(std::move(parts));
}

// One or two texts -> input_ids, token_type_ids, attention_mask [tokens], offset_mapping [tokens,
// 2]; as transformers' pipelines want it: input_ids, attention_mask, token_type_ids [1, tokens] of
// two.
Result<Values> RunBert(const Tokenizer& bert, const Node& node, std::span<const Value> inputs,
                       bool two_in_a_batch) {
  const auto texts = inputs[0].tensor().elements<std::string>();
  if (texts.size() != 2 && (two_in_a_batch || texts.size() != 1)) {
    return InvalidArgument(StrCat(Describe(node), ": expected ",
                                  two_in_a_batch ? "two" : "one or two", " texts, got ",
                                  texts.size()));
  }
  for (const std::string& text : texts) ONNXD_RETURN_IF_ERROR(CheckText(node, text));
  ONNXD_ASSIGN_OR_RETURN(const Encoding encoding, texts.size() == 2
                                                      ? bert.EncodePair(texts[0], texts[1])
                                                      : bert.Encode(texts[0]));
  const auto count = static_cast<int64_t>(encoding.ids.size());
  const Shape shape = two_in_a_batch ? Shape{1, count} : Shape{count};
  const std::vector<int64_t> ones(encoding.ids.size(), 1);
  Values out;
  ONNXD_ASSIGN_OR_RETURN(Tensor ids, TensorFrom<int64_t>(DataType::kInt64, shape, encoding.ids));
  ONNXD_ASSIGN_OR_RETURN(Tensor types,
                         TensorFrom<int64_t>(DataType::kInt64, shape, encoding.types));
  ONNXD_ASSIGN_OR_RETURN(Tensor mask, TensorFrom<int64_t>(DataType::kInt64, shape, ones));
  out.emplace_back(std::move(ids));
  out.emplace_back(std::move(two_in_a_batch ? mask : types));
  out.emplace_back(std::move(two_in_a_batch ? types : mask));
  if (node.outputs.size() > 3) {
    ONNXD_ASSIGN_OR_RETURN(Tensor offsets, Tensor::Create(DataType::kInt64, Shape{count, 2}));
    auto* to = offsets.mutable_data<int64_t>();
    for (const TextSpan& offset : encoding.offsets) {
      *to++ = offset.begin;
      *to++ = offset.end;
    }
    out.emplace_back(std::move(offsets));
  }
  out.resize(node.outputs.size());
  return out;
}

Result<std::unique_ptr<Kernel>> MakeBert(const KernelInfo& info, bool two_in_a_batch) {
  ONNXD_ASSIGN_OR_RETURN(const auto bert, MakeBertPipeline(info.node));
  return MakeEagerKernel([bert, two_in_a_batch](const Node& node, std::span<const Value> inputs) {
    return RunBert(*bert, node, inputs, two_in_a_batch);
  });
}

class BertDecoder {
 public:
  static Result<std::shared_ptr<const BertDecoder>> Make(const Node& node) {
    auto made = std::make_shared<BertDecoder>();
    ONNXD_ASSIGN_OR_RETURN(BertVocabulary words, BertVocabulary::Make(node));
    made->words_ = words.lines();
    const auto& a = node.attributes;
    made->unknown_ = a.String("unk_token", "[UNK]");
    made->prefix_ = a.String("suffix_indicator", "##");
    made->by_positions_ = a.Int("use_indices", 0) != 0;
    made->skips_special_ = a.Int("skip_special_tokens", 0) != 0;
    made->cleans_up_ = a.Int("clean_up_tokenization_spaces", 1) != 0;
    for (const auto& [attribute, fallback] :
         {std::pair("sep_token", "[SEP]"), std::pair("pad_token", "[PAD]"),
          std::pair("cls_token", "[CLS]"), std::pair("mask_token", "[MASK]")}) {
      made->special_.insert(a.String(attribute, fallback));
    }
    return std::shared_ptr<const BertDecoder>(std::move(made));
  }

  // The texts of tokens [begin, end) for each row of `positions`, or of all of them.
  Result<Values> Run(const Node& node, std::span<const Value> inputs) const {
    const Tensor& ids = inputs[0].tensor();
    const Shape& shape = ids.shape();
    if (shape.rank() != 1 && !(shape.rank() == 2 && shape[0] == 1)) {
      return InvalidArgument(
          StrCat(Describe(node), ": expected ids [n] or [1, n], got ", shape.ToString()));
    }
    const auto tokens = ids.elements<int64_t>();
    if (!by_positions_) return OneValue(StringTensor(Shape{1}, {Text(tokens)}));
    const Tensor* positions = TensorAt(inputs, 1);
    const Shape* rows = positions == nullptr ? nullptr : &positions->shape();
    if (rows == nullptr ||
        (positions->ElementCount() > 0 && (rows->rank() != 2 || (*rows)[1] != 2))) {
      return InvalidArgument(StrCat(Describe(node), ": expected positions [rows, 2]"));
    }
    std::vector<std::string> texts;
    const auto bounds = positions->elements<int64_t>();
    for (size_t row = 0; row + 1 < bounds.size(); row += 2) {
      const int64_t begin = bounds[row], end = bounds[row + 1];
      if (begin < 0 || end < begin || end > static_cast<int64_t>(tokens.size())) {
        return InvalidArgument(StrCat(Describe(node), ": positions [", begin, ", ", end, ") of ",
                                      tokens.size(), " tokens"));
      }
      texts.push_back(
          Text(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))));
    }
    const auto count = static_cast<int64_t>(texts.size());
    return OneValue(StringTensor(Shape{count}, std::move(texts)));
  }

 private:
  // Tokens that go on a word of which the beginning is not there are left out.
  std::string Text(std::span<const int64_t> tokens) const {
    std::string text;
    std::string_view last;
    for (const int64_t id : tokens) {
      const bool known = id >= 0 && id < static_cast<int64_t>(words_.size());
      std::string_view word = known ? words_[static_cast<size_t>(id)] : unknown_;
      if (skips_special_ && special_.contains(word)) continue;
      if (!prefix_.empty() && word.starts_with(prefix_)) {
        if (text.empty()) continue;
        word.remove_prefix(prefix_.size());
      } else if (!text.empty() && !(cleans_up_ && StandTogether(last, word))) {
        text += ' ';
      }
      text += word;
      last = word;
    }
    return text;
  }

  // Whether no blank stands between: behind what opens, before what closes, on both sides of what
  // joins.
  static bool StandTogether(std::string_view left, std::string_view right) {
    constexpr std::u32string_view kJoins = U"\"'-/@\\", kOpens = U"$(<[{", kCloses = U"!),.:>?]}~";
    const auto is_in = [](char32_t c, std::u32string_view set) { return set.find(c) != set.npos; };
    const auto joins = [&](char32_t c) {
      // Of Latin-1, of general punctuation, of Chinese and Japanese.
      const bool block =
          (c >= 0x80 && c <= 0xff) || (c >= 0x2000 && c <= 0x206f) || (c >= 0x3000 && c <= 0x303f);
      return is_in(c, kJoins) || (block && IsPunctuation(c));
    };
    if (left.empty() || right.empty()) return false;
    size_t at = left.size() - 1;
    while (at > 0 && (static_cast<unsigned char>(left[at]) & 0xc0) == 0x80) --at;
    const char32_t before = CodePointAt(left, at).value, after = CodePointAt(right, 0).value;
    return joins(before) || is_in(before, kOpens) || joins(after) || is_in(after, kCloses);
  }

  std::vector<std::string> words_;
  std::string unknown_, prefix_;
  bool by_positions_ = false, skips_special_ = false, cleans_up_ = true;
  std::set<std::string, std::less<>> special_;
};

// A text -> its words [n], without looking for tokens in them.
Result<Values> BasicWords(const Node& node, std::span<const Value> inputs,
                          const Normalizer& normalizer, const PreTokenizer& cut) {
  const auto texts = inputs[0].tensor().elements<std::string>();
  if (texts.size() != 1) {
    return InvalidArgument(StrCat(Describe(node), ": expected one text, got ", texts.size()));
  }
  AlignedText text = AlignedText::From(texts[0]);
  normalizer(text);
  const size_t size = text.size();
  Pieces pieces = {std::move(text), {{0, size}}, true};
  cut(pieces);
  std::vector<std::string> words;
  EncodedPart part;
  for (const Range range : pieces.ranges) {
    part.Assign(pieces.text, range.begin, range.end);
    words.push_back(part.bytes);
  }
  const auto count = static_cast<int64_t>(words.size());
  return OneValue(StringTensor(Shape{count}, std::move(words)));
}

// The tokens of texts of words, as texts: all of them, where each row's begin, and once more those
// with where they end. Rows are one text each, or texts [splits[i], splits[i + 1]).
class WordpieceRows {
 public:
  static Result<std::shared_ptr<const WordpieceRows>> Make(const Node& node) {
    auto made = std::make_shared<WordpieceRows>();
    ONNXD_ASSIGN_OR_RETURN(const auto vocabulary,
                           ParseVocabularyJson(node.attributes.String("vocab", "")));
    WordPieceOptions options;
    options.continuing_prefix = node.attributes.String("suffix_indicator", "##");
    options.most_characters = static_cast<size_t>(
        std::max<int64_t>(node.attributes.Int("max_input_chars_per_word", 200), 0));
    options.unknown = -1;
    for (const auto& [token, id] : vocabulary->Entries()) made->tokens_[id] = token;
    made->tokens_[-1] = node.attributes.String("unknown_token", "[UNK]");
    ONNXD_ASSIGN_OR_RETURN(made->model_, WordPiece::Make(vocabulary->Entries(), options));
    return std::shared_ptr<const WordpieceRows>(std::move(made));
  }

  Result<Values> Run(const Node& node, std::span<const Value> inputs) const {
    const auto texts = inputs[0].tensor().elements<std::string>();
    const auto given = inputs[1].tensor().elements<int64_t>();
    std::vector<int64_t> splits(given.begin(), given.end());
    if (splits.empty()) {
      for (size_t i = 0; i <= texts.size(); ++i) splits.push_back(static_cast<int64_t>(i));
    }
    std::vector<std::string> tokens;
    std::vector<int64_t> ends = {0};
    int64_t text = 0;
    for (size_t row = 1; row < splits.size(); ++row) {
      if (splits[row] < text || splits[row] > static_cast<int64_t>(texts.size()) ||
          splits[0] != 0) {
        return InvalidArgument(StrCat(Describe(node), ": rows must ascend from 0 to ", texts.size(),
                                      ", but ", splits[row], " follows ", splits[row - 1]));
      }
      for (; text < splits[row]; ++text) AddTokens(texts[static_cast<size_t>(text)], tokens);
      ends.push_back(static_cast<int64_t>(tokens.size()));
    }
    const auto count = static_cast<int64_t>(tokens.size()),
               rows = static_cast<int64_t>(ends.size());
    Values out;
    ONNXD_ASSIGN_OR_RETURN(Tensor all, StringTensor(Shape{count}, std::move(tokens)));
    ONNXD_ASSIGN_OR_RETURN(Tensor offsets,
                           TensorFrom<int64_t>(DataType::kInt64, Shape{rows}, ends));
    ONNXD_ASSIGN_OR_RETURN(Tensor first, TensorFrom<int64_t>(DataType::kInt64, Shape{rows - 1},
                                                             {ends.begin(), ends.end() - 1}));
    ONNXD_ASSIGN_OR_RETURN(Tensor last, TensorFrom<int64_t>(DataType::kInt64, Shape{rows - 1},
                                                            {ends.begin() + 1, ends.end()}));
    return Values{std::move(all), std::move(offsets), std::move(first), std::move(last)};
  }

 private:
  void AddTokens(const std::string& text, std::vector<std::string>& out) const {
    std::vector<Token> tokens;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find_first_of(" \t\n\r\v\f", at), text.size());
      if (end > at) model_->Encode(std::string_view(text).substr(at, end - at), tokens);
      at = end + 1;
    }
    for (const Token& token : tokens) out.push_back(tokens_.at(token.id));
  }

  std::map<int64_t, std::string> tokens_;
  std::unique_ptr<WordPiece> model_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeBasicTokenizer(const KernelInfo& info) {
  const auto& a = info.node.attributes;
  const Normalizer normalizer = BertNormalizer(
      {a.Int("remove_control_chars", 1) != 0, a.Int("tokenize_chinese_chars", 1) != 0,
       a.Int("strip_accents", 0) != 0, a.Int("do_lower_case", 1) != 0});
  const PreTokenizer cut = a.Int("tokenize_punctuation", 0) != 0
                               ? BertPreTokenizer()
                               : Split(CharacterRuns(IsWhitespace), SplitBehavior::kRemoved);
  return MakeEagerKernel([normalizer, cut](const Node& node, std::span<const Value> inputs) {
    return BasicWords(node, inputs, normalizer, cut);
  });
}

Result<std::unique_ptr<Kernel>> MakeWordpieceTokenizer(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto rows, WordpieceRows::Make(info.node));
  return MakeEagerKernel(
      [rows](const Node& node, std::span<const Value> inputs) { return rows->Run(node, inputs); });
}

Result<std::unique_ptr<Kernel>> MakeBertTokenizer(const KernelInfo& info) {
  return MakeBert(info, false);
}
Result<std::unique_ptr<Kernel>> MakeHfBertTokenizer(const KernelInfo& info) {
  return MakeBert(info, true);
}

Result<std::unique_ptr<Kernel>> MakeBertTokenizerDecoder(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const auto decoder, BertDecoder::Make(info.node));
  return MakeEagerKernel([decoder](const Node& node, std::span<const Value> inputs) {
    return decoder->Run(node, inputs);
  });
}

}  // namespace onnxd
