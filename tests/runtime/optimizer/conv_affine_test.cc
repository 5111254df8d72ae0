// Convolutions that take what is affine in each channel.
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// Keras's convolution, its bias, and its normalization as tf2onnx writes it.
TEST(ConvAffineFusion, TakesNumbersOfChannelsOneAfterTheOther) {
  TestModel model;
  model.Input("x", DataType::kFloat, {1, 2, 4, 5}).Constant("w", Ramp(Shape{3, 2, 3, 3}, 0.1f));
  model.Constant("b", Ramp(Shape{3, 1, 1}, 0.7f)).Constant("s", Ramp(Shape{1, 3, 1, 1}, 0.4f));
  model.Constant("m", Ramp(Shape{3}, 0.3f)).Constant("t", Floats(Shape{}, {3}));
  model.Node("Conv", {"x", "w", "m"}, {"c"}).Node("Add", {"b", "c"}, {"d"});
  model.Node("Mul", {"d", "s"}, {"e"}).Node("Sub", {"e", "b"}, {"f"});
  model.Node("Div", {"f", "t"}, {"g"}).Node("Add", {"g", "s"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ConvAffineFusion()), "Conv");
  ExpectSameResults(copy, {Ramp(Shape{1, 2, 4, 5}, 0.5f)});
}

TEST(ConvAffineFusion, TakesThoseOfTransposedConvolutionsInGroups) {
  for (const int64_t group : {1, 2}) {
    const int64_t channels = 3 * group;
    TestModel model;
    Attributes attributes;
    attributes.Set("group", group);
    attributes.Set("strides", std::vector<int64_t>{2, 2});
    model.Input("x", DataType::kFloat, {2, 4, 5, 6}).Constant("w", Ramp(Shape{4, 3, 3, 2}, 0.1f));
    model.Constant("s", Ramp(Shape{channels, 1, 1}, 0.4f))
        .Constant("b", Ramp(Shape{channels}, 0.2f));
    const std::vector<float> variances(static_cast<size_t>(channels), 0.5f);
    model.Constant("v", Tensor::Of<float>(Shape{channels}, std::span<const float>(variances)));
    model.Node("ConvTranspose", {"x", "w"}, {"c"}, attributes).Node("Mul", {"c", "s"}, {"d"});
    Attributes epsilon;
    epsilon.Set("epsilon", 0.25f);
    model.Node("BatchNormalization", {"d", "b", "b", "b", "v"}, {"y"}, epsilon).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, ConvAffineFusion()), "ConvTranspose");
    ExpectSameResults(copy, {Ramp(Shape{2, 4, 5, 6}, 0.5f)});
  }
}

TEST(ConvAffineFusion, LeavesOtherConstantsAndWhatOthersRead) {
  const auto after = [](const char* op, std::vector<std::string> operands, bool read = false) {
    TestModel model;
    model.Input("x", DataType::kFloat, {1, 2, 4, 5}).Constant("w", Ramp(Shape{3, 2, 3, 3}, 0.1f));
    model.Constant("column", Ramp(Shape{3}, 0.7f)).Constant("plane", Ramp(Shape{3, 2, 3}, 0.7f));
    model.Constant("channel", Ramp(Shape{3, 1, 1}, 0.7f));
    model.Constant("deep", Ramp(Shape{1, 1, 3, 1, 1}, 0.7f)).Constant("zero", Floats(Shape{}, {0}));
    model.Node("Conv", {"x", "w"}, {"c"}).Node(op, operands, {"y"}).Output("y");
    if (read) model.Output("c");
    return After(model, ConvAffineFusion());
  };
  EXPECT_EQ(after("Add", {"c", "column"}), "Conv Add");
  EXPECT_EQ(after("Mul", {"c", "plane"}), "Conv Mul");
  EXPECT_EQ(after("Mul", {"c", "deep"}), "Conv Mul");
  EXPECT_EQ(after("Div", {"c", "zero"}), "Conv Div");
  EXPECT_EQ(after("Div", {"channel", "c"}), "Conv Div");
  EXPECT_EQ(after("Sub", {"channel", "c"}), "Conv Sub");
  EXPECT_EQ(after("Mul", {"c", "c"}), "Conv Mul");
  EXPECT_EQ(after("Mul", {"c", "channel"}, true), "Conv Mul");
  EXPECT_EQ(after("Mul", {"c", "channel"}), "Conv");
}

}  // namespace
}  // namespace onnxd
