// Operators that take element by element.
#include <limits>

#include "runtime/tensor/strides.h"
#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

TEST(Elementwise, BroadcastInBothDirections) {
  const Tensor column = Floats(Shape{2, 1}, {10, 20}), row = Floats(Shape{3}, {1, 2, 3});
  EXPECT_EQ(Elements(RunOp("Add", {column, row})), (F{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(Elements(RunOp("Sub", {row, column})), (F{-9, -8, -7, -19, -18, -17}));
  EXPECT_EQ(Elements(RunOp("Max", {row, column, Floats(Shape{1}, {12})})),
            (F{12, 12, 12, 20, 20, 20}));
}

// Short rows are taken several at a time, on either side, and others where the leading axis goes
// on.
TEST(Elementwise, ARowMeetsManyRows) {
  struct Case {
    Shape many, row;
  };
  for (const Case& c : {Case{{700, 3}, {3}},
                        {{2, 700, 5}, {2, 1, 5}},
                        {{3, 2, 9, 40}, {1, 2, 1, 40}},
                        {{300, 255}, {255}},
                        {{4, 1}, {1}},
                        {{3, 2}, {2}},
                        {{5, 300}, {300}}}) {
    Tensor many = *Tensor::Create(DataType::kInt64, c.many);
    Tensor row = *Tensor::Create(DataType::kInt64, c.row);
    Tensor many_floats = *Tensor::Create(DataType::kFloat, c.many);
    Tensor row_floats = *Tensor::Create(DataType::kFloat, c.row);
    for (int64_t i = 0; i < c.many.ElementCount(); ++i) {
      many_floats.mutable_data<float>()[i] = static_cast<float>(i % 1001);
      many.mutable_data<int64_t>()[i] = i % 1001;
    }
    for (int64_t i = 0; i < c.row.ElementCount(); ++i) {
      row_floats.mutable_data<float>()[i] = static_cast<float>(i * 3);
      row.mutable_data<int64_t>()[i] = i * 3;
    }
    const auto strides = BroadcastStrides(c.row, c.many);
    const auto at = [&](int64_t i) {
      int64_t place = 0;
      for (int axis = c.many.rank(); axis-- > 0; i /= c.many[axis]) {
        place += i % c.many[axis] * strides[static_cast<size_t>(axis)];
      }
      return place * 3;
    };
    const I left = Elements<int64_t>(RunOp("Sub", {many, row})),
            right = Elements<int64_t>(RunOp("Sub", {row, many}));
    const F floats = Elements(RunOp("Sub", {many_floats, row_floats}));
    const F turned = Elements(RunOp("Sub", {row_floats, many_floats}));
    ASSERT_EQ(left.size(), static_cast<size_t>(c.many.ElementCount()));
    for (int64_t i = 0; i < c.many.ElementCount(); ++i) {
      const auto n = static_cast<size_t>(i);
      const int64_t difference = i % 1001 - at(i);
      ASSERT_EQ(left[n], difference) << c.many.ToString() << " " << i;
      ASSERT_EQ(right[n], -difference) << c.many.ToString() << " " << i;
      ASSERT_EQ(floats[n], static_cast<float>(difference)) << c.many.ToString() << " " << i;
      ASSERT_EQ(turned[n], static_cast<float>(-difference)) << c.many.ToString() << " " << i;
    }
  }
}

TEST(Elementwise, IntegerArithmeticIsDefinedEverywhere) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const Tensor a = Ints(Shape{4}, {7, -7, kMin, 5}), b = Ints(Shape{4}, {2, 2, -1, 0});
  EXPECT_EQ(Elements<int64_t>(RunOp("Div", {a, b})), (I{3, -3, kMin, 0}));
  EXPECT_EQ(Elements<int64_t>(RunOp("Mod", {a, b})), (I{1, 1, 0, 0}));
  EXPECT_EQ(Elements<int64_t>(RunOp("Mod", {a, b}, With({{"fmod", int64_t{1}}}))),
            (I{1, -1, 0, 0}));
  EXPECT_EQ(Elements<int64_t>(RunOp("Neg", {a})), (I{-7, 7, kMin, -5}));
  EXPECT_EQ(Elements<int64_t>(RunOp("Mul", {a, Ints(Shape{1}, {2})})), (I{14, -14, 0, 10}));
}

TEST(Elementwise, CastSaturatesAndTruncates) {
  const Tensor x = Floats(Shape{5}, {1.9f, -1.9f, 1e30f, -1e30f, NAN});
  EXPECT_EQ(
      Elements<int64_t>(RunOp("Cast", {x}, With({{"to", int64_t{7}}}))),
      (I{1, -1, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0}));
  const auto half = RunOp("Cast", {x}, With({{"to", int64_t{10}}}));
  ASSERT_TRUE(half.ok());
  EXPECT_EQ((*half)[0].tensor().data<Float16>()[2].bits, 0x7c00);
}

TEST(Elementwise, BoundsOfClipAreScalars) {
  const Tensor m = Floats(Shape{2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(Elements(RunOp("Clip", {m, Floats(Shape{1}, {2}), Tensor::Scalar(3.0f)})),
            (F{2, 2, 3, 3}));
  const auto refused = RunOp("Clip", {m, Tensor(), Floats(Shape{2}, {1, 2})});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

TEST(Elementwise, ShiftsBeyondTheTypeLeaveNothing) {
  const Tensor x = Tensor::Of<uint16_t>(Shape{3}, {1, 1, 0x8001}),
               by = Tensor::Of<uint16_t>(Shape{3}, {15, 16, 40000});
  const auto shifted = RunOp("BitShift", {x, by}, With({{"direction", std::string("LEFT")}}));
  ASSERT_TRUE(shifted.ok());
  const auto elements = (*shifted)[0].tensor().elements<uint16_t>();
  EXPECT_EQ(I(elements.begin(), elements.end()), (I{0x8000, 0, 0}));
}

}  // namespace
}  // namespace onnxd
