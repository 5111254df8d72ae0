#include "server/generation/text_stream.h"

#include <gmock/gmock.h>

namespace onnxd {
namespace {

using testing::ElementsAre;

std::shared_ptr<const TokenDecoder> Bytes() {
  return *ParseTokenDecoder(R"({"decoder": {"type": "ByteLevel"},
      "added_tokens": [{"id": 9, "content": "<end>", "special": true}],
      "model": {"vocab": {"a": 0, "b": 1, "Ġc": 2, "Ã": 3, "©": 4, "ab": 5}}})");
}

std::shared_ptr<const TokenDecoder> Pieces() {
  return *ParseTokenDecoder(R"({"decoder": {"type": "Metaspace", "prepend_scheme": "always"},
      "added_tokens": [{"id": 9, "content": "<end>", "special": true}],
      "model": {"vocab": {"▁a": 0, "b": 1, "▁c": 2}}})");
}

// What each token gives, and the end.
std::vector<std::string> Texts(TextStream stream, std::vector<int64_t> tokens) {
  std::vector<std::string> texts;
  for (const int64_t token : tokens) texts.push_back(stream.Add(token));
  texts.push_back(stream.Finish());
  return texts;
}

TEST(TextStream, GivesWholeCharacters) {
  EXPECT_THAT(Texts({Bytes(), {}, {}}, {0, 3, 4, 2}), ElementsAre("a", "", "\xc3\xa9", " c", ""));
  EXPECT_THAT(Texts({Bytes(), {}, {}}, {0, 3}), ElementsAre("a", "", "\xef\xbf\xbd"));
}

TEST(TextStream, GoesOnBehindThePrompt) {
  const std::vector<int64_t> prompt = {0, 1};
  EXPECT_THAT(Texts({Pieces(), prompt, {}}, {2, 1, 2}), ElementsAre(" c", "b", " c", ""));
  EXPECT_THAT(Texts({Pieces(), {}, {}}, {2, 1, 2}), ElementsAre("c", "b", " c", ""));
  EXPECT_THAT(Texts({Pieces(), prompt, {}}, {9, 2, 9, 2}), ElementsAre("", " c", "", " c", ""));
}

TEST(TextStream, CompletesACharacterThatThePromptBegan) {
  const std::vector<int64_t> prompt = {0, 3};
  EXPECT_THAT(Texts({Bytes(), prompt, {}}, {4, 1}), ElementsAre("\xc3\xa9", "b", ""));
}

TEST(TextStream, EndsBeforeATextThatEndsIt) {
  EXPECT_THAT(Texts({Bytes(), {}, {"b c"}}, {0, 1, 2, 0}), ElementsAre("a", "", "", "", ""));
  EXPECT_THAT(Texts({Bytes(), {}, {"b c"}}, {0, 1, 0, 1}), ElementsAre("a", "", "ba", "", "b"));
  EXPECT_THAT(Texts({Bytes(), {}, {"zz", "b"}}, {5, 0}), ElementsAre("a", "", ""));
  TextStream stream(Bytes(), {}, {"b"});
  EXPECT_FALSE(stream.stopped());
  stream.Add(1);
  EXPECT_TRUE(stream.stopped());
}

TEST(TextStream, WritesSpecialTokensWhereToldTo) {
  EXPECT_THAT(Texts({Bytes(), {}, {}, false}, {0, 9}), ElementsAre("a", "<end>", ""));
  EXPECT_THAT(Texts({Bytes(), {}, {}}, {0, 9}), ElementsAre("a", "", ""));
}

TEST(TextStream, DoesNotWaitForEverForACharacter) {
  TextStream stream(Bytes(), {}, {});
  std::string all;
  for (int i = 0; i < 40; ++i) all += stream.Add(3);
  EXPECT_GE(all.size(), 3U * 16);
}

}  // namespace
}  // namespace onnxd
