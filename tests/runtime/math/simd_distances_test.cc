// Distances and products of points, with every instruction set that this processor has, against
// plain arithmetic.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "runtime/math/simd.h"
#include "tests/support/every_simd.h"

namespace onnxd::math {
namespace {

class EverySimdOnPoints : public WithSimd {};

// Whole numbers, so that sums are exact.
std::vector<float> WholeNumbers(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<float> numbers(static_cast<size_t>(count));
  for (float& number : numbers) number = static_cast<float>(random() % 19) - 9;
  return numbers;
}

TEST_P(EverySimdOnPoints, AreWhatTheirSumsSay) {
  for (const int64_t rows : {1, 3, 4, 9}) {
    for (const int64_t n : {1, 7, 16, 33, 64, 131}) {
      for (const int64_t dimensions : {1, 2, 20}) {
        const auto x = WholeNumbers(rows * dimensions, 1), points = WholeNumbers(n * dimensions, 2);
        constexpr float kUntouched = -1e9f;
        const auto size = static_cast<size_t>(rows * n + 1);
        std::vector<float> distances(size, kUntouched), products(size, kUntouched);
        PointsArguments arguments{rows, n, dimensions, x.data(), points.data(), distances.data()};
        CurrentSimd().squared_distances(arguments);
        arguments.out = products.data();
        CurrentSimd().point_products(arguments);
        for (int64_t row = 0; row < rows; ++row) {
          for (int64_t i = 0; i < n; ++i) {
            float distance = 0, product = 0;
            for (int64_t d = 0; d < dimensions; ++d) {
              const float a = x[static_cast<size_t>(row * dimensions + d)];
              const float b = points[static_cast<size_t>(d * n + i)];
              distance += (a - b) * (a - b);
              product += a * b;
            }
            ASSERT_EQ(distances[static_cast<size_t>(row * n + i)], distance) << row << ", " << i;
            ASSERT_EQ(products[static_cast<size_t>(row * n + i)], product) << row << ", " << i;
          }
        }
        EXPECT_EQ(distances.back(), kUntouched);
        EXPECT_EQ(products.back(), kUntouched);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimdOnPoints, EverySimdName());

}  // namespace
}  // namespace onnxd::math
