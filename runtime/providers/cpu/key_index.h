// Which keys of a list elements are, for operators that map categories: LabelEncoder,
// OneHotEncoder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "runtime/tensor/data_type.h"

namespace onnxd {

using Key = std::variant<int64_t, double, std::string>;

// Safe for concurrent use once it is made.
class KeyIndex {
 public:
  KeyIndex() = default;
  // Of equal keys the first counts. NaN is a key like any other, and zeros of both signs are one.
  explicit KeyIndex(std::span<const Key> keys);

  // Calls found(i, place) for each of the elements from `begin` to `end`, of `type`: the place of
  // the key that it equals, -1 where there is none. Strings are looked for among strings, floats
  // among reals, and others, or with `as_integers` all numbers, among whole numbers.
  template <typename Found>
  void Find(DataType type, const void* elements, int64_t begin, int64_t end, bool as_integers,
            Found found) const;

 private:
  // Words by open addressing: half of the slots are free, three of four where words are few, and
  // the next one is tried.
  class Words {
   public:
    static constexpr size_t kFew = 4096;
    explicit Words(size_t most = 0);
    void Insert(uint64_t word, int32_t place);
    int32_t Find(uint64_t word) const {
      size_t at = SlotOf(word);
      // A free slot's word may be the one that is looked for: its place is -1 all the same.
      while ((slots_[at].word != word) & (slots_[at].place >= 0))
        at = (at + 1) & (slots_.size() - 1);
      return slots_[at].word == word ? slots_[at].place : -1;
    }

   private:
    struct Slot {
      uint64_t word = 0;
      int32_t place = -1;
    };
    // Fibonacci hashing (Knuth, "The Art of Computer Programming", volume 3, 6.4), twice around a
    // number of this process, so that no file can name words that all want one slot.
    size_t SlotOf(uint64_t word) const {
      constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;
      const uint64_t mixed = (word ^ seed_) * kGolden;
      return ((mixed ^ mixed >> 32) * kGolden) >> shift_;
    }

    std::vector<Slot> slots_;
    int shift_;
    uint64_t seed_;
  };

  template <typename T>
  static size_t CountOf(std::span<const Key> keys);
  static uint64_t WordOf(double real);
  // So many elements at a time, from `first` on: themselves, or converted to `out`.
  static constexpr int64_t kChunk = 512;
  static const int64_t* Integers(DataType type, const void* elements, int64_t first, int64_t count,
                                 int64_t* out);
  static const double* Reals(DataType type, const void* elements, int64_t first, int64_t count,
                             double* out);

  Words integers_, reals_;
  std::unordered_map<std::string, int32_t> texts_;
};

template <typename Found>
void KeyIndex::Find(DataType type, const void* elements, int64_t begin, int64_t end,
                    bool as_integers, Found found) const {
  if (type == DataType::kString) {
    const auto* texts = static_cast<const std::string*>(elements);
    for (int64_t i = begin; i < end; ++i) {
      const auto at = texts_.find(texts[i]);
      found(i, at == texts_.end() ? -1 : at->second);
    }
    return;
  }
  const bool are_reals = IsFloatingPoint(type) && !as_integers;
  for (int64_t first = begin; first < end; first += kChunk) {
    const int64_t some = std::min(kChunk, end - first);
    if (are_reals) {
      double converted[kChunk];
      const double* const reals = Reals(type, elements, first, some, converted);
      for (int64_t i = 0; i < some; ++i) found(first + i, reals_.Find(WordOf(reals[i])));
    } else {
      int64_t converted[kChunk];
      const int64_t* const integers = Integers(type, elements, first, some, converted);
      for (int64_t i = 0; i < some; ++i) {
        found(first + i, integers_.Find(static_cast<uint64_t>(integers[i])));
      }
    }
  }
}

}  // namespace onnxd
