// The CPU provider's passes for images, signals and volumes: layouts.
#include <algorithm>
#include <random>

#include "runtime/base/str_cat.h"
#include "runtime/optimizer/pass_manager.h"
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

class ChannelsLast : public testing::Test {
 protected:
  void SetUp() override {
    pass_ = ProviderPass("channels_last");
    if (pass_ == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    Attributes pads;
    pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model_.Input("x", DataType::kFloat, {1, 3, 6, 5}).Constant("w", Ramp(Shape{4, 3, 3, 3}, 0.1f));
    model_.Node("Conv", {"x", "w"}, {"c"}, pads);
  }

  const GraphPass* pass_ = nullptr;
  TestModel model_{21};
};

TEST_F(ChannelsLast, NeedsNoTranspositionThatTheFileUndoes) {
  model_.Node("Transpose", {"c"}, {"t"}, Order({0, 2, 3, 1})).Node("Relu", {"t"}, {"y"});
  model_.Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Relu");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
}

TEST_F(ChannelsLast, GoesOnBehindTranspositionsOfTheFile) {
  model_.Node("Transpose", {"c"}, {"t"}, Order({0, 2, 3, 1})).Node("Softmax", {"t"}, {"s"});
  model_.Node("Transpose", {"s"}, {"u"}, Order({0, 3, 1, 2})).Node("Add", {"u", "c"}, {"y"});
  model_.Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Softmax Add Transpose");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
}

TEST_F(ChannelsLast, TurnsConstantsOfProductsAndSums) {
  model_.Constant("scale", Ramp(Shape{4, 1, 1}, 0.3f)).Constant("map", Ramp(Shape{6, 5}, 0.2f));
  model_.Node("Mul", {"c", "scale"}, {"d"}).Node("Add", {"map", "d"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Mul Add Transpose");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
}

TEST_F(ChannelsLast, TakesNormalizationsAlong) {
  model_.Constant("s", Ramp(Shape{4}, 0.2f)).Constant("b", Ramp(Shape{4}, 0.1f));
  model_.Node("InstanceNormalization", {"c", "s", "b"}, {"i"});
  Attributes groups;
  groups.Set("num_groups", int64_t{2});
  model_.Node("GroupNormalization", {"i", "s", "b"}, {"g"}, groups);
  model_.Node("Relu", {"g"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_),
            "Transpose ConvChannelsLast GroupNormalizationChannelsLast "
            "GroupNormalizationChannelsLast Relu Transpose");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)}, 1, 1e-4f);
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)}, 2, 1e-4f);
}

// The file says what shape the result has, and nothing says that of the input.
// As networks have it whose activations come before their convolutions.
TEST_F(ChannelsLast, TakesBatchNormalizationAsAProductAndASum) {
  model_.Constant("s", Ramp(Shape{4}, 0.2f)).Constant("b", Ramp(Shape{4}, 0.1f));
  model_.Constant("m", Ramp(Shape{4}, 0.3f)).Constant("v", Floats(Shape{4}, {1, 0.5, 2, 0.1}));
  model_.Node("BatchNormalization", {"c", "s", "b", "m", "v"}, {"n"});
  model_.Node("Relu", {"n"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Mul Add Relu Transpose");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
}

TEST_F(ChannelsLast, LeavesBatchNormalizationOfComputedNumbers) {
  model_.Input("s", DataType::kFloat, {4});
  model_.Node("BatchNormalization", {"c", "s", "s", "s", "s"}, {"y"}).Output("y");
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Transpose BatchNormalization");
}

TEST_F(ChannelsLast, TakesPadsAlong) {
  for (const char* mode : {"constant", "reflect", "edge"}) {
    TestModel model = model_;
    model.Constant("pads", Tensor::Of<int64_t>(Shape{8}, {0, 1, 2, 0, 0, 2, 1, 3}));
    Attributes attributes;
    attributes.Set("mode", std::string(mode));
    model.Node("Pad", {"c", "pads"}, {"y"}, attributes).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, pass_), "Transpose ConvChannelsLast Pad Transpose");
    ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
  }
}

// As layers have it that normalize each pixel over its channels.
TEST_F(ChannelsLast, TakesReductionsThatKeepTheirAxes) {
  for (const auto& axes : {std::vector<int64_t>{1}, {-3}, {2, 3}, {-1, 1}, {2}}) {
    for (const bool as_input : {true, false}) {
      TestModel model = model_;
      Attributes attributes;
      std::vector<std::string> inputs = {"c"};
      if (as_input) {
        model.Constant("axes", Tensor::Of<int64_t>(Shape{static_cast<int64_t>(axes.size())}, axes));
        inputs.emplace_back("axes");
      } else {
        model = TestModel(13);
        model.Input("x", DataType::kFloat, {1, 3, 6, 5});
        model.Constant("w", Ramp(Shape{4, 3, 3, 3}, 0.1f)).Node("Conv", {"x", "w"}, {"c"});
        attributes.Set("axes", axes);
      }
      model.Constant("two", Floats(Shape{}, {2}));
      model.Node("ReduceMean", inputs, {"m"}, attributes).Node("Pow", {"m", "two"}, {"p"});
      model.Node("Mul", {"c", "p"}, {"y"}).Output("y");
      TestModel copy = model;
      EXPECT_EQ(After(model, pass_), "Transpose ConvChannelsLast ReduceMean Pow Mul Transpose");
      ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
    }
  }
}

// As YOLO's blocks have it: half of the channels are worked on, and joined with all before.
TEST_F(ChannelsLast, TakesSplitsOfChannelsAlong) {
  for (const int64_t axis : {1, -3}) {
    TestModel model = model_;
    Attributes by, joined;
    by.Set("axis", axis);
    by.Set("num_outputs", int64_t{2});
    joined.Set("axis", int64_t{1});
    model.Constant("v", Ramp(Shape{2, 2, 1, 1}, 0.2f)).Node("Split", {"c"}, {"a", "b"}, by);
    model.Node("Conv", {"b", "v"}, {"d"}).Node("Concat", {"a", "b", "d"}, {"y"}, joined);
    model.Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, pass_),
              "Transpose ConvChannelsLast Split ConvChannelsLast Concat Transpose");
    ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
  }
}

TEST_F(ChannelsLast, LeavesSplitsThatNoImageIsReadOf) {
  for (const int64_t axis : {1, 3}) {  // for products, and of columns
    TestModel model = model_;
    Attributes by;
    by.Set("axis", axis);
    model.Constant("parts", Ints(Shape{2}, {1, axis == 1 ? 3 : 4}));
    model.Node("Split", {"c", "parts"}, {"a", "b"}, by);
    model.Constant("m", Ramp(Shape{axis == 1 ? 5 : 4, 2}, 0.2f));
    model.Node(axis == 1 ? "MatMul" : "Relu",
               axis == 1 ? std::vector<std::string>{"b", "m"} : std::vector<std::string>{"b"},
               {"y"});
    model.Output("y").Output("a");
    TestModel copy = model;
    EXPECT_EQ(After(model, pass_),
              StrCat("Transpose ConvChannelsLast Transpose Split ", axis == 1 ? "MatMul" : "Relu"));
    ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
  }
}

TEST_F(ChannelsLast, LeavesReductionsThatDropTheirAxes) {
  model_.Constant("axes", Ints(Shape{2}, {2, 3}));
  Attributes drops;
  drops.Set("keepdims", int64_t{0});
  model_.Node("ReduceMean", {"c", "axes"}, {"y"}, drops).Output("y");
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Transpose ReduceMean");
}

TEST_F(ChannelsLast, LeavesPadsOfSomeAxes) {
  model_.Constant("pads", Ints(Shape{2}, {1, 2})).Constant("axes", Ints(Shape{1}, {2}));
  model_.Node("Pad", {"c", "pads", "", "axes"}, {"y"}).Output("y");
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Transpose Pad");
}

TEST_F(ChannelsLast, LeavesNormalizationsOfUnknownShape) {
  model_.Constant("s", Ramp(Shape{4}, 0.2f)).Constant("b", Ramp(Shape{4}, 0.1f));
  model_.Input("u", DataType::kFloat, {});
  Graph& graph = model_.graph();
  graph.value(graph.inputs.back()).type.shape.reset();
  model_.Node("InstanceNormalization", {"u", "s", "b"}, {"i"});
  graph.value(graph.nodes.back().outputs[0]).type =
      ValueType::TensorOf(DataType::kFloat, SymbolicShape{1, 4, 6, 5});
  model_.Node("Relu", {"i"}, {"y"}).Node("Relu", {"c"}, {"z"}).Output("y").Output("z");
  EXPECT_EQ(After(model_, pass_),
            "Transpose ConvChannelsLast InstanceNormalization Relu Relu Transpose");
}

TEST_F(ChannelsLast, TakesBlocksAndPartsOfImagesAlong) {
  Attributes blocks;
  blocks.Set("blocksize", int64_t{2});
  model_.Constant("from", Ints(Shape{2}, {1, -9})).Constant("to", Ints(Shape{2}, {4, -1}));
  model_.Constant("axes", Ints(Shape{2}, {-1, 2})).Constant("steps", Ints(Shape{2}, {1, 2}));
  model_.Node("DepthToSpace", {"c"}, {"d"}, blocks);
  model_.Node("Slice", {"d", "from", "to", "axes", "steps"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_),
            "Transpose ConvChannelsLast Reshape Transpose Reshape Slice Transpose");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
}

TEST_F(ChannelsLast, TakesResizingToTheNearestAlong) {
  model_.Constant("scales", Floats(Shape{4}, {1, 1, 2, 3}))
      .Constant("sizes", Ints(Shape{4}, {1, 4, 7, 4}));
  model_.Node("Resize", {"c", "", "scales"}, {"r"});
  model_.Node("Resize", {"r", "", "", "sizes"}, {"y"}).Output("y");
  TestModel copy = model_;
  EXPECT_EQ(After(model_, pass_), "Transpose ConvChannelsLast Resize Resize Transpose");
  ExpectSameResults(copy, {Ramp(Shape{1, 3, 6, 5}, 0.5f)});
}

// The same sums whichever axes they are over; another convolution follows, or the model ends.
TEST_F(ChannelsLast, TakesInterpolationAlongToAnotherConvolution) {
  for (const std::string mode : {"linear", "cubic", "nearest"}) {
    for (const char* coordinates : {"half_pixel", "align_corners", "asymmetric"}) {
      for (const auto& [height, width] : {std::pair{12, 10}, {3, 9}, {13, 2}}) {
        for (const int64_t channels : {8, 4}) {
          TestModel last(21);
          last.Input("x", DataType::kFloat, {1, 3, 6, 5});
          last.Constant("w", Ramp(Shape{channels, 3, 3, 3}, 0.1f)).Node("Conv", {"x", "w"}, {"c"});
          last.Constant("sizes", Ints(Shape{4}, {1, channels, height, width}));
          Attributes attributes;
          attributes.Set("mode", mode);
          attributes.Set("coordinate_transformation_mode", std::string(coordinates));
          last.Node("Resize", {"c", "", "", "sizes"}, {"r"}, attributes);
          TestModel model = last;
          model.Constant("v", Ramp(Shape{2, channels, 1, 1}, 0.2f));
          model.Node("Conv", {"r", "v"}, {"y"}).Output("y");
          last.Output("r");
          for (TestModel* each : {&model, &last}) {
            ExpectSameResults(*each, {Ramp(Shape{1, 3, 6, 5}, 0.5f)}, 2);
          }
          const bool moves = mode == "nearest";
          EXPECT_EQ(
              After(model, pass_),
              StrCat("Transpose ConvChannelsLast ", moves || channels == 8 ? "" : "Transpose ",
                     "Resize ", moves || channels == 8 ? "" : "Transpose ",
                     "ConvChannelsLast Transpose"));
          EXPECT_EQ(After(last, pass_), moves ? "Transpose ConvChannelsLast Resize Transpose"
                                              : "Transpose ConvChannelsLast Transpose Resize");
        }
      }
    }
  }
}

// As exporters write GroupNormalization of x[batch, 6, 4, 5] in 3 groups.
TestModel GroupsOfChannels(float ones, const Shape& parameters) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 6, 4, 5});
  model.Constant("join", Ints(Shape{3}, {0, 3, -1})).Constant("back", Ints(Shape{4}, {0, 6, 4, 5}));
  model.Constant("ones", Floats(Shape{3}, {ones, ones, ones}));
  model.Constant("zeros", Floats(Shape{3}, {0, 0, 0}));
  model.Constant("scale", Ramp(parameters, 0.3f)).Constant("bias", Ramp(parameters, 0.2f));
  model.Node("Reshape", {"x", "join"}, {"a"});
  model.Node("InstanceNormalization", {"a", "ones", "zeros"}, {"b"});
  model.Node("Reshape", {"b", "back"}, {"c"}).Node("Mul", {"c", "scale"}, {"d"});
  model.Node("Add", {"d", "bias"}, {"y"}).Output("y");
  return model;
}

TEST(GroupNormalizationFusion, FindsGroupsBetweenReshapes) {
  const GraphPass* pass = ProviderPass("group_normalization");
  if (pass == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  for (const Shape& parameters : {Shape{6, 1, 1}, Shape{1, 6, 1, 1}}) {
    TestModel model = GroupsOfChannels(1, parameters);
    TestModel copy = model;
    EXPECT_EQ(After(model, {pass, DeadCodeElimination()}), "GroupNormalization");
    ExpectSameResults(copy, {Ramp(Shape{2, 6, 4, 5}, 0.5f)}, 1, 1e-4f);
  }
}

TEST(GroupNormalizationFusion, LeavesWhatIsScaledOtherwise) {
  const GraphPass* pass = ProviderPass("group_normalization");
  if (pass == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  const auto ops = [&](TestModel model) { return After(model, {pass, DeadCodeElimination()}); };
  EXPECT_EQ(ops(GroupsOfChannels(2, {6, 1, 1})), "Reshape InstanceNormalization Reshape Mul Add");
  EXPECT_EQ(ops(GroupsOfChannels(1, {6, 4, 5})), "Reshape InstanceNormalization Reshape Mul Add");
  EXPECT_EQ(ops(GroupsOfChannels(1, {1})), "Reshape InstanceNormalization Reshape Mul Add");
}

class SignalImages : public testing::Test {
 protected:
  void SetUp() override {
    if (ProviderPass("signal_images") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  }

  // x[batch, 3, length] -> a[batch, 4, ...] -> b[batch, 4, ...]
  static TestModel TwoConvs() {
    TestModel model;
    Attributes first, second;
    first.Set("strides", std::vector<int64_t>{2});
    first.Set("pads", std::vector<int64_t>{2, 1});
    second.Set("dilations", std::vector<int64_t>{3});
    second.Set("pads", std::vector<int64_t>{3, 3});
    model.Input("x", DataType::kFloat,
                {Dimension::Symbol("batch"), 3, Dimension::Symbol("length")});
    model.Constant("w", Ramp(Shape{4, 3, 5}, 0.1f)).Constant("bias", Ramp(Shape{4}, 0.2f));
    model.Constant("v", Ramp(Shape{4, 4, 3}, 0.1f));
    model.Node("Conv", {"x", "w", "bias"}, {"a"}, first).Node("Relu", {"a"}, {"r"});
    model.Node("Conv", {"r", "v"}, {"b"}, second);
    return model;
  }
};

TEST_F(SignalImages, TakesWhatLiesBetweenConvolutionsAlong) {
  TestModel model = TwoConvs();
  Attributes pool, axis;
  pool.Set("kernel_shape", std::vector<int64_t>{3});
  pool.Set("pads", std::vector<int64_t>{1, 0});
  axis.Set("axis", int64_t{1});
  model.Constant("slope", Ramp(Shape{4, 1}, 0.1f)).Constant("scale", Ramp(Shape{1, 4, 1}, 0.3f));
  model.Node("Add", {"b", "r"}, {"s"}).Node("PRelu", {"s", "slope"}, {"p"});
  model.Node("Mul", {"scale", "p"}, {"m"}).Node("Concat", {"m", "b"}, {"c"}, axis);
  model.Node("MaxPool", {"c"}, {"y"}, pool).Output("y").Output("s");
  TestModel copy = model;
  EXPECT_EQ(After(model, ProviderPass("signal_images")),
            "Unsqueeze Conv Relu Conv Add PRelu Mul Concat MaxPool Squeeze Squeeze");
  for (const int64_t length : {9, 20}) {
    ExpectSameResults(copy, {Ramp(Shape{2, 3, length}, 0.5f)});
  }
}

// A gated linear unit, as between a conformer's convolutions.
TEST_F(SignalImages, SplitsChannelsOfImages) {
  for (const int64_t axis : {1, -2}) {
    TestModel model(18);
    Attributes split;
    split.Set("axis", axis);
    split.Set("num_outputs", int64_t{2});
    model.Input("x", DataType::kFloat, {2, 4, 9}).Constant("w", Ramp(Shape{4, 4, 3}, 0.1f));
    model.Constant("v", Ramp(Shape{4, 2, 3}, 0.1f));
    model.Node("Conv", {"x", "w"}, {"a"}).Node("Split", {"a"}, {"b", "c"}, split);
    model.Node("Sigmoid", {"c"}, {"d"}).Node("Mul", {"b", "d"}, {"e"});
    model.Node("Conv", {"e", "v"}, {"y"}).Output("y").Output("b");
    TestModel copy = model;
    EXPECT_EQ(After(model, ProviderPass("signal_images")),
              "Unsqueeze Conv Split Sigmoid Mul Conv Squeeze Squeeze");
    ExpectSameResults(copy, {Ramp(Shape{2, 4, 9}, 0.5f)});
  }
}

// As PyTorch's exporters write GroupNorm.
TEST_F(SignalImages, KeepsImagesThroughNormalizations) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 4, 9}).Constant("w", Ramp(Shape{4, 4, 3}, 0.1f));
  model.Constant("ones", Floats({2}, {1, 1})).Constant("zeros", Floats({2}, {0, 0}));
  model.Constant("scale", Ramp(Shape{4, 1}, 0.3f)).Constant("bias", Ramp(Shape{4, 1}, 0.1f));
  model.Constant("joined", Ints({3}, {0, 2, -1})).Constant("back", Ints({3}, {2, 4, 7}));
  model.Constant("row", Ramp(Shape{4}, 0.2f)).Constant("variance", Floats({4}, {1, 2, 3, 4}));
  model.Node("Conv", {"x", "w"}, {"a"}).Node("Reshape", {"a", "joined"}, {"b"});
  model.Node("InstanceNormalization", {"b", "ones", "zeros"}, {"c"});
  model.Node("Reshape", {"c", "back"}, {"d"}).Node("Mul", {"d", "scale"}, {"e"});
  model.Node("Add", {"e", "bias"}, {"f"}).Node("InstanceNormalization", {"f", "row", "row"}, {"g"});
  model.Node("BatchNormalization", {"g", "row", "row", "row", "variance"}, {"h"});
  model.Node("Conv", {"h", "w"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("group_normalization"), ProviderPass("signal_images"),
                          DeadCodeElimination()}),
            "Unsqueeze Conv GroupNormalization InstanceNormalization BatchNormalization Conv "
            "Squeeze");
  ExpectSameResults(copy, {Ramp(Shape{2, 4, 9}, 0.5f)});
}

TEST_F(SignalImages, NeedsNoTranspositionThatTheFileUndoes) {
  TestModel model;
  model.Input("x", DataType::kFloat, {1, 20, 3}).Constant("w", Ramp(Shape{4, 3, 5}, 0.1f));
  model.Node("Transpose", {"x"}, {"t"}, Order({0, 2, 1})).Node("Conv", {"t", "w"}, {"c"});
  model.Node("Relu", {"c"}, {"r"}).Node("Transpose", {"r"}, {"y"}, Order({0, 2, 1})).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("signal_images"), ProviderPass("channels_last"),
                          DeadCodeElimination()}),
            "Unsqueeze ConvChannelsLast Relu Squeeze");
  ExpectSameResults(copy, {Ramp(Shape{1, 20, 3}, 0.5f)});
}

TEST_F(SignalImages, GivesBackSignalsThatOthersRead) {
  TestModel model = TwoConvs();
  Attributes last;
  last.Set("axis", int64_t{-1});
  model.Node("Softmax", {"r"}, {"y"}, last).Output("y").Output("b");
  TestModel copy = model;
  EXPECT_EQ(After(model, ProviderPass("signal_images")),
            "Unsqueeze Conv Relu Conv Squeeze Softmax Squeeze");
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 11}, 0.5f)});
}

class SubPixelConv : public testing::Test {
 protected:
  void SetUp() override {
    if (ProviderPass("sub_pixel_conv") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  }

  // x[batch, 3, length] -> t[batch, 4, ...]
  static TestModel Transposed(int64_t window, int64_t stride, std::vector<int64_t> pads,
                              int64_t added = 0) {
    TestModel model;
    Attributes attributes;
    attributes.Set("strides", std::vector<int64_t>{stride});
    attributes.Set("pads", std::move(pads));
    if (added > 0) attributes.Set("output_padding", std::vector<int64_t>{added});
    model.Input("x", DataType::kFloat,
                {Dimension::Symbol("batch"), 3, Dimension::Symbol("length")});
    model.Constant("w", Ramp(Shape{3, 4, window}, 0.1f)).Constant("b", Ramp(Shape{4}, 0.2f));
    model.Node("ConvTranspose", {"x", "w", "b"}, {"t"}, attributes);
    return model;
  }

  static std::string After(TestModel model) {
    return onnxd::After(model, ProviderPass("sub_pixel_conv"));
  }

  static void ExpectSameForAnyLength(const TestModel& model) {
    for (const int64_t length : {1, 2, 9}) ExpectSameResults(model, {Ramp({2, 3, length}, 0.5f)});
  }
};

TEST_F(SubPixelConv, MakesAllPhasesOfTheStrideAtOnce) {
  const struct {
    int64_t window, stride;
    std::vector<int64_t> pads;
    int64_t added;
    const char* after;
  } cases[] = {{4, 2, {1, 1}, 0, "Conv Transpose Reshape Slice Transpose"},
               {16, 8, {4, 4}, 0, "Conv Transpose Reshape Slice Transpose"},
               {3, 3, {0, 0}, 0, "Conv Transpose Reshape Transpose"},
               {6, 2, {3, 0}, 0, "Conv Transpose Reshape Slice Transpose"},
               {6, 3, {0, 2}, 2, "Conv Transpose Reshape Transpose"}};
  for (const auto& c : cases) {
    TestModel model = Transposed(c.window, c.stride, c.pads, c.added);
    model.Output("t");
    EXPECT_EQ(After(model), c.after);
    ExpectSameForAnyLength(model);
  }
}

TEST_F(SubPixelConv, ComputesImagesToo) {
  const struct {
    std::vector<int64_t> window, strides, pads;
    const char* after;
  } cases[] = {{{2, 2}, {2, 2}, {0, 0, 0, 0}, "Conv DepthToSpace Identity"},
               {{4, 4}, {2, 2}, {1, 1, 1, 1}, "Conv DepthToSpace Slice Identity"},
               {{3, 6}, {3, 3}, {0, 1, 0, 2}, "Conv DepthToSpace Slice Identity"},
               {{2, 3}, {2, 3}, {0, 0, 0, 0}, "ConvTranspose"}};
  for (const auto& c : cases) {
    TestModel model;
    Attributes attributes;
    attributes.Set("strides", c.strides);
    attributes.Set("pads", c.pads);
    model.Input("x", DataType::kFloat, {2, 3, 5, 4});
    model.Constant("w", Ramp(Shape{3, 4, c.window[0], c.window[1]}, 0.1f));
    model.Node("ConvTranspose", {"x", "w"}, {"t"}, attributes).Output("t");
    EXPECT_EQ(After(model), c.after);
    ExpectSameResults(model, {Ramp({2, 3, 5, 4}, 0.5f)});
  }
}

TEST_F(SubPixelConv, TakesWhatFollowsElementByElementBeforeTheyAreInterleaved) {
  TestModel model = Transposed(4, 2, {1, 1});
  model.Node("LeakyRelu", {"t"}, {"y"}).Output("y");
  EXPECT_EQ(After(model), "Conv LeakyRelu Transpose Reshape Slice Transpose");
  ExpectSameForAnyLength(model);
}

TEST_F(SubPixelConv, LeavesAResultThatOthersReadAsItIs) {
  TestModel model = Transposed(4, 2, {1, 1});
  model.Node("Relu", {"t"}, {"y"}).Output("y").Output("t");
  EXPECT_EQ(After(model), "Conv Transpose Reshape Slice Transpose Relu");
  ExpectSameForAnyLength(model);
}

TEST_F(SubPixelConv, LeavesWindowsThatTheStrideDoesNotDivide) {
  TestModel model = Transposed(5, 2, {1, 1});
  model.Output("t");
  EXPECT_EQ(After(model), "ConvTranspose");
}

// Windows of every kind over x[2, 3, 5, 6, 7], alone and with a sum and an activation.
TEST(VolumeImages, ComputesAsPlainConvolutionsDo) {
  if (ProviderPass("volume_images") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  const struct {
    Shape weights;
    std::vector<int64_t> strides, dilations, pads;
  } cases[] = {{{4, 3, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1, 1, 1, 1}},
               {{4, 3, 3, 2, 3}, {2, 1, 2}, {1, 1, 1}, {1, 0, 1, 0, 1, 1}},
               {{4, 3, 2, 3, 1}, {1, 2, 1}, {3, 1, 2}, {0, 1, 0, 0, 2, 0}},
               {{4, 3, 1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {0, 0, 0, 0, 0, 0}}};
  for (const auto& c : cases) {
    TestModel model;
    Attributes window;
    window.Set("strides", c.strides);
    window.Set("dilations", c.dilations);
    window.Set("pads", c.pads);
    model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 3, 5, 6, 7});
    model.Constant("w", Ramp(c.weights, 0.1f)).Constant("b", Ramp(Shape{4}, 0.3f));
    model.Node("Conv", {"x", "w", "b"}, {"c"}, window).Node("Exp", {"c"}, {"e"});
    model.Node("Conv", {"x", "w", "b"}, {"d"}, window).Node("Add", {"d", "c"}, {"s"});
    model.Node("Relu", {"s"}, {"y"}).Output("y").Output("e");
    TestModel copy = model;
    EXPECT_EQ(After(model, ProviderPass("volume_images")).find("Conv Exp"), std::string::npos);
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 5, 6, 7}, 0.1f)});
  }
}

TEST(VolumeImages, MayHaveHeightsAndWidthsThatOnlyRunsKnow) {
  if (ProviderPass("volume_images") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  for (const int64_t depth : {1, 3}) {
    TestModel model;
    Attributes window;
    window.Set("pads", std::vector<int64_t>{0, 1, 1, 0, 1, 2});
    model.Input("x", DataType::kFloat,
                {Dimension::Symbol("batch"), 4, depth, Dimension::Symbol("height"),
                 Dimension::Symbol("width")});
    model.Constant("w", Ramp(Shape{4, 4, 1, 3, 4}, 0.1f));
    model.Node("Conv", {"x", "w"}, {"a"}, window).Node("Exp", {"a"}, {"e"});
    model.Node("Conv", {"a", "w"}, {"y"}, window).Output("y").Output("e");
    TestModel copy = model;
    EXPECT_EQ(
        After(model, {ProviderPass("volume_images"), ProviderPass("channels_last")}).find(" Conv "),
        std::string::npos);
    ExpectSameResults(copy, {Ramp(Shape{2, 4, depth, 6, 7}, 0.1f)});
    ExpectSameResults(copy, {Ramp(Shape{1, 4, depth, 9, 5}, 0.1f)});
  }
}

// SAME pads by extents that are not known.
TEST(VolumeImages, KeepTheirPaddingWhereOnlyRunsKnowIt) {
  if (ProviderPass("volume_images") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  TestModel model;
  Attributes window;
  window.Set("auto_pad", "SAME_UPPER");
  window.Set("strides", std::vector<int64_t>{1, 2, 2});
  model.Input("x", DataType::kFloat,
              {1, 4, 1, Dimension::Symbol("height"), Dimension::Symbol("width")});
  model.Constant("w", Ramp(Shape{4, 4, 1, 3, 3}, 0.1f));
  model.Node("Conv", {"x", "w"}, {"y"}, window).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, ProviderPass("volume_images")), "Conv");
  ExpectSameResults(copy, {Ramp(Shape{1, 4, 1, 9, 6}, 0.1f)});
}

// What one convolution gives the next one, and its sum, stays images.
TEST(VolumeImages, HandEachOtherImages) {
  if (ProviderPass("volume_images") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  TestModel model;
  Attributes window;
  window.Set("pads", std::vector<int64_t>{1, 1, 1, 1, 1, 1});
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 4, 5, 6, 7});
  model.Constant("w", Ramp(Shape{4, 4, 3, 3, 3}, 0.1f));
  Attributes activation = window;
  activation.Set("activation", "Relu");
  model.Node("FusedConv", {"x", "w"}, {"a"}, activation, "com.microsoft");
  model.Node("FusedConv", {"a", "w", "", "x"}, {"y"}, activation, "com.microsoft").Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, {ProviderPass("volume_images"), DeadCodeElimination(),
                          ProviderPass("channels_last")}),
            "Transpose Reshape Transpose DepthWindows ConvChannelsLast DepthWindows "
            "ConvChannelsLast Transpose Reshape Transpose");
  ExpectSameResults(copy, {Ramp(Shape{2, 4, 5, 6, 7}, 0.1f)});
}

// Threads sum a part of the pixels each where there are many.
TEST_F(ChannelsLast, AveragesImagesByAnyNumberOfThreads) {
  for (const auto& [channels, side] : {std::pair<int64_t, int64_t>{32, 29}, {8, 3}, {96, 24}}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 4, side, side});
    model.Constant("w", Ramp(Shape{channels, 4, 1, 1}, 0.05f));
    model.Node("Conv", {"x", "w"}, {"c"}).Node("GlobalAveragePool", {"c"}, {"y"}).Output("y");
    for (const int threads : {1, 2, 3}) {
      ExpectSameResults(model, {Ramp(Shape{2, 4, side, side}, 0.1f)}, threads);
    }
  }
}

// One number added after the other would be off by 2e-3.
TEST_F(ChannelsLast, AveragesLargeImagesExactly) {
  constexpr int64_t kChannels = 16, kSide = 700;
  for (const bool is_depthwise : {false, true}) {
    TestModel model;
    Tensor w = *Tensor::Create(DataType::kFloat, Shape{kChannels, 1, 1, 1});
    Tensor middle = *Tensor::Create(DataType::kFloat, Shape{kChannels, 1, 3, 3});
    std::fill_n(middle.mutable_data<float>(), middle.ElementCount(), 0.0f);
    for (int64_t c = 0; c < kChannels; ++c) {
      w.mutable_data<float>()[c] = 0.1f * static_cast<float>(c + 1);
      middle.mutable_data<float>()[c * 9 + 4] = 1.0f;
    }
    model.Input("x", DataType::kFloat, {1, 1, kSide, kSide}).Constant("w", w);
    model.Constant("b", Floats(Shape{1}, {3})).Node("Conv", {"x", "w"}, {"c0"});
    model.Node("Add", {"c0", "b"}, {"c"});
    if (is_depthwise) {
      Attributes window;
      window.Set("group", kChannels);
      window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
      model.Constant("middle", middle).Node("Conv", {"c", "middle"}, {"d"}, window);
    }
    model.Node("GlobalAveragePool", {is_depthwise ? "d" : "c"}, {"y"}).Output("y");
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    Tensor x = *Tensor::Create(DataType::kFloat, Shape{1, 1, kSide, kSide});
    std::mt19937 random(1);
    std::uniform_real_distribution<float> numbers(0, 1);
    std::generate_n(x.mutable_data<float>(), x.ElementCount(), [&] { return numbers(random); });
    double mean = 0;
    for (const float number : x.elements<float>()) mean += static_cast<double>(number);
    mean /= static_cast<double>(kSide * kSide);
    const auto outputs = (*session)->Run(std::vector<Value>{x}, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    for (int64_t c = 0; c < kChannels; ++c) {
      const double wanted = 3 + mean * static_cast<double>(w.data<float>()[c]);
      EXPECT_NEAR((*outputs)[0].tensor().data<float>()[c], wanted, 1e-5) << is_depthwise;
    }
  }
}

}  // namespace
}  // namespace onnxd
