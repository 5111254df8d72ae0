// Shape arithmetic with symbols, as exporters write it around Reshape and Expand.
#include "runtime/ops/shape_values.h"

#include <gtest/gtest.h>

#include "runtime/ops/shape_inference.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

// x: [batch, 6, 8], and "sizes": the elements of its shape, one by one, as "batch", "six", "eight".
TestModel WithSizes() {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 6, 8});
  model.Node("Shape", {"x"}, {"shape"}).Constant("axis", Ints(Shape{1}, {0}));
  int64_t position = 0;
  for (const std::string name : {"batch", "six", "eight"}) {
    model.Constant(name + "_at", Ints(Shape{}, {position++}));
    model.Node("Gather", {"shape", name + "_at"}, {name + "_scalar"});
    model.Node("Unsqueeze", {name + "_scalar", "axis"}, {name});
  }
  return model;
}

std::string ShapeOf(TestModel& model, const std::string& name) {
  const Status status = InferGraph(model.graph());
  EXPECT_TRUE(status.ok()) << status.ToString();
  return ToString(model.graph().value(model.graph().FindValue(name)).type);
}

Attributes AxisZero() {
  Attributes attributes;
  attributes.Set("axis", int64_t{0});
  return attributes;
}

TEST(ShapeValues, KeepASymbolThroughGatherAndConcat) {
  TestModel model = WithSizes();
  model.Constant("rest", Ints(Shape{1}, {-1}));
  model.Node("Concat", {"batch", "rest"}, {"target"}, AxisZero());
  model.Node("Reshape", {"x", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(model, "y"), "float[batch, 48]");
}

TEST(ShapeValues, MultiplySymbolsByNumbers) {
  TestModel model = WithSizes();
  model.Node("Mul", {"six", "batch"}, {"rows"});
  model.Node("Concat", {"rows", "eight"}, {"target"}, AxisZero());
  model.Node("Reshape", {"x", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(model, "y"), "float[6*batch, 8]");
}

// As tf2onnx merges axes around products that are no matrices'.
TEST(ShapeValues, MultiplyWholeRowsAndChooseTheLargest) {
  TestModel model = WithSizes();
  model.Constant("two", Ints(Shape{2}, {0, 1})).Node("Gather", {"shape", "two"}, {"pair"});
  model.Node("ReduceProd", {"pair"}, {"rows"}).Node("Max", {"batch", "batch"}, {"same"});
  model.Constant("one", Ints(Shape{1}, {1})).Node("Max", {"batch", "one"}, {"either"});
  model.Constant("none", Ints(Shape{1}, {0})).Node("Max", {"none", "six"}, {"number"});
  model.Node("Concat", {"rows", "eight"}, {"target"}, AxisZero());
  model.Node("Concat", {"same", "number", "eight"}, {"back"}, AxisZero());
  model.Node("Concat", {"either", "number", "eight"}, {"unknown"}, AxisZero());
  model.Node("Reshape", {"x", "target"}, {"y"}).Node("Reshape", {"y", "back"}, {"z"});
  model.Node("Reshape", {"y", "unknown"}, {"u"});
  EXPECT_EQ(ShapeOf(model, "y"), "float[6*batch, 8]");
  EXPECT_EQ(ShapeOf(model, "z"), "float[batch, 6, 8]");
  EXPECT_EQ(ShapeOf(model, "u"), "float[?, 6, 8]");
}

TEST(ShapeValues, CancelInWhatIsLeftOpen) {
  TestModel model = WithSizes();
  model.Constant("rest", Ints(Shape{1}, {-1})).Constant("three", Ints(Shape{1}, {3}));
  model.Node("Mul", {"batch", "three"}, {"rows"});
  model.Node("Concat", {"rows", "rest", "eight"}, {"target"}, AxisZero());
  model.Node("Reshape", {"x", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(model, "y"), "float[3*batch, 2, 8]");
  model.Constant("five", Ints(Shape{1}, {5})).Node("Mul", {"batch", "five"}, {"many"});
  model.Node("Concat", {"many", "rest", "eight"}, {"odd"}, AxisZero());
  model.Node("Reshape", {"x", "odd"}, {"z"});
  EXPECT_EQ(ShapeOf(model, "z"), "float[5*batch, ?, 8]");
}

TEST(ShapeValues, FactorsAreThoseOfProductsAlone) {
  const SymbolFactors product = FactorsOf("4*n*batch");
  EXPECT_EQ(product.number, 4);
  EXPECT_EQ(product.names, (std::vector<std::string>{"n", "batch"}));
  for (const char* symbol : {"2*n + 1", "(n-1)*2", "n/2*4", "99999999999999*99999999999999"}) {
    const SymbolFactors one = FactorsOf(symbol);
    EXPECT_EQ(one.number, 1);
    EXPECT_EQ(one.names, std::vector<std::string>{symbol});
  }
}

TEST(ShapeValues, AreAsManyAsARangeFromZeroHas) {
  TestModel model = WithSizes();
  model.Constant("zero", Ints(Shape{}, {0})).Constant("one", Ints(Shape{}, {1}));
  model.Constant("two", Ints(Shape{}, {2}));
  model.Node("Range", {"zero", "batch_scalar", "one"}, {"all"});
  model.Node("Range", {"one", "batch_scalar", "one"}, {"rest"});
  model.Node("Range", {"zero", "batch_scalar", "two"}, {"even"});
  EXPECT_EQ(ShapeOf(model, "all"), "int64[batch]");
  EXPECT_EQ(ShapeOf(model, "rest"), "int64[?]");
  EXPECT_EQ(ShapeOf(model, "even"), "int64[?]");
}

TEST(ShapeValues, DivideAndSliceNumbers) {
  TestModel model = WithSizes();
  model.Constant("two", Ints(Shape{1}, {2})).Constant("from", Ints(Shape{1}, {0}));
  model.Node("Div", {"eight", "two"}, {"half"}).Node("Slice", {"shape", "from", "two"}, {"first"});
  model.Node("Concat", {"first", "two", "half"}, {"target"}, AxisZero());
  model.Node("Reshape", {"x", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(model, "y"), "float[batch, 6, 2, 4]");
}

TEST(ShapeValues, ChooseAmongSymbols) {
  TestModel model = WithSizes();
  model.Constant("minus", Ints(Shape{1}, {-1})).Constant("ones", Ints(Shape{3}, {1, 1, 1}));
  model.Constant("free", Ints(Shape{3}, {-1, -1, -1}));
  model.Node("Concat", {"batch", "minus", "eight"}, {"wanted"}, AxisZero());
  model.Node("Equal", {"wanted", "free"}, {"is_free"});
  model.Node("Where", {"is_free", "ones", "wanted"}, {"target"});
  model.Constant("one", Floats(Shape{1, 6, 1}, {1, 2, 3, 4, 5, 6}));
  model.Node("Expand", {"one", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(model, "y"), "float[batch, 6, 8]");
}

TEST(ShapeValues, SayNothingOfWhatOnlyDataDecide) {
  TestModel model = WithSizes();
  model.Input("n", DataType::kInt64, {1}).Node("Concat", {"batch", "n"}, {"target"}, AxisZero());
  model.Node("Reshape", {"x", "target"}, {"y"});
  EXPECT_EQ(ShapeOf(model, "y"), "float[?, ?]");
}

TEST(ShapeValues, EqualOnlyWhatIsWrittenAlike) {
  const ShapeValue batch = ShapeValue::Of(Dimension::Symbol("batch"));
  EXPECT_EQ(batch, ShapeValue::Of(Dimension::Symbol("batch")));
  EXPECT_FALSE(batch == ShapeValue::Of(Dimension::Symbol("rows")));
  EXPECT_TRUE(ShapeValue::Of(Dimension()).unknown());
  EXPECT_EQ(ShapeValue::Of(Dimension(7)).ToDimension(), Dimension(7));
}

}  // namespace
}  // namespace onnxd
