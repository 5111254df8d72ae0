#include "runtime/providers/cpu/key_index.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>

#include "runtime/tensor/convert.h"

namespace onnxd {

namespace {

uint64_t SeedOfProcess() {
  static const uint64_t seed = [] {
    std::random_device random;
    return uint64_t{random()} << 32 | random();
  }();
  return seed;
}

}  // namespace

KeyIndex::Words::Words(size_t most)
    : slots_(std::bit_ceil((most < kFew ? 4 : 2) * most + 2)),
      shift_(64 - std::countr_zero(slots_.size())),
      seed_(SeedOfProcess()) {}

void KeyIndex::Words::Insert(uint64_t word, int32_t place) {
  size_t at = SlotOf(word);
  while (slots_[at].place >= 0) {
    if (slots_[at].word == word) return;
    at = (at + 1) & (slots_.size() - 1);
  }
  slots_[at] = {word, place};
}

template <typename T>
size_t KeyIndex::CountOf(std::span<const Key> keys) {
  return static_cast<size_t>(std::count_if(
      keys.begin(), keys.end(), [](const Key& key) { return std::holds_alternative<T>(key); }));
}

KeyIndex::KeyIndex(std::span<const Key> keys)
    : integers_(CountOf<int64_t>(keys)), reals_(CountOf<double>(keys)) {
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto place = static_cast<int32_t>(i);
    if (const auto* integer = std::get_if<int64_t>(&keys[i])) {
      integers_.Insert(static_cast<uint64_t>(*integer), place);
    } else if (const auto* real = std::get_if<double>(&keys[i])) {
      reals_.Insert(WordOf(*real), place);
    } else {
      texts_.emplace(std::get<std::string>(keys[i]), place);
    }
  }
}

uint64_t KeyIndex::WordOf(double real) {
  if (std::isnan(real)) real = std::numeric_limits<double>::quiet_NaN();
  return std::bit_cast<uint64_t>(real + 0.0);  // no negative zero
}

namespace {

template <typename T>
const T* Converted(DataType type, const void* elements, int64_t first, int64_t count, T* out) {
  if (type == kDataTypeOf<T>) return static_cast<const T*>(elements) + first;
  const auto* bytes = static_cast<const std::byte*>(elements);
  ConvertElements(type, bytes + static_cast<size_t>(first) * DataTypeBits(type) / 8, kDataTypeOf<T>,
                  out, count);
  return out;
}

}  // namespace

const int64_t* KeyIndex::Integers(DataType type, const void* elements, int64_t first, int64_t count,
                                  int64_t* out) {
  return Converted(type, elements, first, count, out);
}

const double* KeyIndex::Reals(DataType type, const void* elements, int64_t first, int64_t count,
                              double* out) {
  return Converted(type, elements, first, count, out);
}

}  // namespace onnxd
