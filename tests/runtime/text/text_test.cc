#include <gmock/gmock.h>

#include "runtime/text/byte_pair_encoding.h"
#include "runtime/text/merge_symbols.h"
#include "runtime/text/normalizers.h"
#include "runtime/text/pre_tokenizers.h"
#include "runtime/text/prefix_tree.h"
#include "runtime/text/unigram.h"
#include "runtime/text/word_piece.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

std::string Utf8(const AlignedText& text) {
  EncodedPart part;
  part.Assign(text, 0, text.size());
  return part.bytes;
}

std::string Normalized(const Normalizer& normalizer, std::string_view text) {
  AlignedText aligned = AlignedText::From(text);
  normalizer(aligned);
  return Utf8(aligned);
}

std::vector<std::string> PiecesOf(const PreTokenizer& pre_tokenizer, std::string_view text) {
  Pieces pieces = {AlignedText::From(text), {}, true};
  pieces.ranges = {{0, pieces.text.size()}};
  pre_tokenizer(pieces);
  std::vector<std::string> out;
  for (const Range range : pieces.ranges)
    out.push_back(Utf8(pieces.text.Part(range.begin, range.end)));
  return out;
}

std::vector<int64_t> IdsOf(const SubwordModel& model, std::string_view piece) {
  std::vector<Token> tokens;
  model.Encode(piece, tokens);
  std::vector<int64_t> ids;
  for (const Token& token : tokens) ids.push_back(token.id);
  return ids;
}

TEST(Unicode, ReadsBytesThatAreNoUtf8AsOneCharacterEach) {
  const std::string text = "a\xff\xc3(\xe2\x82";
  std::vector<char32_t> characters;
  for (size_t at = 0; at < text.size();) {
    const auto [value, bytes] = CodePointAt(text, at);
    characters.push_back(value);
    at += bytes;
  }
  EXPECT_THAT(characters, ElementsAre(U'a', 0xfffd, 0xfffd, U'(', 0xfffd, 0xfffd));
}

TEST(Unicode, ChangesTheCaseOfLettersAndLeavesOtherBytes) {
  EXPECT_EQ(Lower("AÉΣ\xff"), "aéσ\xff");
  EXPECT_EQ(Upper("aéσ\xff"), "AÉΣ\xff");
}

TEST(Unicode, HasFourNormalForms) {
  EXPECT_EQ(Normalized(Form(NormalForm::kNfd), "é각"), "e\u0301\u1100\u1161\u11a8");
  EXPECT_EQ(Normalized(Form(NormalForm::kNfc), "e\u0301\u1100\u1161\u11a8"), "é각");
  EXPECT_EQ(Normalized(Form(NormalForm::kNfkc), "ﬁ①Ａ"), "fi1A");
  EXPECT_EQ(Normalized(Form(NormalForm::kNfkd), "ﬁé"), "fie\u0301");
  // Marks are put in order before they are composed.
  EXPECT_EQ(Normalized(Form(NormalForm::kNfc), "a\u0308\u0323"), "ạ\u0308");
}

TEST(AlignedText, KnowsWhereComposedAndExpandedCharactersComeFrom) {
  AlignedText text = AlignedText::From("xe\u0301ﬁ");
  text.Normalize(NormalForm::kNfkc);
  EXPECT_EQ(Utf8(text), "xéfi");
  EXPECT_THAT(text.source,
              ElementsAre(TextSpan{0, 1}, TextSpan{1, 3}, TextSpan{3, 4}, TextSpan{3, 4}));
}

TEST(Normalizers, DoWhatTheyAreCalled) {
  EXPECT_EQ(Normalized(BertNormalizer({}), "\tÀ\u0001 色x"), " a  色 x");
  EXPECT_EQ(Normalized(Lowercase(), "İI"), "i\u0307i");
  EXPECT_EQ(Normalized(StripEnds(true, false), "  a "), "a ");
  EXPECT_EQ(Normalized(ReplaceMatches(Literal("ab"), "c"), "ababb"), "ccb");
  EXPECT_EQ(Normalized(PrependText("_"), ""), "");
}

TEST(PreTokenizers, CutWordsAsGpt2Does) {
  const PreTokenizer words = Split(Gpt2Words(), SplitBehavior::kIsolated);
  EXPECT_THAT(PiecesOf(words, "I'm 12  x's!\n "),
              ElementsAre("I", "'m", " 12", " ", " x", "'s", "!", "\n "));
  EXPECT_THAT(PiecesOf(words, ""), IsEmpty());
}

TEST(PreTokenizers, ReadExpressionsOverUnicode) {
  const auto matcher = Expression(R"(\p{N}{1,3}|\s+(?!\S)|\s+|\S+)");
  ASSERT_TRUE(matcher.ok()) << matcher.status().message();
  EXPECT_THAT(PiecesOf(Split(*matcher, SplitBehavior::kIsolated), "1234 \u3000 é"),
              ElementsAre("123", "4", " \u3000", " ", "é"));
  EXPECT_EQ(Expression("a(?!b)").status().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(Expression(R"([\S])").status().code(), StatusCode::kUnimplemented);
}

TEST(PreTokenizers, MergeWhatMatchesAsTheirBehaviorSays) {
  const auto cut = [](SplitBehavior behavior) {
    return PiecesOf(Split(Literal("-"), behavior), "a--b-c");
  };
  EXPECT_THAT(cut(SplitBehavior::kRemoved), ElementsAre("a", "b", "c"));
  EXPECT_THAT(cut(SplitBehavior::kIsolated), ElementsAre("a", "-", "-", "b", "-", "c"));
  EXPECT_THAT(cut(SplitBehavior::kMergedWithPrevious), ElementsAre("a-", "-", "b-", "c"));
  EXPECT_THAT(cut(SplitBehavior::kMergedWithNext), ElementsAre("a", "-", "-b", "-c"));
  EXPECT_THAT(cut(SplitBehavior::kContiguous), ElementsAre("a", "--", "b", "-", "c"));
}

TEST(PrefixTree, FindsTheLongest) {
  const auto tree = PrefixTree::Make({{"a", 1}, {"abc", 2}, {"b", 3}, {"a", 4}});
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->Longest("abcd", 0).number, 2);
  EXPECT_EQ(tree->Longest("abd", 0).number, 4) << "of equal texts the last counts";
  EXPECT_EQ(tree->Longest("abd", 1).bytes, 1u);
  EXPECT_EQ(tree->Longest("c", 0).number, PrefixTree::kNone);
  EXPECT_EQ(PrefixTree::Make({{"", 1}}).status().code(), StatusCode::kInvalidArgument);
  const std::string long_text(PrefixTree::kMostBytes + 1, 'a');
  EXPECT_EQ(PrefixTree::Make({{long_text, 1}}).status().code(), StatusCode::kInvalidArgument);
}

TEST(WordPiece, TakesTheLongestAndElseTheWholeWordAsUnknown) {
  WordPieceOptions options;
  options.unknown = 9;
  options.most_characters = 8;
  const auto model = WordPiece::Make({{"un", 1}, {"##able", 2}, {"##a", 3}, {"una", 4}}, options);
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(IdsOf(**model, "unable"), ElementsAre(9)) << "una leaves ble, which is no token";
  EXPECT_THAT(IdsOf(**model, "unaable"), ElementsAre(4, 2));
  EXPECT_THAT(IdsOf(**model, "unaaaaaaa"), ElementsAre(9)) << "nine characters";
  EXPECT_THAT(IdsOf(**model, "able"), ElementsAre(9));
}

std::shared_ptr<Vocabulary> VocabularyOf(std::initializer_list<const char*> tokens) {
  auto vocabulary = std::make_shared<Vocabulary>();
  int64_t id = 0;
  for (const char* token : tokens) vocabulary->Set(token, id++);
  return vocabulary;
}

TEST(BytePairEncoding, MergesWhatWasLearnedFirst) {
  const auto model = BytePairEncoding::Make(VocabularyOf({"a", "b", "c", "ab", "bc", "abc"}),
                                            {{"b", "c"}, {"a", "b"}, {"a", "bc"}}, {});
  EXPECT_THAT(IdsOf(*model, "abc"), ElementsAre(5));
  EXPECT_THAT(IdsOf(*model, "abab"), ElementsAre(3, 3));
  EXPECT_THAT(IdsOf(*model, "axb"), ElementsAre(3)) << "what is unknown is left out";
}

TEST(BytePairEncoding, SaysWhatIsUnknown) {
  BytePairOptions options;
  options.unknown = 7;
  const auto vocabulary = VocabularyOf({"a", "<0xC3>", "<0xA9>"});
  EXPECT_THAT(IdsOf(*BytePairEncoding::Make(vocabulary, {}, options), "xxa"), ElementsAre(7, 7, 0));
  options.fuse_unknown = true;
  EXPECT_THAT(IdsOf(*BytePairEncoding::Make(vocabulary, {}, options), "xxa"), ElementsAre(7, 0));
  options.byte_fallback = true;
  EXPECT_THAT(IdsOf(*BytePairEncoding::Make(vocabulary, {}, options), "éa"), ElementsAre(1, 2, 0));
}

TEST(BytePairEncoding, TakesNoLongerThanItsTextIsLong) {
  std::string text(1 << 18, 'a');
  const auto model =
      BytePairEncoding::Make(VocabularyOf({"a", "aa", "aaaa"}), {{"a", "a"}, {"aa", "aa"}}, {});
  EXPECT_EQ(IdsOf(*model, text).size(), text.size() / 4);
}

TEST(Unigram, TakesTheLikeliestWay) {
  const std::vector<UnigramPiece> pieces = {{"<unk>", 0, false, false},
                                            {"a", -1, true, false},
                                            {"b", -1, true, false},
                                            {"ab", -1.5f, true, false},
                                            {"abb", -9, true, false}};
  const auto model = Unigram::Make(pieces, {0, false});
  ASSERT_TRUE(model.ok());
  EXPECT_THAT(IdsOf(**model, "abb"), ElementsAre(3, 2));
  EXPECT_THAT(IdsOf(**model, "axyb"), ElementsAre(1, 0, 2))
      << "neighbours that are unknown are one";
}

}  // namespace
}  // namespace onnxd
