#include "server/inference/base64.h"

#include <gtest/gtest.h>

#include <random>

namespace onnxd {
namespace {

// Source: RFC 4648, 10.
TEST(Base64, AgreesWithTheVectorsOfItsStandard) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [bytes, text] : vectors) {
    EXPECT_EQ(EncodeBase64(bytes), text);
    EXPECT_EQ(DecodeBase64(text), bytes);
  }
}

TEST(Base64, ReadsWhatItWrote) {
  std::mt19937 random(1);
  for (size_t size = 0; size < 300; ++size) {
    std::string bytes(size, ' ');
    for (char& c : bytes) c = static_cast<char>(random());
    EXPECT_EQ(DecodeBase64(EncodeBase64(bytes)), bytes) << size;
  }
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* bad : {"Z", "Zg", "Zg=", "Zg===", "=", "====", "Z===", "Zm=v", " Zg=", "Zg==\n",
                          "Zm8-", "Zm8_", "Zm9vZg", "\xc3\xa9=="}) {
    EXPECT_FALSE(DecodeBase64(bad)) << bad;
  }
}

}  // namespace
}  // namespace onnxd
