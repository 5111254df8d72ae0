// Which key an element equals.
#include "runtime/providers/cpu/key_index.h"

#include <gtest/gtest.h>

#include <limits>

namespace onnxd {
namespace {

template <typename T>
std::vector<int32_t> Places(const KeyIndex& index, DataType type, const std::vector<T>& elements,
                            bool as_integers = false) {
  std::vector<int32_t> places(elements.size(), -7);
  index.Find(type, elements.data(), 0, static_cast<int64_t>(elements.size()), as_integers,
             [&](int64_t i, int32_t place) { places[static_cast<size_t>(i)] = place; });
  return places;
}

using Integers = std::vector<int64_t>;
using Reals = std::vector<double>;
using Texts = std::vector<std::string>;
using Expected = std::vector<int32_t>;

TEST(KeyIndex, OfEqualKeysTheFirstCounts) {
  const std::vector<Key> keys = {int64_t{7},       int64_t{-3},      int64_t{7},
                                 std::string("a"), std::string("b"), std::string("a")};
  const KeyIndex index(keys);
  EXPECT_EQ(Places(index, DataType::kInt64, Integers{7, -3, 8, 0}), (Expected{0, 1, -1, -1}));
  EXPECT_EQ(Places(index, DataType::kString, Texts{"b", "a", "", "A"}), (Expected{4, 3, -1, -1}));
}

TEST(KeyIndex, NanIsAKeyAndZerosAreOne) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<Key> keys = {1.5, kNan, -0.0};
  const KeyIndex index(keys);
  EXPECT_EQ(Places(index, DataType::kDouble, Reals{-kNan, kNan, 0.0, -0.0, 1.5, -1.5}),
            (Expected{1, 1, 2, 2, 0, -1}));
  EXPECT_EQ(Places(index, DataType::kFloat, std::vector<float>{1.5f, 1.25f}), (Expected{0, -1}));
}

TEST(KeyIndex, KindsDoNotMix) {
  const std::vector<Key> keys = {int64_t{1}, 2.0, std::string("3")};
  const KeyIndex index(keys);
  EXPECT_EQ(Places(index, DataType::kInt64, Integers{1, 2, 3}), (Expected{0, -1, -1}));
  EXPECT_EQ(Places(index, DataType::kDouble, Reals{1, 2, 3}), (Expected{-1, 1, -1}));
  EXPECT_EQ(Places(index, DataType::kString, Texts{"1", "2", "3"}), (Expected{-1, -1, 2}));
  EXPECT_EQ(Places(index, DataType::kDouble, Reals{1.9, 2, 3}, true), (Expected{0, -1, -1}));
}

// More than are converted at once, of keys whose slots are taken by others.
TEST(KeyIndex, FindsEachOfMany) {
  std::vector<Key> keys;
  Integers elements;
  Expected places;
  for (int64_t i = 0; i < 3000; ++i) {
    const int64_t key = i * (int64_t{1} << 40);
    if (i % 3 != 0) keys.emplace_back(key);
    elements.push_back(key);
    places.push_back(i % 3 == 0 ? -1 : static_cast<int32_t>(keys.size()) - 1);
  }
  EXPECT_EQ(Places(KeyIndex(keys), DataType::kInt64, elements), places);
}

// Products by the golden ratio's inverse would all begin with zeros: with one hash for all
// processes a file could make its loading take hours.
TEST(KeyIndex, HasNoWorstCaseThatAFileCanName) {
  uint64_t inverse = 1;
  for (int i = 0; i < 6; ++i) inverse *= 2 - 0x9e3779b97f4a7c15u * inverse;
  ASSERT_EQ(inverse * 0x9e3779b97f4a7c15u, 1u);
  std::vector<Key> keys;
  for (uint64_t i = 0; i < 1000000; ++i) keys.emplace_back(static_cast<int64_t>(inverse * i));
  const KeyIndex index(keys);
  EXPECT_EQ(Places(index, DataType::kInt64, Integers{0, static_cast<int64_t>(inverse * 999999)}),
            (Expected{0, 999999}));
}

TEST(KeyIndex, OfNoKeysFindsNone) {
  EXPECT_EQ(Places(KeyIndex(), DataType::kInt64, Integers{0, 1}), (Expected{-1, -1}));
  EXPECT_EQ(Places(KeyIndex(), DataType::kString, Texts{""}), (Expected{-1}));
}

}  // namespace
}  // namespace onnxd
