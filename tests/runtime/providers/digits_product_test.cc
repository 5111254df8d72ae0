// Products of many rows of floats with a constant matrix: where the processor has tiles, or they
// are emulated, they are made of digits (digits_product.h), elsewhere oneDNN or plain loops
// compute the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/convert.h"
#include "tests/support/every_simd.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

struct Sizes {
  int64_t m, k, n;
};

Tensor Waves(const Shape& shape, float scale, float phase) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * std::sin(0.37f * static_cast<float>(i) + phase);
  }
  return tensor;
}

// x w by doubles, as floats.
std::vector<double> Exact(const Sizes& s, const Tensor& x, const Tensor& w) {
  std::vector<double> sums(static_cast<size_t>(s.m * s.n));
  for (int64_t i = 0; i < s.m; ++i) {
    for (int64_t p = 0; p < s.k; ++p) {
      const double a = static_cast<double>(x.data<float>()[i * s.k + p]);
      for (int64_t j = 0; j < s.n; ++j) {
        sums[static_cast<size_t>(i * s.n + j)] +=
            a * static_cast<double>(w.data<float>()[p * s.n + j]);
      }
    }
  }
  return sums;
}

Tensor OutputOf(const TestModel& model, const std::vector<Value>& inputs, int threads) {
  SessionOptions options = DefaultSession();
  options.pool = std::make_shared<ThreadPool>(threads);
  TestModel copy = model;
  const auto session = InferenceSession::FromModel(std::move(copy.model()), std::move(options));
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  const auto outputs = (*session)->Run(inputs, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  return (*outputs)[0].tensor();
}

// As near as numbers of that type come, so that the matrix may be kept in it.
Tensor Rounded(DataType type, const Tensor& floats) {
  return std::move(Converted(*Converted(floats, type), DataType::kFloat)).value();
}

std::string_view OwnSet() { return math::CurrentSimd().name; }

// On an instruction set, of a matrix of such numbers.
class Products : public testing::TestWithParam<std::tuple<std::string_view, DataType>> {
 protected:
  void SetUp() override {
    if (!simd_.is_there()) GTEST_SKIP() << "this processor has no AVX512-VNNI";
  }

 private:
  const math::ScopedSimd simd_{std::get<0>(GetParam())};
};

TEST_P(Products, AddBiasAndResidualAndActivate) {
  for (const Sizes& s :
       {Sizes{64, 256, 192}, {70, 257, 200}, {130, 2100, 196}, {300, 768, 193}, {600, 300, 320}}) {
    const Tensor w = Rounded(std::get<1>(GetParam()), Waves(Shape{s.k, s.n}, 0.05f, 0.1f));
    const Tensor b = Waves(Shape{s.n}, 0.5f, 0.7f);
    const Tensor x = Waves(Shape{s.m, s.k}, 1, 0.9f), z = Waves(Shape{s.m, s.n}, 1, 0.4f);
    TestModel model(20);
    model.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), s.k})
        .Input("z", DataType::kFloat, {Dimension::Symbol("rows"), s.n})
        .Constant("w", w)
        .Constant("b", b)
        .Node("MatMul", {"x", "w"}, {"p"})
        .Node("Add", {"p", "b"}, {"q"})
        .Node("Add", {"q", "z"}, {"r"})
        .Node("Relu", {"r"}, {"y"})
        .Output("y");
    const std::vector<double> exact = Exact(s, x, w);
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(StrCat(s.m, " ", s.k, " ", s.n, " on ", threads));
      const Tensor y = OutputOf(model, {x, z}, threads);
      for (int64_t i = 0; i < s.m * s.n; ++i) {
        const double sum = exact[static_cast<size_t>(i)] +
                           static_cast<double>(b.data<float>()[i % s.n] + z.data<float>()[i]);
        ASSERT_NEAR(static_cast<double>(y.data<float>()[i]), std::max(sum, 0.0), 1e-5) << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Products,
                         testing::Combine(testing::Values(OwnSet(), math::kEmulatedTiles),
                                          testing::Values(DataType::kFloat, DataType::kFloat16,
                                                          DataType::kBfloat16)));

Tensor Copy(const Tensor& from) {
  Tensor copy = *Tensor::Create(from.type(), from.shape());
  std::copy_n(from.data<float>(), from.ElementCount(), copy.mutable_data<float>());
  return copy;
}

void ExpectExactProduct(const Sizes& s, const Tensor& x, const Tensor& w) {
  TestModel model;
  model.Input("x", DataType::kFloat, {s.m, s.k}).Constant("w", w);
  model.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  const Tensor y = OutputOf(model, {x}, 1);
  const std::vector<double> exact = Exact(s, x, w);
  for (int64_t i = 0; i < s.m * s.n; ++i) {
    const auto wanted = static_cast<float>(exact[static_cast<size_t>(i)]);
    const float got = y.data<float>()[i];
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(got)) << i;
    } else if (std::isinf(wanted)) {
      ASSERT_EQ(got, wanted) << i;
    } else {
      ASSERT_NEAR(wanted, got, 1e-5f * std::abs(wanted)) << i;
    }
  }
}

// Numbers whose digits would be lost or would be no numbers: rows, and columns, of these alone.
class DigitsProduct : public math::WithSimd {};

TEST_P(DigitsProduct, TakesTinyHugeAndNonFiniteNumbers) {
  const Sizes s{64, 256, 224};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {1e-36f, 1e-25f, 0.0f, 3e35f, 1e37f, 3.4e38f, infinity, -infinity,
                          std::numeric_limits<float>::quiet_NaN()}) {
    SCOPED_TRACE(odd);
    // Positive, so that sums are as large as what is added.
    Tensor x = Waves(Shape{s.m, s.k}, 0.4f, 0.9f), w = Waves(Shape{s.k, s.n}, 0.04f, 0.2f);
    for (Tensor* tensor : {&x, &w}) {
      for (int64_t i = 0; i < tensor->ElementCount(); ++i) {
        tensor->mutable_data<float>()[i] = std::abs(tensor->data<float>()[i]) + 0.01f;
      }
    }
    const auto odd_at = [&](int64_t i) { return odd * (1 - 0x1p-9f * static_cast<float>(i % 7)); };
    Tensor odd_row = Copy(x);
    for (int64_t j = 0; j < s.k; ++j) odd_row.mutable_data<float>()[7 * s.k + j] = odd_at(j);
    ExpectExactProduct(s, odd_row, w);
    Tensor odd_column = Copy(w);
    for (int64_t p = 0; p < s.k; ++p) odd_column.mutable_data<float>()[p * s.n + 100] = odd_at(p);
    ExpectExactProduct(s, x, odd_column);
    ExpectExactProduct(s, odd_row, odd_column);
    ExpectExactProduct(s, odd_row, Rounded(DataType::kBfloat16, odd_column));
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, DigitsProduct, math::EverySimdName());

}  // namespace
}  // namespace onnxd
