#include <cmath>

#include "tests/support/every_simd.h"
#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// CDist of a[rows, columns] and b[points, columns] on so many threads.
struct Case {
  int64_t rows, points, columns;
  const char* metric = "sqeuclidean";
  int threads = 1;
};

std::vector<double> Expected(const Case& c, const Tensor& a, const Tensor& b) {
  std::vector<double> distances;
  for (int64_t i = 0; i < c.rows; ++i) {
    for (int64_t j = 0; j < c.points; ++j) {
      double sum = 0;
      for (int64_t d = 0; d < c.columns; ++d) {
        const double x = a.data<float>()[i * c.columns + d];
        sum += std::pow(x - b.data<float>()[j * c.columns + d], 2);
      }
      distances.push_back(c.metric == std::string("euclidean") ? std::sqrt(sum) : sum);
    }
  }
  return distances;
}

// With B a constant, which is packed, and as an input.
void Check(const Case& c) {
  const std::string what = StrCat(c.rows, " x ", c.points, " x ", c.columns, " ", c.metric);
  const Tensor a = Numbers(Shape{c.rows, c.columns}),
               b = Numbers(Shape{c.points, c.columns}, 0.07f);
  const auto attributes = With({{"metric", std::string(c.metric)}});
  const auto packed = RunOp("CDist", {a, b}, attributes,
                            {.constants = 0b10, .domain = "com.microsoft", .threads = c.threads});
  ExpectNear(Elements(packed), Expected(c, a, b), what);

  TestModel model(20);
  model.Input("a", DataType::kFloat, {Dimension::Symbol("m"), c.columns});
  model.Input("b", DataType::kFloat, {Dimension::Symbol("n"), c.columns});
  model.Node("CDist", {"a", "b"}, {"y"}, attributes, "com.microsoft").Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const auto turned = (*session)->Run(std::vector<Value>{a, b}, {});
  ExpectNear(Elements(turned), Expected(c, a, b), what);
#ifndef __clang__  // whose sanitizer build, hardly optimized, does not give the same bits
  EXPECT_EQ(Elements(turned), Elements(packed)) << what;
#endif
}

using CDistWithSimd = math::WithSimd;

TEST_P(CDistWithSimd, IsTheDistanceOfEachRowFromEach) {
  for (const int64_t points : {1, 5, 33, 130}) {
    for (const int64_t rows : {1, 4, 7}) {
      Check({rows, points, 3});
      Check({rows, points, 20, "euclidean"});
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Simd, CDistWithSimd, math::EverySimdName());

TEST(CDist, PartsItsRowsAmongThreads) { Check({67, 513, 9, "euclidean", 3}); }

TEST(CDist, WithoutRowsOrColumnsThereIsNothingToAdd) {
  Check({0, 4, 3});
  Check({3, 0, 3});
  Check({2, 3, 0});
}

TEST(CDist, TakesDoubles) {
  const Tensor a = Tensor::Of<double>(Shape{2, 2}, {0, 0, 1, 1});
  const Tensor b = Tensor::Of<double>(Shape{2, 2}, {3, 4, 1e9, 1});
  const auto squares = RunOp("CDist", {a, b}, {}, {.constants = 0b10, .domain = "com.microsoft"});
  EXPECT_EQ(Elements<double>(squares),
            (std::vector<double>{25, 1e18 + 1, 13, (1e9 - 1) * (1e9 - 1)}));
}

TEST(CDist, MatricesOfOtherWidthsAndOtherMetricsAreRefused) {
  const Tensor a = Numbers(Shape{2, 3});
  EXPECT_EQ(
      RunOp("CDist", {a, Numbers(Shape{2, 4})}, {}, {.constants = 0b10, .domain = "com.microsoft"})
          .status()
          .code(),
      StatusCode::kInvalidArgument);
  EXPECT_EQ(RunOp("CDist", {a, a}, With({{"metric", std::string("cosine")}}),
                  {.constants = 0b10, .domain = "com.microsoft"})
                .status()
                .code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace onnxd
