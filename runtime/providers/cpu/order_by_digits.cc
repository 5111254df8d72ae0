#include "runtime/providers/cpu/order_by_digits.h"

#include <algorithm>
#include <array>
#include <utility>

namespace onnxd {
namespace {

constexpr int kDigitBits = 11, kKeyBits = 32;
constexpr int kTopShift = 2 * kKeyBits - kDigitBits;  // of an entry: a key, and its index below it
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr int64_t kMostCompared = 512;  // so few are sorted by comparing

using Counts = std::array<uint32_t, kDigits>;

size_t DigitOf(uint64_t entry, int shift) { return (entry >> shift) & (kDigits - 1); }

// Of entries, those whose top digit is at most that of the `count`th; how many they are.
int64_t KeepFirst(uint64_t* entries, int64_t extent, int64_t count, const Counts& by_top_digit) {
  int64_t kept = 0;
  size_t digit = 0;
  for (; kept < count; ++digit) kept += by_top_digit[digit];
  if (kept == extent) return kept;
  int64_t to = 0;
  for (int64_t i = 0; i < extent; ++i) {
    entries[to] = entries[i];
    to += DigitOf(entries[i], kTopShift) < digit ? 1 : 0;
  }
  return kept;
}

// Moves entries in order of the digit at `shift`, those of equal ones as they were; false: they
// have all the same, and stay.
bool MoveByDigit(const uint64_t* from, uint64_t* to, int64_t n, int shift) {
  Counts places{};
  for (int64_t i = 0; i < n; ++i) ++places[DigitOf(from[i], shift)];
  if (places[DigitOf(from[0], shift)] == static_cast<uint32_t>(n)) return false;
  uint32_t before = 0;
  for (uint32_t& place : places) before += std::exchange(place, before);
  for (int64_t i = 0; i < n; ++i) to[places[DigitOf(from[i], shift)]++] = from[i];
  return true;
}

}  // namespace

void OrderByDigits(const float* x, int64_t extent, int64_t stride, bool largest, int64_t count,
                   uint64_t* scratch, int64_t* order) {
  if (count == 0) return;
  uint64_t *from = scratch, *to = scratch + extent;
  Counts by_top_digit{};
  for (int64_t i = 0; i < extent; ++i) {
    const auto key = static_cast<uint32_t>(OrderOf(x[i * stride], largest)) ^ (uint32_t{1} << 31);
    from[i] = uint64_t{key} << kKeyBits | static_cast<uint64_t>(i);
    ++by_top_digit[DigitOf(from[i], kTopShift)];
  }
  const int64_t n = KeepFirst(from, extent, count, by_top_digit);
  if (n <= kMostCompared) {
    std::sort(from, from + n);
  } else {
    for (int shift = kKeyBits; shift < 2 * kKeyBits; shift += kDigitBits) {
      if (MoveByDigit(from, to, n, shift)) std::swap(from, to);
    }
  }
  for (int64_t i = 0; i < count; ++i) order[i] = static_cast<int64_t>(from[i] & 0xffffffff);
}

}  // namespace onnxd
