// Numbers of JSON as most are written: some digits, perhaps a point and more, and no exponent.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace onnxd {

// Up to eight digits at once: how many a number has cannot be foreseen, so a branch for each would
// be guessed wrong. Source: Lemire, "Number parsing at a gigabyte per second", 2021
class EightDigits {
 public:
  explicit EightDigits(const char* text) {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(&digits_, text, sizeof(digits_));
    digits_ ^= 0x3030303030303030u;
    // The high bit of the first byte over 9; what follows it does not matter.
    const uint64_t others = ((digits_ + 0x7676767676767676u) | digits_) & 0x8080808080808080u;
    bits_ = others == 0 ? 64 : static_cast<unsigned>(std::countr_zero(others)) & ~7u;
  }

  // Digits before the first other character.
  unsigned count() const { return bits_ / 8; }
  // Their number.
  uint64_t value() const {
    const unsigned half = 32 - bits_ / 2;
    uint64_t digits = digits_ << half << half;  // zeros before them
    digits = digits * 10 + (digits >> 8);
    return ((digits & 0x000000ff000000ffu) * 0x000f424000000064u +
            ((digits >> 16) & 0x000000ff000000ffu) * 0x0000271000000001u) >>
           32;
  }

 private:
  uint64_t digits_;
  unsigned bits_;
};

constexpr size_t kPlainNumberReads = 32;  // characters, at most

// False where it is none, is followed by anything but white space or the end of an element, or is
// not exactly the quotient of two doubles: then it says nothing about the text. Else `to` is the
// nearest double. `text` must be readable for kPlainNumberReads characters.
// Source: RFC 8259, section 6; Clinger, "How to read floating point numbers accurately", 1990
[[gnu::always_inline]] inline bool ReadPlainNumber(const char* text, double& to) {
  static constexpr std::array<double, 13> kPowers = {1e0, 1e1, 1e2, 1e3,  1e4,  1e5, 1e6,
                                                     1e7, 1e8, 1e9, 1e10, 1e11, 1e12};
  static constexpr std::array<uint64_t, 9> kShifts = {
      1, 10, 100, 1'000, 10'000, 100'000, 1'000'000, 10'000'000, 100'000'000};
  const bool negative = *text == '-';
  text += negative;
  uint64_t number = static_cast<uint8_t>(*text - '0');
  if (number > 9) return false;
  ++text;
  if (*text != '.' && number > 0) [[unlikely]] {
    const EightDigits more(text);
    if (more.count() > 6) return false;
    number = number * kShifts[more.count()] + more.value();
    text += more.count();
  }
  unsigned decimals = 0;
  if (*text == '.') [[likely]] {
    const EightDigits first(++text);
    text += first.count();
    const EightDigits second(text);  // none where the first are fewer than eight
    text += second.count();
    if (first.count() == 0 || second.count() > 4) return false;
    decimals = first.count() + second.count();
    number = number * kShifts[first.count()] + first.value();
    number = number * kShifts[second.count()] + second.value();
  }
  // Bits 9, 10, 13, 32 and 44: white space and the comma.
  constexpr uint64_t kEnds = 0x0000100100002600u;
  const auto next = static_cast<uint8_t>(*text);
  const bool ends = next < 64 ? (kEnds >> next & 1) != 0 : next == ']' || next == '}';
  if (!ends || number > uint64_t{1} << 53) return false;
  const double quotient = static_cast<double>(static_cast<int64_t>(number)) / kPowers[decimals];
  const uint64_t sign = static_cast<uint64_t>(negative) << 63;
  to = std::bit_cast<double>(std::bit_cast<uint64_t>(quotient) | sign);
  return true;
}

}  // namespace onnxd
