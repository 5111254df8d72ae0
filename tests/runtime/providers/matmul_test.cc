// MatMul and Gemm against plain loops.
#include <algorithm>
#include <cmath>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// MatMul and Gemm with constant and with varying right sides, against three loops.
TEST(MatMul, AgreesWithItsDefinition) {
  for (const int64_t m : {1, 5, 33}) {
    const Tensor a = Random(Shape{2, m, 40}, 3), b = Random(Shape{40, 50}, 4);
    for (const unsigned constant : {0u, 2u}) {
      const F got = Elements(RunOp("MatMul", {a, b}, {}, {.constants = constant}));
      ASSERT_EQ(got.size(), static_cast<size_t>(2 * m * 50));
      for (int64_t row = 0; row < 2 * m; ++row) {
        for (int64_t column = 0; column < 50; ++column) {
          double wanted = 0;
          for (int64_t k = 0; k < 40; ++k) {
            wanted += static_cast<double>(a.data<float>()[row * 40 + k]) *
                      b.data<float>()[k * 50 + column];
          }
          ASSERT_NEAR(got[static_cast<size_t>(row * 50 + column)], wanted, 1e-4);
        }
      }
    }
  }
}

TEST(MatMul, BroadcastsBatches) {
  const Tensor a = Floats(Shape{2, 1, 1, 2}, {1, 2, 3, 4});
  const Tensor b = Floats(Shape{1, 2, 2, 1}, {1, 1, 10, 10});
  EXPECT_EQ(Elements(RunOp("MatMul", {a, b})), (F{3, 30, 7, 70}));
  EXPECT_EQ(
      Elements<int64_t>(RunOp("MatMul", {Ints(Shape{1, 2}, {1, 2}), Ints(Shape{2, 1}, {3, 4})})),
      I{11});
}

// A constant right side may take another path than one that comes with the run, and several threads
// cut the rows.
TEST(Gemm, LargeConstantMatricesAgreeWithThoseOfTheRun) {
  constexpr int64_t k = 400, n = 331;
  const Tensor row = Random(Shape{n}, 3);
  for (const bool transposed : {false, true}) {
    const Tensor b = Random(transposed ? Shape{n, k} : Shape{k, n}, 2);
    const Attributes attributes = With({{"transB", int64_t{transposed}}});
    for (const int64_t m : {1, 2, 7, 40, 97}) {
      const Tensor a = Random(Shape{m, k}, 1);
      const F plain = Elements(RunOp("Gemm", {a, b, row}, attributes));
      for (const int threads : {1, 3}) {
        TestModel model;
        model.Input("a", DataType::kFloat, {m, k}).Constant("b", b).Constant("c", row);
        model.Node("Gemm", {"a", "b", "c"}, {"y"}, attributes).Output("y");
        SessionOptions options = DefaultSession();
        options.pool = std::make_shared<ThreadPool>(threads);
        const auto session = InferenceSession::FromModel(model.model(), options);
        ASSERT_TRUE(session.ok()) << session.status().ToString();
        const std::vector<Value> inputs = {a};
        const F got = Elements((*session)->Run(inputs, {}));
        ASSERT_EQ(got.size(), plain.size());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], plain[i], 1e-4f * (1 + std::fabs(plain[i])))
              << m << " rows, " << threads << " threads, at " << i;
        }
      }
    }
  }
}

// Up to kMostFewRows are another kernel's than more of them.
TEST(Gemm, FewRowsAndMoreTakeBiasResidualAndActivation) {
  constexpr int64_t k = 160, n = 150;
  const Tensor b = Random(Shape{k, n}, 2), row = Random(Shape{n}, 3);
  const std::vector<std::pair<int64_t, int>> cases = {{1, 1},  {6, 1},  {7, 2},  {12, 8},
                                                      {13, 2}, {40, 8}, {64, 8}, {65, 2}};
  for (const auto& [rows, threads] : cases) {
    const int64_t m = rows;
    const Tensor a = Random(Shape{m, k}, 1), z = Random(Shape{m, n}, 4);
    TestModel model;
    model.Input("a", DataType::kFloat, {m, k}).Input("z", DataType::kFloat, {m, n});
    model.Constant("b", b).Constant("c", row);
    model.Node("MatMul", {"a", "b"}, {"ab"}).Node("Add", {"ab", "c"}, {"abc"});
    model.Node("Add", {"abc", "z"}, {"sum"}).Node("Relu", {"sum"}, {"y"}).Output("y");
    SessionOptions options = DefaultSession();
    options.pool = std::make_shared<ThreadPool>(threads);
    const auto session = InferenceSession::FromModel(model.model(), options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const std::vector<Value> inputs = {a, z};
    const F got = Elements((*session)->Run(inputs, {}));
    ASSERT_EQ(got.size(), static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m * n; ++i) {
      double wanted = row.data<float>()[i % n] + z.data<float>()[i];
      for (int64_t p = 0; p < k; ++p) {
        wanted +=
            static_cast<double>(a.data<float>()[i / n * k + p]) * b.data<float>()[p * n + i % n];
      }
      ASSERT_NEAR(got[static_cast<size_t>(i)], std::max(wanted, 0.0), 1e-4)
          << m << " rows, at " << i;
    }
  }
}

TEST(Gemm, AppliesFactorsTransposesAndAnyBroadcastOfC) {
  const Tensor a = Floats(Shape{2, 2}, {1, 2, 3, 4}), b = Floats(Shape{2, 2}, {1, 0, 0, 1});
  EXPECT_EQ(Elements(RunOp("Gemm", {a, b, Floats(Shape{2}, {10, 20})})), (F{11, 22, 13, 24}));
  EXPECT_EQ(Elements(RunOp("Gemm", {a, b, Floats(Shape{2, 1}, {10, 20})},
                           With({{"alpha", 2.0f}, {"beta", 0.5f}, {"transA", int64_t{1}}}))),
            (F{7, 11, 14, 18}));
  EXPECT_EQ(Elements(RunOp("Gemm", {a, b, Tensor::Scalar(1.0f)})), (F{2, 3, 4, 5}));
}

}  // namespace
}  // namespace onnxd
