// Attention's operands that come with the data.
#include <limits>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// Attention-24: how many of the keys are no padding comes with the data, and may be anything.
TEST(Attention, CountsOfKeysKeepToTheirRange) {
  const Tensor queries = Floats(Shape{1, 1, 1, 2}, {1, 2}), none;
  const Tensor keys = Floats(Shape{1, 1, 3, 2}, {1, 0, 0, 1, 1, 1});
  const auto attend = [&](int64_t count) {
    return Elements(RunOp("Attention",
                          {queries, keys, keys, none, none, none, Ints(Shape{1}, {count})},
                          With({{"is_causal", int64_t{1}}}), {.opset = 24}));
  };
  EXPECT_EQ(attend(std::numeric_limits<int64_t>::max()), attend(3));
  EXPECT_EQ(attend(std::numeric_limits<int64_t>::min()), attend(0));
  EXPECT_NE(attend(3), attend(2));
}

}  // namespace
}  // namespace onnxd
