// Overlaps of boxes, with every instruction set that this processor has, against plain arithmetic.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "runtime/math/simd.h"
#include "tests/support/every_simd.h"

namespace onnxd::math {
namespace {

class EverySimdOnBoxes : public WithSimd {};

float Overlap(const Box& a, const Box& b) {
  const float height = std::min(a.y2, b.y2) - std::max(a.y1, b.y1);
  const float width = std::min(a.x2, b.x2) - std::max(a.x1, b.x1);
  if (height <= 0 || width <= 0) return 0;
  const float common = height * width;
  const float whole = (a.y2 - a.y1) * (a.x2 - a.x1) + (b.y2 - b.y1) * (b.x2 - b.x1) - common;
  return whole <= 0 ? 0 : common / whole;
}

struct Columns {
  std::vector<float> y1, x1, y2, x2, areas;

  explicit Columns(const std::vector<Box>& boxes) {
    for (const Box& box : boxes) {
      y1.push_back(box.y1);
      x1.push_back(box.x1);
      y2.push_back(box.y2);
      x2.push_back(box.x2);
      areas.push_back((box.y2 - box.y1) * (box.x2 - box.x1));
    }
  }
  BoxColumns get() const { return {y1.data(), x1.data(), y2.data(), x2.data(), areas.data()}; }
};

// Corners on a grid of quarters, so that touching and equal boxes are among them.
Box RandomBox(std::mt19937& random) {
  const auto corner = [&] { return static_cast<float>(random() % 40) / 4; };
  const float y = corner(), x = corner();
  return {y, x, y + static_cast<float>(random() % 12) / 4,
          x + static_cast<float>(random() % 12) / 4};
}

TEST_P(EverySimdOnBoxes, FindsWhatOverlapsMoreThanTheThreshold) {
  std::mt19937 random(1);
  int found = 0, missed = 0;
  for (int64_t n = 0; n < 70; ++n) {
    std::vector<Box> boxes(static_cast<size_t>(n));
    for (Box& box : boxes) box = RandomBox(random);
    const Columns columns(boxes);
    for (const float threshold : {0.0f, 0.3f, 0.5f, 0.9f}) {
      const Box box = RandomBox(random);
      const bool wanted = std::any_of(boxes.begin(), boxes.end(), [&](const Box& other) {
        return Overlap(box, other) > threshold;
      });
      EXPECT_EQ(CurrentSimd().any_overlap(columns.get(), n, box, threshold), wanted)
          << n << " boxes, " << threshold;
      ++(wanted ? found : missed);
    }
  }
  EXPECT_GT(found, 20);
  EXPECT_GT(missed, 20);
}

TEST_P(EverySimdOnBoxes, SeesTheLastBoxAndNoneBehindIt) {
  for (int64_t n = 1; n < 40; ++n) {
    std::vector<Box> boxes(static_cast<size_t>(n), Box{50, 50, 51, 51});
    boxes.back() = {0, 0, 2, 2};
    boxes.push_back({10, 10, 12, 12});
    const Columns columns(boxes);
    EXPECT_TRUE(CurrentSimd().any_overlap(columns.get(), n, {0, 0, 2, 1.5f}, 0.5f)) << n;
    EXPECT_FALSE(CurrentSimd().any_overlap(columns.get(), n, {10, 10, 12, 12}, 0.5f)) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, EverySimdOnBoxes, EverySimdName());

}  // namespace
}  // namespace onnxd::math
