// Normalization over the last axis, found in its arithmetic.
#include <gtest/gtest.h>

#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

TestModel NormalizationModel(bool centered, bool biased) {
  TestModel model;
  Attributes last;
  last.Set("axes", std::vector<int64_t>{-1});
  model.Input("x", DataType::kFloat, {2, 3, 8}).Constant("two", Floats(Shape{}, {2}));
  model.Constant("epsilon", Floats(Shape{}, {1e-5f})).Constant("scale", Ramp(Shape{8}, 0.3f));
  model.Constant("bias", Ramp(Shape{8}, 0.1f));
  if (centered) {
    model.Node("ReduceMean", {"x"}, {"mean"}, last).Node("Sub", {"x", "mean"}, {"c"});
  } else {
    model.Node("Relu", {"x"}, {"c"});
  }
  model.Node("Pow", {"c", "two"}, {"square"}).Node("ReduceMean", {"square"}, {"variance"}, last);
  model.Node("Add", {"variance", "epsilon"}, {"v"}).Node("Sqrt", {"v"}, {"deviation"});
  model.Node("Div", {"c", "deviation"}, {"n"});
  model.Node("Mul", {"n", "scale"}, {biased ? "m" : "y"});
  if (biased) model.Node("Add", {"m", "bias"}, {"y"});
  model.Output("y");
  return model;
}

TEST(LayerNormalizationFusion, SeesItsArithmetic) {
  TestModel model = NormalizationModel(true, true), copy = model;
  EXPECT_TRUE(After(model, LayerNormalizationFusion()).ends_with(" LayerNormalization"));
  EXPECT_EQ(model.graph().nodes.back().inputs.size(), 3u);
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 8}, 0.5f)});
}

TEST(LayerNormalizationFusion, NeedsNoBias) {
  TestModel model = NormalizationModel(true, false), copy = model;
  EXPECT_TRUE(After(model, LayerNormalizationFusion()).ends_with(" LayerNormalization"));
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 8}, 0.5f)});
}

TEST(LayerNormalizationFusion, IsSimplifiedWithoutAMean) {
  TestModel model = NormalizationModel(false, false), copy = model;
  EXPECT_TRUE(After(model, LayerNormalizationFusion()).ends_with(" SimplifiedLayerNormalization"));
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 8}, 0.5f)});
}

// How TensorFlow writes x * factor + (bias - mean * factor).
enum class ShiftedBy { kNegativeMean, kMean };

TestModel ShiftedModel(ShiftedBy shifted_by, const Shape& row, const std::string& mean = "mean") {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 3, 8}).Constant("epsilon", Floats(Shape{1}, {1e-3f}));
  model.Constant("scale", Ramp(row, 0.3f)).Constant("bias", Ramp(row, 0.1f));
  model.Node("GlobalAveragePool", {"x"}, {"mean"}).Node("Sub", {"x", "mean"}, {"c"});
  model.Node("Mul", {"c", "c"}, {"square"}).Node("GlobalAveragePool", {"square"}, {"variance"});
  model.Node("Add", {"variance", "epsilon"}, {"v"}).Node("Sqrt", {"v"}, {"deviation"});
  model.Node("Reciprocal", {"deviation"}, {"inverse"});
  model.Node("Mul", {"inverse", "scale"}, {"factor"}).Node("Mul", {"x", "factor"}, {"scaled"});
  if (shifted_by == ShiftedBy::kMean) {
    model.Node("Mul", {mean, "factor"}, {"m"}).Node("Sub", {"bias", "m"}, {"shift"});
  } else {
    model.Node("Neg", {mean}, {"negated"}).Node("Mul", {"negated", "factor"}, {"m"});
    model.Node("Add", {"m", "bias"}, {"shift"});
  }
  model.Node("Add", {"scaled", "shift"}, {"y"}).Output("y");
  return model;
}

TEST(LayerNormalizationFusion, SeesScalesAndShifts) {
  for (const auto shifted_by : {ShiftedBy::kNegativeMean, ShiftedBy::kMean}) {
    for (const Shape& row : {Shape{8}, Shape{1, 1, 8}}) {
      SCOPED_TRACE(row.rank());
      TestModel model = ShiftedModel(shifted_by, row), copy = model;
      EXPECT_EQ(After(model, {LayerNormalizationFusion(), DeadCodeElimination()}),
                "LayerNormalization");
      EXPECT_EQ(model.graph().nodes[0].attributes.Float("epsilon", 0), 1e-3f);
      ExpectSameResults(copy, {Ramp(Shape{2, 3, 8}, 0.5f)});
    }
  }
}

TEST(LayerNormalizationFusion, LeavesShiftsByOtherNumbers) {
  for (const auto shifted_by : {ShiftedBy::kNegativeMean, ShiftedBy::kMean}) {
    TestModel model = ShiftedModel(shifted_by, Shape{8}, "variance");
    EXPECT_TRUE(After(model, LayerNormalizationFusion()).ends_with(" Add"));
  }
}

TEST(LayerNormalizationFusion, LeavesScalesThatAreNoRows) {
  TestModel model = ShiftedModel(ShiftedBy::kMean, Shape{3, 8});
  EXPECT_TRUE(After(model, LayerNormalizationFusion()).ends_with(" Add"));
}

}  // namespace
}  // namespace onnxd
