#include "runtime/text/tokenizer.h"

#include <gmock/gmock.h>

#include <random>

#include "runtime/text/sentencepiece.h"
#include "runtime/text/tokenizer_json.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::string_view kBert = R"({
  "added_tokens": [{"id": 2, "content": "[SEP]", "special": true}, {"id": 6, "content": "<m>", "lstrip": true}],
  "normalizer": {"type": "BertNormalizer", "lowercase": true},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "post_processor": {"type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
               {"SpecialToken": {"id": "[SEP]", "type_id": 1}}],
    "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1]}, "[SEP]": {"id": "[SEP]", "ids": [2]}}},
  "model": {"type": "WordPiece", "unk_token": "[UNK]",
    "vocab": {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2, "good": 3, "##ness": 4, "!": 5}}})";

TEST(TokenizerJson, GoesThroughAllSteps) {
  const auto made = ParseTokenizerJson(kBert, "");
  ASSERT_TRUE(made.ok()) << made.status().message();
  const auto encoded = made->tokenizer->Encode("Goodness! [SEP] x <m>");
  ASSERT_TRUE(encoded.ok());
  const Encoding& encoding = *encoded;
  EXPECT_THAT(encoding.ids, ElementsAre(1, 3, 4, 5, 2, 0, 6, 2));
  EXPECT_THAT(encoding.types, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1));
  EXPECT_THAT(encoding.offsets,
              ElementsAre(TextSpan{0, 0}, TextSpan{0, 4}, TextSpan{4, 8}, TextSpan{8, 9},
                          TextSpan{10, 15}, TextSpan{16, 17}, TextSpan{17, 21}, TextSpan{0, 0}));
}

TEST(TokenizerJson, TakesAConfigurationWithoutALimit) {
  for (const char* config :
       {R"({"model_max_length": 1000000000000000019884624838656, "a": "\\\"12345678901234567890"})",
        R"({"model_max_length": 1e30, "a": [123456789012345678901234567890, -12345678901234567890.5]})"}) {
    const auto made = ParseTokenizerJson(kBert, config);
    EXPECT_TRUE(made.ok()) << made.status().message();
  }
  EXPECT_FALSE(ParseTokenizerJson(kBert, R"({"a": 1000000000000000019884624838656)").ok());
}

TEST(TokenizerJson, PutsTwoTextsTogetherAndCutsTheLonger) {
  constexpr std::string_view kPairs = R"({
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": {"type": "BertProcessing", "cls": ["[CLS]", 1], "sep": ["[SEP]", 2]},
    "truncation": {"max_length": 8, "strategy": ")";
  constexpr std::string_view kModel = R"("},
    "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "[CLS]": 1, "[SEP]": 2, "a": 3, "b": 4}}})";
  const auto ids = [&](std::string_view strategy, std::string_view text, std::string_view second) {
    const auto made = ParseTokenizerJson(std::string(kPairs).append(strategy).append(kModel), "");
    EXPECT_TRUE(made.ok()) << made.status().message();
    return made->tokenizer->EncodePair(text, second)->ids;
  };
  EXPECT_THAT(ids("LongestFirst", "a", "b b"), ElementsAre(1, 3, 2, 4, 4, 2));
  EXPECT_THAT(ids("LongestFirst", "a", "b b b b b"), ElementsAre(1, 3, 2, 4, 4, 4, 4, 2));
  EXPECT_THAT(ids("LongestFirst", "a a a a", "b b b"), ElementsAre(1, 3, 3, 3, 2, 4, 4, 2));
  EXPECT_THAT(ids("OnlyFirst", "a a a a", "b b b"), ElementsAre(1, 3, 3, 2, 4, 4, 4, 2));
  EXPECT_THAT(ids("OnlySecond", "a a a a", "b b b"), ElementsAre(1, 3, 3, 3, 3, 2, 4, 2));
}

TEST(TokenizerJson, DoesNotLetTextsGrowWithoutEnd) {
  std::string steps;
  for (int i = 0; i < 10; ++i) {
    steps += std::string(i == 0 ? "" : ",") +
             R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"})";
  }
  const auto json = [](const std::string& normalizer) {
    return R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "normalizer": )" +
           normalizer + "}";
  };
  const auto made =
      ParseTokenizerJson(json(R"({"type": "Sequence", "normalizers": [)" + steps + "]}"), "");
  ASSERT_TRUE(made.ok()) << made.status().message();
  EXPECT_TRUE(made->tokenizer->Encode("b").ok());
  EXPECT_EQ(made->tokenizer->Encode("aaa").status().code(), StatusCode::kResourceExhausted);
  // Nor an added token, when the tokenizer is read.
  const auto with_token = ParseTokenizerJson(
      R"({"added_tokens": [{"id": 0, "content": "aa", "normalized": true}], )" +
          json(R"({"type": "Sequence", "normalizers": [)" + steps + "]}").substr(1),
      "");
  EXPECT_EQ(with_token.status().code(), StatusCode::kResourceExhausted);
  const auto error = [&](const std::string& normalizer) {
    return std::string(ParseTokenizerJson(json(normalizer), "").status().message());
  };
  EXPECT_THAT(error(R"({"type": "Prepend", "prepend": ")" + std::string(65, 'x') + R"("})"),
              HasSubstr("puts in 65 bytes"));
  std::string many = R"({"type": "Lowercase"})";
  for (int i = 0; i < 64; ++i) many += R"(, {"type": "Lowercase"})";
  EXPECT_THAT(error(R"({"type": "Sequence", "normalizers": [)" + many + "]}"),
              HasSubstr("a sequence of 65 steps"));
}

TEST(TokenizerJson, SaysWhatIsNotThere) {
  const auto error = [](std::string_view json) {
    return std::string(ParseTokenizerJson(json, "").status().message());
  };
  EXPECT_THAT(error("{"), HasSubstr("no JSON object"));
  EXPECT_THAT(error("{}"), HasSubstr("no model"));
  EXPECT_THAT(error(R"({"model": {"type": "Sung"}})"),
              HasSubstr("the model 'Sung' is not there yet"));
  EXPECT_THAT(
      error(
          R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}, "normalizer": {"type": "Sung"}})"),
      HasSubstr("the normalizer 'Sung' is not there yet"));
  EXPECT_THAT(error(R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}})"),
              HasSubstr("unk_id 1 of 1"));
}

// Whatever was done to a file, it is read or refused.
TEST(TokenizerJson, SurvivesChangedFiles) {
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string json(kBert);
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i) {
      const size_t at = random() % json.size();
      if (random() % 2 == 0) {
        json[at] = static_cast<char>(random() % 256);
      } else {
        json.erase(at, random() % 20);
      }
    }
    const auto made = ParseTokenizerJson(json, "");
    if (made.ok()) (void)made->tokenizer->Encode("Goodness! \xff [SEP] x <m>");
  }
}

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>(value | 0x80);
  out += static_cast<char>(value);
}

std::string Message(uint32_t field, std::string_view content) {
  std::string out;
  AppendVarint(uint64_t{field} << 3 | 2, out);
  AppendVarint(content.size(), out);
  return out.append(content);
}

std::string Number(uint32_t field, uint64_t value) {
  std::string out;
  AppendVarint(uint64_t{field} << 3, out);
  AppendVarint(value, out);
  return out;
}

std::string Piece(std::string_view text, float score, uint64_t type) {
  std::string out = Message(1, text);
  AppendVarint(2 << 3 | 5, out);
  out.append(reinterpret_cast<const char*>(&score), sizeof(score));
  return Message(1, out + Number(3, type));
}

// <unk>, <s>, </s>, then a few pieces; model_type 1: unigram, 2: BPE.
std::string SentencepieceFile(uint64_t model_type) {
  return Piece("<unk>", 0, 2) + Piece("<s>", 0, 3) + Piece("</s>", 0, 3) + Piece("▁", -3, 1) +
         Piece("a", -2, 1) + Piece("b", -2, 1) + Piece("▁a", -1, 1) + Piece("ab", -1.5f, 5) +
         Piece("<x>", 0, 4) + Message(2, Number(3, model_type)) + Message(3, Number(4, 1));
}

std::vector<int64_t> IdsOf(const std::vector<Token>& tokens) {
  std::vector<int64_t> ids;
  for (const Token& token : tokens) ids.push_back(token.id);
  return ids;
}

TEST(Sentencepiece, EncodesAndDecodes) {
  for (const uint64_t model_type : {1, 2}) {
    auto spec = SentencepieceSpec::Parse(SentencepieceFile(model_type));
    ASSERT_TRUE(spec.ok()) << spec.status().message();
    const auto model = Sentencepiece::Make(std::move(*spec));
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::vector<Token> tokens = (*model)->Encode(" a  b<x>cc ");
    EXPECT_THAT(IdsOf(tokens), ElementsAre(6, 3, 5, 8, 0)) << model_type;
    EXPECT_EQ(tokens[0].begin, 1u);
    EXPECT_EQ(tokens[3].begin, 5u);
    const auto text = (*model)->Decode({1, 6, 3, 5, 8, 0, 2});
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(*text, "a b<x> \u2047 ");
    EXPECT_EQ((*model)->Decode({9}).status().code(), StatusCode::kInvalidArgument);
  }
}

TEST(Sentencepiece, MakesUnusedPiecesOfTheirPartsAgain) {
  auto spec = SentencepieceSpec::Parse(SentencepieceFile(2));
  ASSERT_TRUE(spec.ok());
  const auto model = Sentencepiece::Make(std::move(*spec));
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(IdsOf((*model)->Encode("bab")), ElementsAre(3, 5, 4, 5)) << "ab is there, but unused";
}

TEST(Sentencepiece, SurvivesChangedFiles) {
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    std::string file =
        SentencepieceFile(1 + random() % 4) + Message(3, Message(2, std::string(24, '\x08')));
    file[random() % file.size()] = static_cast<char>(random() % 256);
    file[random() % file.size()] = static_cast<char>(random() % 256);
    auto spec = SentencepieceSpec::Parse(file);
    if (!spec.ok()) continue;
    const auto model = Sentencepiece::Make(std::move(*spec));
    if (!model.ok()) continue;
    (void)(*model)->Encode(" a  b<x>cc \xff\xe2 ");
    (void)(*model)->Decode({0, 1, 2, 3, 4, 5, 6, 7, 8});
  }
}

}  // namespace
}  // namespace onnxd
