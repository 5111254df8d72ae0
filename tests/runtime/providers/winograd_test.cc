// The CPU provider's pass that chooses Winograd's convolutions, and what they give.

#include "runtime/base/str_cat.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

class Winograd : public testing::Test {
 protected:
  void SetUp() override {
    if (ProviderPass("winograd") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  }

  static TestModel ConvModel(Dimension height, Dimension width, std::vector<int64_t> pads) {
    TestModel model;
    Attributes attributes;
    attributes.Set("pads", std::move(pads));
    model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 32, height, width});
    model.Constant("w", Ramp(Shape{48, 32, 3, 3}, 0.01f)).Constant("b", Ramp(Shape{48}, 0.1f));
    model.Node("Conv", {"x", "w", "b"}, {"c"}, attributes);
    return model;
  }

  static std::string FinalOperators(TestModel model) {
    return After(model, {ProviderPass("channels_last"), ProviderPass("winograd")});
  }

  // Of the convolutions in their order.
  static std::vector<int64_t> FinalTiles(TestModel model) {
    After(model, ProviderPass("channels_last"));
    EXPECT_TRUE(*ProviderPass("winograd")->Run(model.graph(), PassContext()));
    std::vector<int64_t> tiles;
    for (const Node& node : model.graph().nodes) {
      if (node.op_type == "ConvWinograd") tiles.push_back(node.attributes.Int("tile", 0));
    }
    return tiles;
  }
};

TEST_F(Winograd, ComputesImagesOfAnySizeAndPadding) {
  for (const auto& pads : {std::vector<int64_t>{1, 1, 1, 1}, {0, 0, 0, 0}, {2, 0, 1, 2}}) {
    for (const int64_t width : {14, 15, 17, 29, 30}) {
      const int64_t height = width < 20 ? 16 : 31;
      TestModel model = ConvModel(height, width, pads);
      model.Node("Relu", {"c"}, {"y"}).Output("y");
      EXPECT_NE(FinalOperators(model).find("ConvWinograd"), std::string::npos);
      ExpectSameResults(model, {Ramp(Shape{2, 32, height, width}, 0.2f)});
    }
  }
}

TEST_F(Winograd, TakesTheRowsTogetherThatADilationDoes) {
  const auto model_of = [](std::vector<int64_t> dilations, Dimension height, Dimension width) {
    TestModel model = ConvModel(height, width, {dilations[0], dilations[1], 2, 3});
    model.graph().nodes[0].attributes.Set("dilations", std::move(dilations));
    model.Node("Relu", {"c"}, {"y"}).Output("y");
    return model;
  };
  for (const auto& dilations : {std::vector<int64_t>{2, 2}, {3, 1}, {1, 4}}) {
    for (const int64_t width : {29, 32, 65}) {
      const TestModel model = model_of(dilations, 30, width);
      EXPECT_NE(FinalOperators(model).find("ConvWinograd"), std::string::npos);
      ExpectSameResults(model, {Ramp(Shape{2, 32, 30, width}, 0.2f)});
    }
  }
  // Five rows of each phase would be mostly border.
  EXPECT_EQ(FinalOperators(model_of({6, 6}, 30, 30)).find("ConvWinograd"), std::string::npos);
  // An image with fewer rows than the dilation leaves phases without any.
  const TestModel unknown =
      model_of({3, 2}, Dimension::Symbol("height"), Dimension::Symbol("width"));
  EXPECT_NE(FinalOperators(unknown).find("ConvWinograd"), std::string::npos);
  ExpectSameResults(unknown, {Ramp(Shape{2, 32, 3, 9}, 0.2f)});
  ExpectSameResults(unknown, {Ramp(Shape{1, 32, 40, 33}, 0.2f)});
}

TEST_F(Winograd, AddsAResidualAndAppliesAnyActivation) {
  for (const char* activation : {"Relu", "Sigmoid", "HardSwish"}) {
    TestModel model = ConvModel(12, 13, {1, 1, 1, 1});
    model.Input("r", DataType::kFloat, {Dimension::Symbol("batch"), 48, 12, 13});
    model.Node("Add", {"c", "r"}, {"t"}).Node(activation, {"t"}, {"y"}).Output("y");
    TestModel copy = model;
    ExpectSameResults(copy, {Ramp(Shape{3, 32, 12, 13}, 0.2f), Ramp(Shape{3, 48, 12, 13}, 0.3f)});
  }
}

TEST_F(Winograd, GoesByARaceWhereTheSizeOfTheImageSaysLittle) {
  const auto operators = [](int64_t extent, size_t winner, size_t& races) {
    TestModel model = ConvModel(extent, extent, {1, 1, 1, 1});
    model.Node("Relu", {"c"}, {"y"}).Output("y");
    EXPECT_EQ(After(model, ProviderPass("channels_last")),
              "Transpose ConvChannelsLast Relu Transpose");
    PassContext context;
    context.race = [&](const std::string&, std::span<const Node> candidates,
                       std::span<const KernelRaceOperand> operands) {
      ++races;
      EXPECT_EQ(candidates.size(), 3u);
      EXPECT_TRUE(!operands[0].is_constant && operands[1].is_constant);
      EXPECT_EQ(operands[0].shape, (Shape{1, extent, extent, 32}));
      return winner;
    };
    EXPECT_TRUE(ProviderPass("winograd")->Run(model.graph(), context).ok());
    const Node& conv = model.graph().nodes[1];
    return StrCat(conv.op_type, " ", conv.attributes.Int("tile", 0));
  };
  size_t races = 0;
  EXPECT_EQ(operators(16, 0, races), "ConvChannelsLast 0");
  EXPECT_EQ(operators(16, 1, races), "ConvWinograd 2");
  EXPECT_EQ(operators(28, 2, races), "ConvWinograd 4");
  EXPECT_EQ(races, 3u);
  EXPECT_EQ(operators(56, 0, races), "ConvWinograd 4");
  EXPECT_EQ(races, 3u);
}

// Of these weights, tiles of 2 pixels need 16 numbers for 9: 1.12 M more for 400 channels.
TEST_F(Winograd, LeavesWeightsThatWouldOutgrowTheBudget) {
  const auto final_operators = [](int64_t channels, int64_t extent, int64_t other_weights) {
    TestModel model;
    Attributes pads;
    pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Input("x", DataType::kFloat, {1, channels, extent, extent})
        .Constant("w", Ramp(Shape{channels, channels, 3, 3}, 0.1f))
        .Constant("others", Ramp(Shape{other_weights}, 0.1f));
    model.Node("Conv", {"x", "w"}, {"y"}, pads).Output("y");
    return FinalOperators(model);
  };
  const std::string direct = "Transpose ConvChannelsLast Transpose",
                    winograd = "Transpose ConvWinograd Transpose";
  EXPECT_EQ(final_operators(400, 14, 1), direct);
  EXPECT_EQ(final_operators(368, 14, 1), winograd);  // 0.95 M: below 4 MB
  // A fifth of all weights; a half where many pixels read them.
  EXPECT_EQ(final_operators(400, 14, 4'000'000), direct);
  EXPECT_EQ(final_operators(400, 14, 4'500'000), winograd);
  EXPECT_EQ(final_operators(400, 24, 500'000), direct);
  EXPECT_EQ(final_operators(400, 24, 1'000'000), winograd);  // in tiles of 2, where 4 have no room
  EXPECT_EQ(final_operators(400, 23, 1'000'000), direct);
}

// Weights that images of several sizes share, as detectors have them, have tiles of 4 before others
// of fewer pixels; these have tiles of 2, which take less.
TEST_F(Winograd, SpendsTheBudgetWhereMostPixelsAre) {
  TestModel model;
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  model.Constant("w", Ramp(Shape{160, 160, 3, 3}, 0.01f));  // 0.92 M, packed for 4, of 1.05 M
  model.Constant("v", Ramp(Shape{128, 128, 3, 3}, 0.01f));  // 0.44 M more than they are, or 0.11 M
  model.Input("small", DataType::kFloat, {1, 128, 26, 26});
  model.Node("Conv", {"small", "v"}, {"y"}, pads).Output("y");
  for (const int64_t extent : {48, 56, 64}) {
    const std::string x = StrCat("x", extent), y = StrCat("y", extent);
    model.Input(x, DataType::kFloat, {1, 160, extent, extent});
    model.Node("Conv", {x, "w"}, {y}, pads).Output(y);
  }
  EXPECT_EQ(FinalTiles(std::move(model)), (std::vector<int64_t>{2, 4, 4, 4}));
}

// Both in tiles of 4 are 1.11 M numbers more than the model's, of which 1.05 M are allowed.
TEST_F(Winograd, EnlargesTheTilesOfTheLargestWeightsFirst) {
  TestModel model;
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  for (const int64_t channels : {64, 192}) {
    const std::string x = StrCat("x", channels), w = StrCat("w", channels),
                      y = StrCat("y", channels);
    model.Constant(w, Ramp(Shape{channels, channels, 3, 3}, 0.01f));
    model.Input(x, DataType::kFloat, {1, channels, 32, 32});
    model.Node("Conv", {x, w}, {y}, pads).Output(y);
  }
  EXPECT_EQ(FinalTiles(std::move(model)), (std::vector<int64_t>{2, 4}));
}

}  // namespace
}  // namespace onnxd
