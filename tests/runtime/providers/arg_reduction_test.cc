#include "tests/support/every_simd.h"
#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// What ArgMax or ArgMin says over the middle axis of x[outer, extent, inner], one by one.
template <typename T>
I Expected(const Tensor& x, bool smallest, bool last) {
  const int64_t outer = x.shape()[0], extent = x.shape()[1], inner = x.shape()[2];
  I places;
  for (int64_t row = 0; row < outer; ++row) {
    for (int64_t column = 0; column < inner; ++column) {
      const T* in = x.data<T>() + row * extent * inner + column;
      int64_t place = 0;
      for (int64_t i = 1; i < extent; ++i) {
        const T value = in[i * inner], best = in[place * inner];
        if ((smallest ? value < best : value > best) || (last && value == best)) place = i;
      }
      places.push_back(place);
    }
  }
  return places;
}

template <typename T>
void Check(const Tensor& x, int threads = 1) {
  for (const bool smallest : {false, true}) {
    for (const bool last : {false, true}) {
      const auto attributes = With(
          {{"axis", int64_t{1}}, {"keepdims", int64_t{0}}, {"select_last_index", int64_t{last}}});
      const auto got = RunOp(smallest ? "ArgMin" : "ArgMax", {x}, attributes, {.threads = threads});
      EXPECT_EQ(Elements<int64_t>(got), Expected<T>(x, smallest, last))
          << x.shape().ToString() << (smallest ? ", smallest" : "") << (last ? ", last" : "");
    }
  }
}

// Few numbers, so that there are equal ones.
Tensor Draw(const Shape& shape) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  uint32_t state = 7;
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    state = state * 1664525u + 1013904223u;
    tensor.mutable_data<float>()[i] = static_cast<float>(state >> 24) - 100;
  }
  return tensor;
}

using ArgReductionWithSimd = math::WithSimd;

TEST_P(ArgReductionWithSimd, FindsThePlacesOfColumnsAndRows) {
  for (const int64_t inner : {1, 5, 16, 77, 130, 1100}) {
    for (const int64_t extent : {1, 3, 64, 65, 131}) Check<float>(Draw(Shape{2, extent, inner}));
  }
}

TEST_P(ArgReductionWithSimd, OfEqualNumbersTheFirstOrTheLastWins) {
  for (const int64_t inner : {1, 20}) {
    Check<float>(Numbers(Shape{1, 200, inner}, 0));
  }
}

TEST_P(ArgReductionWithSimd, NanWinsOnlyInTheFirstPlace) {
  for (const int64_t inner : {1, 20}) {
    for (const int64_t at : {0, 7, 150}) {
      Tensor x = Draw(Shape{1, 200, inner});
      for (int64_t c = 0; c < inner; ++c) x.mutable_data<float>()[at * inner + c] = kNan;
      Check<float>(x);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Simd, ArgReductionWithSimd, math::EverySimdName());

TEST(ArgReduction, PartsColumnsAndRowsAmongThreads) {
  Check<float>(Draw(Shape{1, 40, 5000}), 3);
  Check<float>(Draw(Shape{3000, 40, 1}), 3);
  Check<float>(Draw(Shape{5, 40, 1500}), 3);
}

TEST(ArgReduction, TakesOtherTypes) {
  Tensor x = *Tensor::Create(DataType::kInt64, Shape{2, 70, 3});
  for (int64_t i = 0; i < x.ElementCount(); ++i) x.mutable_data<int64_t>()[i] = i * i % 23;
  Check<int64_t>(x);
}

TEST(ArgReduction, AnEmptyAxisHasNoPlace) {
  const auto ran = RunOp("ArgMax", {*Tensor::Create(DataType::kFloat, Shape{2, 0})},
                         With({{"axis", int64_t{1}}}));
  EXPECT_EQ(ran.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace onnxd
