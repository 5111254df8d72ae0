#include "runtime/session/row_independence.h"

#include <gmock/gmock.h>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

using testing::HasSubstr;

// distances[n, 4] of x[n, 3] from four points or from x itself, as skl2onnx writes them.
TestModel Distances(bool from_itself = false) {
  TestModel body(13);
  body.Input("state", DataType::kFloat, {Dimension(), Dimension()});
  body.Input("row", DataType::kFloat, {Dimension()});
  body.Node("Identity", {"state"}, {"kept"}).Node("Sub", {"state", "row"}, {"difference"});
  body.Node("ReduceSumSquare", {"difference"}, {"squares"},
            With({{"axes", I{1}}, {"keepdims", int64_t{0}}}));
  body.Output("kept").Output("squares");

  TestModel model(13);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), 3});
  if (!from_itself) model.Constant("points", Numbers(Shape{4, 3}));
  Attributes scan = With({{"num_scan_inputs", int64_t{1}}});
  scan.Set("body", std::make_shared<Graph>(body.graph()));
  model.Node("Scan", {"x", from_itself ? "x" : "points"}, {"state", "by_point"}, scan);
  model.Node("Transpose", {"by_point"}, {"y"}, With({{"perm", I{1, 0}}}));
  return model.Output("y");
}

std::string WhyDependent(const TestModel& model,
                         OptimizationLevel level = OptimizationLevel::kAll) {
  const auto session = model.Load(level);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return session.ok() ? (*session)->info().rows_depend : "";
}

TEST(RowIndependence, IsThatOfTheGraphWhosePassesFoundOperators) {
  EXPECT_EQ(WhyDependent(Distances()), "");
  EXPECT_NE(WhyDependent(Distances(), OptimizationLevel::kDisable), "");
}

TEST(RowIndependence, RowsThatAreComparedWithEachOtherDepend) {
  EXPECT_NE(WhyDependent(Distances(true)), "");
  TestModel model(20);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), 3});
  model.Node("CDist", {"x", "x"}, {"d"}, {}, "com.microsoft");
  model.Constant("k", Ints(Shape{1}, {1})).Node("TopK", {"d", "k"}, {"y", "places"}).Output("y");
  EXPECT_THAT(WhyDependent(model), HasSubstr("looks at all rows"));
}

}  // namespace
}  // namespace onnxd
