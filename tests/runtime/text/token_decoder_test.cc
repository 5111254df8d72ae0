#include "runtime/text/token_decoder.h"

#include <gmock/gmock.h>

#include <string>

namespace onnxd {
namespace {

using testing::HasSubstr;

std::shared_ptr<const TokenDecoder> Decoder(const std::string& decoder, const std::string& vocab) {
  auto made = ParseTokenDecoder(R"({"added_tokens": [{"id": 9, "content": "<s>", "special": true}],
    "decoder": )" + decoder + R"(, "model": {"vocab": )" +
                                vocab + "}}");
  EXPECT_TRUE(made.ok()) << made.status().message();
  return *made;
}

std::string Decode(const TokenDecoder& decoder, std::vector<int64_t> ids, bool skips = true) {
  return decoder.Decode(ids, skips);
}

TEST(TokenDecoder, WritesBytesOfSeveralTokensAsOneCharacter) {
  const auto bytes = Decoder(R"({"type": "ByteLevel"})", R"({"a": 0, "Ġb": 1, "Ã": 2, "©": 3})");
  EXPECT_EQ(Decode(*bytes, {0, 1, 2, 3}), "a b\xc3\xa9");
  EXPECT_EQ(Decode(*bytes, {0, 2}), "a\xef\xbf\xbd");
  EXPECT_EQ(Decode(*bytes, {3, 0}),
            "\xef\xbf\xbd"
            "a");
}

TEST(TokenDecoder, LeavesOutSpecialTokensWhereToldTo) {
  const auto words = Decoder("null", R"({"a": 0, "b": 1})");
  EXPECT_EQ(Decode(*words, {9, 0, 1}), "a b");
  EXPECT_EQ(Decode(*words, {9, 0, 1}, false), "<s> a b");
  EXPECT_EQ(Decode(*words, {0, 77, -1, 1}), "a b");
  EXPECT_EQ(Decode(*words, {}), "");
}

TEST(TokenDecoder, TakesTheStepsOfSentencepieceModels) {
  const auto llama = Decoder(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
                             R"([["▁a", 0], ["▁b", 0], ["<0xC3>", 0], ["<0xA9>", 0]])");
  EXPECT_EQ(Decode(*llama, {0, 1, 2, 3}), "a b\xc3\xa9");
  EXPECT_EQ(Decode(*llama, {0, 2, 1}), "a\xef\xbf\xbd b");
}

TEST(TokenDecoder, SaysWhatBytesATokenWrites) {
  const auto bytes = Decoder(R"({"type": "ByteLevel"})", R"({"a": 0, "Ġb": 1, "Ã": 2, "中": 3})");
  EXPECT_EQ(bytes->BytesOf(1), " b");
  EXPECT_EQ(bytes->BytesOf(2), "\xc3");
  EXPECT_EQ(bytes->BytesOf(3), "中");
  EXPECT_EQ(bytes->BytesOf(9), "<s>");
  EXPECT_EQ(bytes->BytesOf(77), "");
  const auto llama = Decoder(R"({"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})",
                             R"([["▁a", 0], ["b", 0], ["<0xC3>", 0]])");
  EXPECT_EQ(llama->BytesOf(0), " a");
  EXPECT_EQ(llama->BytesOf(1), "b");
  EXPECT_EQ(llama->BytesOf(2), "\xc3");
  const auto pieces = Decoder(R"({"type": "Metaspace"})", R"([["▁a", 0], ["b", 0]])");
  EXPECT_EQ(pieces->BytesOf(0), " a");
  EXPECT_EQ(pieces->BytesOf(1), "b");
  const auto words = Decoder(R"({"type": "WordPiece"})", R"({"a": 0, "##b": 1})");
  EXPECT_EQ(words->BytesOf(0), " a");
  EXPECT_EQ(words->BytesOf(1), "b");
}

TEST(TokenDecoder, NamesWhatIsNotThere) {
  const auto refusal = [](const std::string& json) {
    return std::string(ParseTokenDecoder(json).status().message());
  };
  EXPECT_THAT(refusal(R"({"model": {"vocab": {}}, "decoder": {"type": "Sung"}})"),
              HasSubstr("'Sung' is not there yet"));
  EXPECT_THAT(refusal(R"({"model": {}})"), HasSubstr("no vocab"));
  EXPECT_THAT(refusal(R"({"model": {"vocab": {"a": -1}}})"), HasSubstr("number -1"));
  EXPECT_THAT(refusal("["), HasSubstr("no JSON object"));
}

}  // namespace
}  // namespace onnxd
