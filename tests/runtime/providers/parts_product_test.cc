// Products of many rows of floats with a constant matrix: where the processor has tiles they are
// made of bfloat16 parts (parts_product.h), elsewhere oneDNN or plain loops compute the same.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "runtime/base/str_cat.h"
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

// gelu(x w + b + z).
TestModel Product(const Sizes& s, Tensor w) {
  TestModel model(20);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), s.k})
      .Input("z", DataType::kFloat, {Dimension::Symbol("rows"), s.n})
      .Constant("w", std::move(w))
      .Constant("b", Waves(Shape{s.n}, 0.5f, 0.7f))
      .Node("MatMul", {"x", "w"}, {"p"})
      .Node("Add", {"p", "b"}, {"q"})
      .Node("Add", {"q", "z"}, {"r"})
      .Node("Gelu", {"r"}, {"y"})
      .Output("y");
  return model;
}

TEST(PartsProduct, AgreesWithThePlainKernel) {
  for (const Sizes& s :
       {Sizes{48, 256, 64}, {50, 257, 100}, {130, 2100, 96}, {300, 768, 65}, {600, 300, 200}}) {
    const TestModel model = Product(s, Waves(Shape{s.k, s.n}, 0.05f, 0.1f));
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(StrCat(s.m, " ", s.k, " ", s.n, " on ", threads));
      ExpectSameResults(model, {Waves(Shape{s.m, s.k}, 1, 0.9f), Waves(Shape{s.m, s.n}, 1, 0.4f)},
                        threads);
    }
  }
}

// Runs x [m, k] * w at `disable` and `all`.
void ExpectSameProduct(const Sizes& s, const Tensor& x, const Tensor& w) {
  TestModel model;
  model.Input("x", DataType::kFloat, {s.m, s.k}).Constant("w", w);
  model.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  const auto plain = model.Load(OptimizationLevel::kDisable), fast = model.Load();
  ASSERT_TRUE(plain.ok() && fast.ok());
  const auto a = (*plain)->Run(std::vector<Value>{x}, {}),
             b = (*fast)->Run(std::vector<Value>{x}, {});
  ASSERT_TRUE(a.ok() && b.ok());
  for (int64_t i = 0; i < s.m * s.n; ++i) {
    const float wanted = (*a)[0].tensor().data<float>()[i], got = (*b)[0].tensor().data<float>()[i];
    if (std::isnan(wanted) || std::isinf(wanted)) {
      ASSERT_EQ(std::isnan(wanted), std::isnan(got)) << i;
      ASSERT_TRUE(std::isnan(wanted) || wanted == got) << i;
    } else {
      ASSERT_NEAR(wanted, got, 2e-5f * std::abs(wanted) + 1e-6f * std::abs(wanted + got)) << i;
    }
  }
}

// Numbers whose parts would be lost or would be no numbers: rows, and columns, of these alone.
TEST(PartsProduct, TakesTinyHugeAndNonFiniteNumbers) {
  const Sizes s{64, 256, 160};
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float odd : {1e-30f, 1e-25f, 0.0f, 3e37f, 2e38f, infinity, -infinity,
                          std::numeric_limits<float>::quiet_NaN()}) {
    SCOPED_TRACE(odd);
    // Positive, so that sums are as large as what is added.
    Tensor x = Waves(Shape{s.m, s.k}, 0.4f, 0.9f), w = Waves(Shape{s.k, s.n}, 0.04f, 0.2f);
    for (Tensor* tensor : {&x, &w}) {
      for (int64_t i = 0; i < tensor->ElementCount(); ++i) {
        tensor->mutable_data<float>()[i] = std::abs(tensor->data<float>()[i]) + 0.01f;
      }
    }
    Tensor odd_row = x;
    for (int64_t j = 0; j < s.k; ++j) odd_row.mutable_data<float>()[7 * s.k + j] = odd;
    ExpectSameProduct(s, odd_row, w);
    Tensor odd_column = w;
    for (int64_t p = 0; p < s.k; ++p) odd_column.mutable_data<float>()[p * s.n + 100] = odd;
    ExpectSameProduct(s, x, odd_column);
  }
}

}  // namespace
}  // namespace onnxd
