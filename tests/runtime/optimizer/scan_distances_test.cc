#include <functional>

#include "runtime/optimizer/passes/passes.h"
#include "tests/support/operator_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// What skl2onnx may write in another way.
struct Written {
  int64_t columns = 3, scanned_columns = 3;
  std::string reduction = "ReduceSumSquare";
  int64_t keepdims = 0;
  bool row_first = false;  // row - state
  Attributes scan;
};

// The state goes on as it is; beside it the distances of one row from all of the state's.
std::shared_ptr<Graph> Body(const Written& written) {
  TestModel body(13);
  body.Input("state", DataType::kFloat, {Dimension(), Dimension()});
  body.Input("row", DataType::kFloat, {Dimension()});
  body.Node("Identity", {"state"}, {"kept"});
  const std::vector<std::string> operands = {"state", "row"};
  body.Node("Sub", {operands[written.row_first], operands[!written.row_first]}, {"difference"});
  body.Node(written.reduction, {"difference"}, {"reduced"},
            With({{"axes", I{1}}, {"keepdims", written.keepdims}}));
  body.Node("Identity", {"reduced"}, {"distances"});
  body.Output("kept").Output("distances");
  return std::make_shared<Graph>(body.graph());
}

// distances[4, n] of x[n, columns] from four points, and x as it comes out of the Scan.
TestModel Scanned(const Written& written = {}) {
  TestModel model(13);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), written.columns});
  model.Constant("points", Numbers(Shape{4, written.scanned_columns}));
  Attributes scan = written.scan;
  scan.Set("body", Body(written));
  scan.Set("num_scan_inputs", int64_t{1});
  model.Node("Scan", {"x", "points"}, {"kept", "distances"}, scan);
  return model.Output("distances");
}

TEST(ScanDistances, BecomeOneNodeAndItsTranspose) {
  TestModel model = Scanned();
  TestModel copy = model;
  EXPECT_EQ(After(model, {ScanDistances(), DeadCodeElimination()}), "CDist Transpose");
  for (const int64_t rows : {1, 7}) ExpectSameResults(copy, {Numbers(Shape{rows, 3}, 0.3f)});
}

TEST(ScanDistances, AreTheSameTheOtherWayRound) {
  Written written;
  written.row_first = true;
  TestModel model = Scanned(written);
  EXPECT_EQ(After(model, {ScanDistances(), DeadCodeElimination()}), "CDist Transpose");
}

TEST(ScanDistances, TransposesThatUndoEachOtherGo) {
  TestModel model = Scanned();
  model.Node("Transpose", {"distances"}, {"by_row"}, Order({1, 0})).Output("by_row");
  model.graph().outputs.erase(model.graph().outputs.begin());
  TestModel copy = model;
  EXPECT_EQ(After(model, {ScanDistances(), TransposeElimination(), IdentityElimination(),
                          DeadCodeElimination()}),
            "CDist");
  ExpectSameResults(copy, {Numbers(Shape{5, 3}, 0.3f)});
}

TEST(ScanDistances, TheirRootsAreEuclids) {
  TestModel model = Scanned();
  model.Node("Transpose", {"distances"}, {"by_row"}, Order({1, 0}));
  model.Node("Sqrt", {"by_row"}, {"roots"}).Output("roots");
  model.graph().outputs.erase(model.graph().outputs.begin());
  TestModel copy = model;
  EXPECT_EQ(After(model, {ScanDistances(), TransposeElimination(), IdentityElimination(),
                          DeadCodeElimination()}),
            "CDist");
  EXPECT_EQ(model.graph().nodes[0].attributes.String("metric", ""), "euclidean");
  ExpectSameResults(copy, {Numbers(Shape{5, 3}, 0.3f)});
}

TEST(ScanDistances, SquaresThatSomethingElseReadsStay) {
  TestModel model = Scanned();
  model.Node("Transpose", {"distances"}, {"by_row"}, Order({1, 0}));
  model.Node("Sqrt", {"by_row"}, {"roots"}).Output("roots").Output("by_row");
  EXPECT_EQ(After(model, {ScanDistances(), TransposeElimination(), IdentityElimination(),
                          DeadCodeElimination()}),
            "CDist Transpose Sqrt");
}

TEST(ScanDistances, TheStateThatComesOutIsTheOneThatWentIn) {
  TestModel model = Scanned();
  model.Output("kept");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ScanDistances(), DeadCodeElimination()}), "Identity CDist Transpose");
  ExpectSameResults(copy, {Numbers(Shape{5, 3}, 0.3f)});
}

TEST(ScanDistances, AnythingElseStays) {
  const auto with = [](const std::function<void(Written&)>& change) {
    Written written;
    change(written);
    TestModel model = Scanned(written);
    return After(model, {ScanDistances(), DeadCodeElimination()});
  };
  EXPECT_EQ(with([](Written& w) { w.reduction = "ReduceL1"; }), "Scan");
  EXPECT_EQ(with([](Written& w) { w.keepdims = 1; }), "Scan");
  EXPECT_EQ(with([](Written& w) { w.columns = 1; }), "Scan");  // each is compared with all three
  EXPECT_EQ(with([](Written& w) { w.scan.Set("scan_input_directions", I{1}); }), "Scan");
  EXPECT_EQ(with([](Written& w) { w.scan.Set("scan_output_axes", I{1}); }), "Scan");
}

}  // namespace
}  // namespace onnxd
