#include "server/http/json_number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

namespace onnxd {
namespace {

std::optional<double> Read(const std::string& text) {
  static simdjson::ondemand::parser parser;
  const simdjson::padded_string padded("[" + text + "]");
  auto document = parser.iterate(padded);
  for (auto element : document.get_array()) {
    double number = -1;
    simdjson::ondemand::value value;
    if (element.get(value) != simdjson::SUCCESS) return std::nullopt;
    return ReadDouble(value, number) ? std::optional(number) : std::nullopt;
  }
  return std::nullopt;
}

TEST(JsonNumber, IsTheNearestDoubleHoweverLong) {
  for (const char* text :
       {"0.1000000000000000055511151231257827", "0.10000000000000000555",
        "0.30000000000000000000e1", "0.00009882620902160508082788",
        "1.0000000000000000055511151231257827", "-0.0", "-0.99999999999999999999999",
        "12345678901234567890123456789", "1e-400", "2.5e-324",
        "0.00000000000000000000000000000000000000000000000001", "1.7976931348623157e308",
        "9007199254740993", "9007199254740993.0000000000000000000000000000001",
        "0.1000000000000000055511151231257827 \n"}) {
    const auto read = Read(text);
    ASSERT_TRUE(read) << text;
    EXPECT_EQ(*read, std::strtod(text, nullptr)) << text;
    EXPECT_EQ(std::signbit(*read), text[0] == '-') << text;
  }
}

TEST(JsonNumber, AgreesWithTheLibraryOnTextsOfAnyLength) {
  std::mt19937 random(1);
  const auto digits = [&random](int count, std::string& text) {
    while (count-- > 0) text += static_cast<char>('0' + random() % 10);
  };
  for (int i = 0; i < 200'000; ++i) {
    std::string text = random() % 2 ? "-" : "";
    text += static_cast<char>('0' + random() % 10);
    if (text.back() != '0') digits(static_cast<int>(random() % 25), text);
    text += '.';
    if (random() % 2) text += std::string(random() % 25, '0');
    digits(1 + static_cast<int>(random() % 30), text);
    if (random() % 3 == 0) text += "e" + std::to_string(static_cast<int>(random() % 700) - 350);
    const double wanted = std::strtod(text.c_str(), nullptr);
    const auto read = Read(text);
    ASSERT_EQ(read.has_value(), std::isfinite(wanted)) << text;
    if (read) {
      ASSERT_EQ(*read, wanted) << text;
    }
  }
}

TEST(JsonNumber, IsBeyondAllDoublesOnlyWhereItIsANumber) {
  for (const char* text : {"1e400", "-1e400", "1e400 \n"}) EXPECT_TRUE(IsBeyondDoubles(text));
  for (const char* text : {"1", "01", "1.", "1e400x", "-", "", "x"}) {
    EXPECT_FALSE(IsBeyondDoubles(text)) << text;
  }
}

}  // namespace
}  // namespace onnxd
