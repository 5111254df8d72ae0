#include "server/http/plain_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

namespace onnxd {
namespace {

std::optional<double> Read(const std::string& text) {
  double number = -1;
  const std::string padded = text + std::string(kPlainNumberReads, '7');
  return ReadPlainNumber(padded.data(), number) ? std::optional(number) : std::nullopt;
}

TEST(PlainNumber, IsTheNearestDouble) {
  for (const char* text :
       {"0", "-0", "-0.0", "7", "-7", "10", "1234567", "0.1", "0.3", "5.1", "-1234567.12345678",
        "0.00000001", "0.000000000001", "9.007199254740", "3.141592653589", "9999999.99999999"}) {
    const auto read = Read(std::string(text) + ",");
    ASSERT_TRUE(read) << text;
    const double wanted = std::strtod(text, nullptr);
    EXPECT_EQ(*read, wanted) << text;
    EXPECT_EQ(std::signbit(*read), std::signbit(wanted)) << text;  // -0 is not 0
  }
}

TEST(PlainNumber, AgreesWithTheLibraryOnAMillionTexts) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> digits(1, 7), decimals(0, 12), digit('0', '9');
  int read = 0;
  for (int i = 0; i < 1'000'000; ++i) {
    std::string text = random() % 2 ? "-" : "";
    const int whole = digits(random), after = decimals(random);
    for (int j = 0; j < whole; ++j) text += static_cast<char>(digit(random));
    if (after > 0) text += '.';
    for (int j = 0; j < after; ++j) text += static_cast<char>(digit(random));
    const auto number = Read(text + "]");
    if (!number) continue;
    ++read;
    ASSERT_EQ(*number, std::strtod(text.c_str(), nullptr)) << text;
  }
  EXPECT_GT(read, 600'000);
}

TEST(PlainNumber, LeavesTheRestToOthers) {
  for (const char* text : {"",
                           ",",
                           "-",
                           "-,",
                           "+1,",
                           ".5,",
                           "1.,",
                           "01,",
                           "-01,",
                           "00.5,",
                           "1e5,",
                           "1.5E1,",
                           "12345678,",
                           "1.1234567890123,",
                           "9999999.999999999999,",
                           "1a,",
                           "1.5x,",
                           "1_000,",
                           "NaN,",
                           "0x1,",
                           "1\"",
                           "1:",
                           "1/",
                           "\x80",
                           "1\xff",
                           "1\xac",
                           "--1,",
                           "1-,",
                           "1.-5,",
                           "1..5,"}) {
    EXPECT_FALSE(Read(text)) << text;
  }
}

TEST(PlainNumber, EndsWhereAnElementEnds) {
  for (const char* end : {",", "]", "}", " ", "\n", "\r", "\t"}) {
    EXPECT_EQ(Read(std::string("2.5") + end), 2.5) << end;
    EXPECT_EQ(Read(std::string("25") + end), 25) << end;
  }
}

}  // namespace
}  // namespace onnxd
