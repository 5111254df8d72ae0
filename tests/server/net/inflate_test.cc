#include "server/net/inflate.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

const std::function<bool(int64_t)> kAdmitAll = [](int64_t) { return true; };

TEST(Inflate, GivesBackWhatWasDeflated) {
  for (const auto compression : {Compression::kGzip, Compression::kZlib}) {
    for (const size_t size : {size_t{0}, size_t{1}, size_t{64 * 1024}, size_t{1'000'000}}) {
      std::string text(size, 'a');
      for (size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i * 31);
      const std::string packed = Deflate(text, compression);
      const auto back = Inflate(packed, compression, static_cast<int64_t>(size), kAdmitAll);
      ASSERT_TRUE(back.ok()) << back.status().ToString();
      EXPECT_EQ(*back, text);
    }
  }
}

TEST(Inflate, StopsAtTheLimitAndAsksForWhatItTakes) {
  const std::string bomb = Deflate(std::string(50'000'000, ' '), Compression::kGzip);
  int64_t admitted = 0;
  const std::function<bool(int64_t)> admit = [&](int64_t bytes) {
    admitted += bytes;
    return true;
  };
  EXPECT_EQ(Inflate(bomb, Compression::kGzip, 1'000'000, admit).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_LE(admitted, 1'000'001);
  const std::function<bool(int64_t)> little = [&](int64_t bytes) { return bytes <= 100'000; };
  EXPECT_EQ(Inflate(bomb, Compression::kGzip, 1 << 30, little).status().code(),
            StatusCode::kUnavailable);
}

TEST(Inflate, RefusesWhatIsMalformed) {
  const std::string packed = Deflate("some text that is long enough", Compression::kGzip);
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_EQ(Inflate(packed.substr(0, size), Compression::kGzip, 1000, kAdmitAll).status().code(),
              StatusCode::kInvalidArgument)
        << size;
  }
  EXPECT_FALSE(Inflate(packed + "x", Compression::kGzip, 1000, kAdmitAll).ok());
  EXPECT_FALSE(Inflate(packed, Compression::kZlib, 1000, kAdmitAll).ok());
}

}  // namespace
}  // namespace onnxd
