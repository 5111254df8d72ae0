// Convolutions by loops of our own, and the passes that lead to them: the graph before and after,
// and the same results.
#include "runtime/math/simd.h"
#include "runtime/optimizer/pass_manager.h"
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/every_simd.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

class ExpandDepthwise : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"channels_last", "expand_depthwise"}) {
      passes_.push_back(ProviderPass(name));
      if (passes_.back() == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    }
    passes_.push_back(DeadCodeElimination());
  }

  // 1 x 1 to 80 channels, then a kernel x kernel window over each of them.
  TestModel Block(int64_t batch, int64_t kernel, int64_t stride, std::vector<int64_t> pads,
                  const std::string& activation, int64_t in = 7) {
    TestModel model;
    model.Input("x", DataType::kFloat, {batch, in, 61, 53});
    model.Constant("e", Ramp(Shape{80, in, 1, 1}, 0.05f)).Constant("eb", Ramp(Shape{80}, 0.1f));
    model.Constant("w", Ramp(Shape{80, 1, kernel, kernel}, 0.02f));
    Attributes window;
    window.Set("group", int64_t{80});
    window.Set("strides", std::vector<int64_t>{stride, stride});
    window.Set("pads", std::move(pads));
    model.Node("Conv", {"x", "e", "eb"}, {"a"});
    if (activation == "Silu") {
      model.Node("Sigmoid", {"a"}, {"s"}).Node("Mul", {"a", "s"}, {"b"});
    } else {
      model.Node(activation, {"a"}, {"b"});
    }
    model.Node("Conv", {"b", "w"}, {"c"}, window).Node("Relu", {"c"}, {"y"}).Output("y");
    return model;
  }

  std::vector<const GraphPass*> passes_;
};

TEST_F(ExpandDepthwise, TakesALargeExpansionThatNothingElseReads) {
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel again = Block(1, 3, 1, {1, 1, 1, 1}, "Relu");
  EXPECT_EQ(After(again, passes), "Transpose ExpandDepthwise Transpose");
  TestModel read = Block(1, 3, 1, {1, 1, 1, 1}, "Relu");
  read.Output("b");
  EXPECT_EQ(After(read, passes), "Transpose ConvChannelsLast ConvChannelsLast Transpose Transpose");
}

TEST_F(ExpandDepthwise, LeavesADeepProductToDigits) {
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel deep = Block(1, 3, 1, {1, 1, 1, 1}, "Relu", 128);
  const bool has_digits = math::CurrentSimd().packed_digits_gemm != nullptr;
  EXPECT_EQ(After(deep, passes), has_digits
                                     ? "Transpose ConvChannelsLast ConvChannelsLast Transpose"
                                     : "Transpose ExpandDepthwise Transpose");
}

// A block of MobileNetV2: what goes in is added to what comes out.
TEST_F(ExpandDepthwise, TakesTheProjectionThatFollows) {
  const auto block = [&](int64_t batch, bool adds) {
    TestModel model;
    model.Input("i", DataType::kFloat, {batch, 7, 61, 53});
    model.Constant("e", Ramp(Shape{80, 7, 1, 1}, 0.05f))
        .Constant("w", Ramp(Shape{80, 1, 3, 3}, 0.02f));
    model.Constant("p", Ramp(Shape{7, 80, 1, 1}, 0.01f)).Constant("b", Ramp(Shape{7}, 0.1f));
    Attributes window;
    window.Set("group", int64_t{80});
    window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Relu", {"i"}, {"x"}).Node("Conv", {"x", "e"}, {"a"}).Node("Relu", {"a"}, {"r"});
    model.Node("Conv", {"r", "w"}, {"c"}, window).Node("Sigmoid", {"c"}, {"s"});
    model.Node("Conv", {"s", "p", "b"}, {"y"});
    if (adds) model.Node("Add", {"y", "x"}, {"z"});
    return std::move(model.Output(adds ? "z" : "y"));
  };
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  for (const bool adds : {false, true}) {
    TestModel again = block(1, adds);
    EXPECT_TRUE(After(again, passes).ends_with(" ExpandDepthwise Transpose"));
    for (const int64_t batch : {1, 2}) {
      ExpectSameResults(block(batch, adds), {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 1);
      ExpectSameResults(block(batch, adds), {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 3);
    }
  }
}

// Channels of which the last ones are computed twice, widths of which the last pixels are.
TEST_F(ExpandDepthwise, MakesTheMeansThatSqueezeAndExciteAsksFor) {
  const auto block = [](int64_t batch, int64_t width, const char* activation) {
    TestModel model;
    model.Input("x", DataType::kFloat, {batch, 7, 91, width});
    model.Constant("e", Ramp(Shape{72, 7, 1, 1}, 0.05f));
    model.Constant("w", Ramp(Shape{72, 1, 3, 3}, 0.02f));
    Attributes window;
    window.Set("group", int64_t{72});
    window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Conv", {"x", "e"}, {"a"}).Node("Relu", {"a"}, {"r"});
    model.Node("Conv", {"r", "w"}, {"c"}, window).Node(activation, {"c"}, {"y"});
    model.Node("GlobalAveragePool", {"y"}, {"m"});
    return std::move(model.Output("y").Output("m"));
  };
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel summed = block(1, 53, "Relu"), apart = block(1, 53, "Sigmoid");
  EXPECT_EQ(After(summed, passes).find("GlobalAveragePool"), std::string::npos);
  EXPECT_NE(After(apart, passes).find("GlobalAveragePool"), std::string::npos);
  for (const char* activation : {"Relu", "Sigmoid"}) {
    for (const int64_t batch : {1, 2}) {
      for (const int64_t width : {53, 56}) {
        const TestModel model = block(batch, width, activation);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 91, width}, 0.1f)}, 1);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 91, width}, 0.1f)}, 3);
      }
    }
  }
}

// Nor is anything computed twice where a projection alone reads what the means are of.
TEST_F(ExpandDepthwise, LeavesTheProjectionOfWhatItMakesMeansOf) {
  TestModel model;
  model.Input("x", DataType::kFloat, {1, 7, 61, 53});
  model.Constant("e", Ramp(Shape{80, 7, 1, 1}, 0.05f))
      .Constant("w", Ramp(Shape{80, 1, 3, 3}, 0.02f));
  model.Constant("p", Ramp(Shape{9, 80, 1, 1}, 0.01f));
  Attributes window;
  window.Set("group", int64_t{80});
  model.Node("Conv", {"x", "e"}, {"a"}).Node("Conv", {"a", "w"}, {"c"}, window);
  model.Node("GlobalAveragePool", {"c"}, {"m"}).Node("Conv", {"c", "p"}, {"y"});
  model.Output("m").Output("y");
  TestModel again = model;
  auto passes = StandardPasses();
  for (int round = 0; round < 2; ++round) {
    passes.insert(passes.end(), passes_.begin(), passes_.end());
  }
  const std::string after = After(again, passes);
  EXPECT_EQ(after.find("Depthwise"), after.rfind("Depthwise")) << after;
  ExpectSameResults(model, {Ramp(Shape{1, 7, 61, 53}, 0.1f)}, 1);
}

// A result that is made over the image that it is of: of small images, whose expansion is a step of
// its own.
class DepthwiseOverItsImage : public math::WithSimd {
 protected:
  struct Image {
    int64_t batch, height, width, channels;
  };

  void SetUp() override {
    if (ProviderPass("channels_last") == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    math::WithSimd::SetUp();
  }

  static TestModel Block(const Image& image, int64_t kernel, int64_t first_pad) {
    TestModel model;
    const int64_t c = image.channels, last_pad = kernel - 1 - first_pad;
    model.Input("x", DataType::kFloat, {image.batch, 8, image.height, image.width});
    model.Constant("e", Ramp(Shape{c, 8, 1, 1}, 0.05f));
    model.Constant("w", Ramp(Shape{c, 1, kernel, kernel}, 0.02f)).Constant("b", Ramp(Shape{c}, 1));
    model.Constant("p", Ramp(Shape{8, c, 1, 1}, 0.01f));
    Attributes window;
    window.Set("group", c);
    window.Set("pads", std::vector<int64_t>{first_pad, first_pad, last_pad, last_pad});
    model.Node("Conv", {"x", "e"}, {"a"}).Node("Relu", {"a"}, {"r"});
    model.Node("Conv", {"r", "w", "b"}, {"d"}, window).Node("Relu", {"d"}, {"s"});
    model.Node("Conv", {"s", "p"}, {"y"});
    return std::move(model.Output("y"));
  }
};

TEST_P(DepthwiseOverItsImage, HasTheSameResult) {
  for (const Image& image : {Image{1, 14, 14, 64},
                             {2, 7, 7, 64},
                             {1, 5, 6, 48},
                             {2, 9, 15, 32},
                             {1, 20, 41, 32},
                             {1, 9, 13, 40},
                             {1, 16, 28, 40},  // pixels of no whole lines of 64 bytes
                             {2, 11, 10, 24},
                             {1, 1, 8, 32}}) {
    for (const int64_t kernel : {3, 5, 7}) {
      for (const int64_t first_pad : {kernel / 2, int64_t{0}, kernel - 1}) {
        for (const int threads : {1, 2}) {
          ExpectSameResults(Block(image, kernel, first_pad),
                            {Ramp(Shape{image.batch, 8, image.height, image.width}, 0.1f)},
                            threads);
        }
      }
    }
  }
}

// As networks have it whose shortcuts meet a depthwise convolution before the activation.
TEST_P(DepthwiseOverItsImage, AddsASum) {
  for (const Image& image : {Image{1, 14, 14, 12}, {2, 20, 41, 32}, {1, 5, 30, 640}}) {
    const int64_t c = image.channels;
    for (const char* activation : {"", "Relu", "Sigmoid", "HardSwish"}) {
      TestModel model;
      model.Input("x", DataType::kFloat, {image.batch, 8, image.height, image.width});
      model.Constant("e", Ramp(Shape{c, 8, 1, 1}, 0.05f));
      model.Constant("w", Ramp(Shape{c, 1, 3, 3}, 0.02f)).Constant("b", Ramp(Shape{c}, 1));
      Attributes window;
      window.Set("group", c);
      window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
      model.Node("Conv", {"x", "e"}, {"a"}).Node("Relu", {"a"}, {"r"});
      model.Node("Conv", {"r", "w", "b"}, {"d"}, window).Node("Add", {"d", "r"}, {"s"});
      if (*activation != 0) model.Node(activation, {"s"}, {"y"});
      model.Output(*activation != 0 ? "y" : "s");
      for (const int threads : {1, 2}) {
        ExpectSameResults(model, {Ramp(Shape{image.batch, 8, image.height, image.width}, 0.1f)},
                          threads);
      }
    }
  }
}

// Windows that are no row of 3, 5 or 7 pixels side by side: of dilated convolutions, and of
// signals.
struct OddWindow {
  const char* name;
  std::vector<int64_t> kernel, dilations, strides, pads;
};

class DepthwiseOfOddWindows : public testing::TestWithParam<OddWindow> {};

TEST_P(DepthwiseOfOddWindows, HaveTheSameResult) {
  const OddWindow& odd = GetParam();
  for (const int64_t height : {1, 9}) {
    for (const int64_t channels : {5, 32, 40}) {
      if (odd.kernel[0] > 1 && height == 1) continue;
      TestModel model;
      model.Input("x", DataType::kFloat, {2, 8, height, 61});
      model.Constant("e", Ramp(Shape{channels, 8, 1, 1}, 0.05f));
      model.Constant("w", Ramp(Shape{channels, 1, odd.kernel[0], odd.kernel[1]}, 0.02f));
      model.Constant("b", Ramp(Shape{channels}, 1));
      Attributes window;
      window.Set("group", channels);
      window.Set("dilations", odd.dilations);
      window.Set("strides", odd.strides);
      window.Set("pads", odd.pads);
      model.Node("Conv", {"x", "e"}, {"a"}).Node("Conv", {"a", "w", "b"}, {"d"}, window);
      model.Node("Relu", {"d"}, {"y"}).Output("y");
      for (const int threads : {1, 3}) {
        ExpectSameResults(model, {Ramp(Shape{2, 8, height, 61}, 0.1f)}, threads);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Convolutions, DepthwiseOfOddWindows,
    testing::Values(OddWindow{"dilated", {1, 3}, {1, 8}, {1, 1}, {0, 8, 0, 8}},
                    OddWindow{"dilated_beyond_the_image", {1, 3}, {1, 64}, {1, 1}, {0, 64, 0, 64}},
                    OddWindow{"dilated_both_ways", {3, 3}, {2, 7}, {1, 1}, {2, 7, 2, 7}},
                    OddWindow{"dilated_with_strides", {3, 5}, {2, 3}, {2, 3}, {1, 7, 3, 5}},
                    OddWindow{"even", {1, 4}, {1, 1}, {1, 1}, {0, 3, 0, 0}},
                    OddWindow{"wide", {1, 31}, {1, 1}, {1, 1}, {0, 15, 0, 15}},
                    OddWindow{"large", {9, 11}, {1, 1}, {1, 1}, {4, 5, 4, 5}},
                    OddWindow{"two_strides", {3, 3}, {1, 1}, {1, 2}, {1, 1, 1, 1}},
                    OddWindow{"one_number", {1, 1}, {1, 1}, {1, 2}, {0, 0, 0, 0}}),
    [](const auto& info) { return std::string(info.param.name); });

// One image of the block's width is there at a time, and a little of another: not two.
TEST_P(DepthwiseOverItsImage, TakesItsMemory) {
  const Image image{1, 28, 28, 192};
  const int64_t wide = 28 * 28 * 192 * 4;
  const Value x = Ramp(Shape{1, 8, 28, 28}, 0.1f);
  const auto run = [&](int64_t bytes) {
    SessionOptions options = DefaultSession();
    options.pool = std::make_shared<ThreadPool>(1);
    options.max_run_bytes = bytes;
    const auto session =
        InferenceSession::FromModel(std::move(Block(image, 3, 1).model()), options);
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return (*session)->Run(std::vector<Value>{x}, {}).status();
  };
  EXPECT_TRUE(run(wide + wide / 2).ok()) << run(wide + wide / 2).ToString();
  EXPECT_FALSE(run(wide).ok());
}

INSTANTIATE_TEST_SUITE_P(Sets, DepthwiseOverItsImage,
                         testing::Values("baseline", "avx2", "avx512", "avx512vnni", "amx"));

// Squeeze-and-excite of an image that outweighs the weights behind it.
TEST(GatedConv, MultipliesTheWeightsInsteadOfTheImage) {
  const auto block = [](int64_t batch, int64_t out, bool adds) {
    TestModel model;
    model.Input("x", DataType::kFloat, {batch, 5, 31, 27});
    model.Constant("w", Ramp(Shape{36, 5, 3, 3}, 0.02f))
        .Constant("g", Ramp(Shape{36, 36, 1, 1}, 0.1f));
    model.Constant("p", Ramp(Shape{out, 36, 1, 1}, 0.03f)).Constant("b", Ramp(Shape{out}, 0.1f));
    model.Constant("q", Ramp(Shape{out, 36, 1, 1}, 0.01f));
    Attributes window;
    window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Conv", {"x", "w"}, {"c"}, window).Node("Relu", {"c"}, {"r"});
    model.Node("GlobalAveragePool", {"r"}, {"m"}).Node("Conv", {"m", "g"}, {"s"});
    model.Node("Sigmoid", {"s"}, {"t"}).Node("Mul", {"t", "r"}, {"u"});
    model.Node("Conv", {"u", "p", "b"}, {"v"});
    if (adds) {
      model.Node("Conv", {"r", "q"}, {"o"}).Node("Add", {"v", "o"}, {"y"});
    } else {
      model.Node("Tanh", {"v"}, {"y"});
    }
    return std::move(model.Output("y"));
  };
  std::vector<const GraphPass*> passes = StandardPasses();
  for (const char* name : {"channels_last", "gated_conv"}) {
    passes.push_back(ProviderPass(name));
    if (passes.back() == nullptr) GTEST_SKIP() << "this build has no oneDNN";
  }
  passes.push_back(DeadCodeElimination());
  for (const bool adds : {false, true}) {
    if (math::CurrentSimd().few_rows != nullptr) {
      TestModel again = block(1, 20, adds);
      const std::string after = After(again, passes);
      EXPECT_NE(after.find("GatedConv"), std::string::npos) << after;
      EXPECT_EQ(after.find("Mul"), std::string::npos) << after;
    }
    for (const int64_t batch : {1, 2}) {
      for (const int64_t out : {20, 70, 200}) {
        ExpectSameResults(block(batch, out, adds), {Ramp(Shape{batch, 5, 31, 27}, 0.1f)}, 1);
        ExpectSameResults(block(batch, out, adds), {Ramp(Shape{batch, 5, 31, 27}, 0.1f)}, 3);
      }
    }
  }
}

TEST_F(ExpandDepthwise, ComputesBandsOfAnyWindow) {
  for (const int64_t batch : {1, 2}) {
    for (const auto& [kernel, stride] : {std::pair{3, 1}, {3, 2}, {5, 2}, {7, 1}}) {
      for (const char* activation : {"Relu", "Silu"}) {
        const TestModel model = Block(batch, kernel, stride, {1, 0, 2, 1}, activation);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 1);
        ExpectSameResults(model, {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 3);
      }
    }
  }
}

// Those of windows that are odd and of stride 1 or 2 are our own loops', the others oneDNN's.
TEST_F(ExpandDepthwise, LeavesOtherWindowsToConvolutions) {
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel wide = Block(1, 2, 3, {1, 0, 2, 1}, "Relu");
  EXPECT_EQ(After(wide, passes), "Transpose ConvChannelsLast ConvChannelsLast Transpose");
  for (const int64_t batch : {1, 2}) {
    for (const auto& [kernel, stride] : {std::pair{2, 3}, {3, 3}, {4, 1}, {9, 2}}) {
      const TestModel model = Block(batch, kernel, stride, {1, 0, 2, 1}, "Relu");
      ExpectSameResults(model, {Ramp(Shape{batch, 7, 61, 53}, 0.1f)}, 3);
    }
  }
}

class PlanarConv : public math::WithSimd {
 protected:
  void SetUp() override {
    for (const char* name : {"channels_last", "planar_conv", "expand_depthwise"}) {
      passes_.push_back(ProviderPass(name));
      if (passes_.back() == nullptr) GTEST_SKIP() << "this build has no oneDNN";
    }
    passes_.push_back(DeadCodeElimination());
    math::WithSimd::SetUp();
  }

  struct Case {
    int64_t batch, channels, kernel, stride;
    std::vector<int64_t> pads;
    bool depthwise_follows;
    bool projection_follows = false;
    int64_t out = 40;
  };

  // Of images of 83 x 77.
  TestModel Stem(const Case& c, const std::string& activation) {
    TestModel model;
    model.Input("x", DataType::kFloat, {c.batch, c.channels, 83, 77});
    model.Constant("w", Ramp(Shape{c.out, c.channels, c.kernel, c.kernel}, 0.03f));
    model.Constant("b", Ramp(Shape{c.out}, 0.1f)).Constant("d", Ramp(Shape{c.out, 1, 3, 3}, 0.05f));
    Attributes window, depthwise;
    window.Set("strides", std::vector<int64_t>{c.stride, c.stride});
    window.Set("pads", c.pads);
    depthwise.Set("group", c.out);
    depthwise.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("Conv", {"x", "w", "b"}, {"a"}, window);
    if (activation == "Silu") {
      model.Node("Sigmoid", {"a"}, {"s"}).Node("Mul", {"a", "s"}, {"y"});
    } else {
      model.Node(activation, {"a"}, {"y"});
    }
    if (!c.depthwise_follows) return std::move(model.Output("y"));
    model.Node("Conv", {"y", "d"}, {"z"}, depthwise);
    if (!c.projection_follows) return std::move(model.Output("z"));
    model.Constant("p", Ramp(Shape{6, c.out, 1, 1}, 0.02f));
    return std::move(model.Node("Conv", {"z", "p"}, {"q"}).Output("q"));
  }

  std::vector<const GraphPass*> passes_;
};

TEST_P(PlanarConv, ReadsImagesAsTheyCome) {
  if (math::CurrentSimd().few_rows == nullptr) GTEST_SKIP() << "registers of 512 bits alone";
  auto passes = StandardPasses();
  passes.insert(passes.end(), passes_.begin(), passes_.end());
  TestModel alone = Stem({1, 3, 3, 2, {1, 1, 1, 1}, false}, "Relu");
  EXPECT_EQ(After(alone, passes), "PlanarConv Transpose");
  TestModel followed = Stem({1, 3, 3, 1, {1, 1, 1, 1}, true}, "Relu");
  EXPECT_EQ(After(followed, passes), "PlanarDepthwise Transpose");
  TestModel block = Stem({1, 3, 3, 1, {1, 1, 1, 1}, true, true, 32}, "Relu");
  EXPECT_EQ(After(block, passes), "PlanarDepthwise Transpose");
  TestModel many = Stem({1, 5, 3, 2, {1, 1, 1, 1}, false}, "Relu");
  EXPECT_EQ(After(many, passes), "Transpose ConvChannelsLast Transpose");
}

TEST_P(PlanarConv, AgreesWithPlainConvolutions) {
  for (const bool followed : {false, true}) {
    for (const char* activation : {"Relu", "Silu"}) {
      for (const Case& c :
           {Case{1, 3, 3, 2, {1, 1, 1, 1}, followed}, Case{2, 1, 3, 1, {0, 0, 0, 0}, followed},
            Case{3, 4, 7, 2, {3, 3, 3, 3}, followed}, Case{2, 2, 5, 3, {4, 0, 1, 3}, followed},
            Case{1, 3, 1, 1, {0, 2, 3, 0}, followed}, Case{1, 3, 2, 4, {5, 5, 6, 6}, followed}}) {
        const TestModel model = Stem(c, activation);
        const Tensor x = Ramp(Shape{c.batch, c.channels, 83, 77}, 0.1f);
        ExpectSameResults(model, {x}, 1);
        ExpectSameResults(model, {x}, 3);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, PlanarConv,
                         testing::Values("baseline", "avx2", "avx512", "avx512vnni", "amx"));

TEST(OnePixelConv, AgreesWithPlainConvolutions) {
  for (const int64_t batch : {1, 2, 13}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{96, 4}, {4, 96}, {130, 64}}) {
      TestModel model;
      model.Input("x", DataType::kFloat, {batch, in, 5, 3})
          .Input("z", DataType::kFloat, {batch, out, 1, 1});
      model.Constant("w", Ramp(Shape{out, in, 1, 1}, 0.03f)).Constant("b", Ramp(Shape{out}, 0.1f));
      model.Node("GlobalAveragePool", {"x"}, {"p"}).Node("Conv", {"p", "w", "b"}, {"c"});
      model.Node("Add", {"c", "z"}, {"s"}).Node("Sigmoid", {"s"}, {"y"}).Output("y");
      const std::vector<Value> inputs = {Ramp(Shape{batch, in, 5, 3}, 0.1f),
                                         Ramp(Shape{batch, out, 1, 1}, 0.2f)};
      ExpectSameResults(model, inputs, 1);
      ExpectSameResults(model, inputs, 3);
    }
  }
}

TEST(OnePixelConv, IsNoneOfPaddingAlone) {
  TestModel model;
  model.Input("x", DataType::kFloat, {1, 5, 1, 1}).Constant("w", Ramp(Shape{3, 5, 1, 1}, 0.1f));
  model.Constant("b", Ramp(Shape{3}, 0.3f));
  Attributes window;
  window.Set("pads", std::vector<int64_t>{1, 1, 0, 0});
  window.Set("strides", std::vector<int64_t>{2, 2});
  model.Node("Conv", {"x", "w", "b"}, {"y"}, window).Output("y");
  ExpectSameResults(model, {Ramp(Shape{1, 5, 1, 1}, 0.7f)}, 1);
}

// A convolution with a bias, of square images, and what follows it.
struct ConvCase {
  int64_t batch, in, out, window, stride, dilation, side;
  const char* activation;
  bool has_sum;
};

void ExpectSameConvolution(const ConvCase& c) {
  TestModel model;
  const int64_t pad = c.window / 2 * c.dilation, side = (c.side + c.stride - 1) / c.stride;
  model.Input("x", DataType::kFloat, {c.batch, c.in, c.side, c.side});
  model.Constant("w", Ramp(Shape{c.out, c.in, c.window, c.window}, 0.01f));
  model.Constant("b", Ramp(Shape{c.out}, 0.1f));
  Attributes window;
  window.Set("strides", std::vector<int64_t>(2, c.stride));
  window.Set("dilations", std::vector<int64_t>(2, c.dilation));
  window.Set("pads", std::vector<int64_t>(4, pad));
  model.Node("Conv", {"x", "w", "b"}, {"c"}, window);
  std::vector<Value> inputs(c.has_sum ? 2 : 1);
  inputs[0] = Ramp(Shape{c.batch, c.in, c.side, c.side}, 0.1f);
  if (c.has_sum) {
    model.Input("z", DataType::kFloat, {c.batch, c.out, side, side});
    model.Node("Add", {"c", "z"}, {"s"});
    inputs[1] = Ramp(Shape{c.batch, c.out, side, side}, 0.2f);
  }
  const std::string last = c.has_sum ? "s" : "c";
  model.Node(*c.activation != 0 ? c.activation : "Identity", {last}, {"y"}).Output("y");
  for (const int threads : {1, 2, 3}) ExpectSameResults(model, inputs, threads);
}

// Small images with large weights go to a product of our own where registers have 512 bits.
TEST(SmallImageConv, AgreesWithPlainConvolutions) {
  for (const ConvCase& c : {ConvCase{1, 1024, 80, 1, 1, 1, 7, "Relu", true},
                            ConvCase{1, 96, 80, 3, 1, 1, 7, "Relu", true},
                            ConvCase{5, 96, 80, 3, 1, 1, 7, "Sigmoid", false},
                            ConvCase{7, 1024, 80, 1, 2, 1, 7, "Relu", false},
                            ConvCase{1, 96, 80, 3, 2, 1, 7, "Sigmoid", true},
                            ConvCase{2, 96, 80, 3, 1, 2, 7, "Relu", false},
                            ConvCase{1, 96, 80, 5, 2, 1, 7, "", true}}) {
    ExpectSameConvolution(c);
  }
}

// Of more pixels than a small image, or with as many results as elements of a window: products in
// parts where the processor has tiles.
TEST(DigitsConv, AgreesWithPlainConvolutions) {
  for (const ConvCase& c :
       {ConvCase{1, 64, 96, 1, 1, 1, 11, "Relu", true},
        ConvCase{3, 100, 130, 1, 2, 1, 21, "Sigmoid", false},
        ConvCase{1, 64, 64, 1, 1, 1, 40, "", true}, ConvCase{1, 40, 100, 3, 2, 1, 23, "Relu", true},
        ConvCase{2, 8, 96, 3, 1, 1, 12, "Sigmoid", true},
        ConvCase{1, 33, 97, 3, 1, 2, 12, "Relu", false},
        ConvCase{1, 70, 96, 1, 1, 1, 70, "Sigmoid", false},
        ConvCase{2, 128, 160, 1, 1, 1, 7, "Relu", true}}) {
    ExpectSameConvolution(c);
  }
}

// One matrix of weights for windows of pixels and of rows, and for images with and without padding.
TEST(DigitsConv, SharesWeightsAmongConvolutions) {
  TestModel model;
  model.Input("x", DataType::kFloat, {1, 20, 13, 14})
      .Constant("w", Ramp(Shape{100, 20, 3, 3}, 0.01f));
  Attributes padded, dilated, same;
  padded.Set("pads", std::vector<int64_t>(4, 1));
  dilated.Set("dilations", std::vector<int64_t>{2, 2});
  dilated.Set("pads", std::vector<int64_t>(4, 3));
  same.Set("auto_pad", std::string("SAME_UPPER"));
  model.Node("Conv", {"x", "w"}, {"a"}).Node("Conv", {"x", "w"}, {"b"}, padded);
  model.Node("Conv", {"x", "w"}, {"c"}, dilated).Node("Conv", {"x", "w"}, {"d"}, same);
  model.Output("a").Output("b").Output("c").Output("d");
  ExpectSameResults(model, {Ramp(Shape{1, 20, 13, 14}, 0.1f)}, 1);
}

// Extents that only runs know: ways are chosen as for images of some size, and all are right for
// any.
TEST(ImagesOfAnySize, AreConvolvedAlikeWhateverTheirSize) {
  const auto passes = [] {
    auto all = StandardPasses();
    const auto provider = (*MakeProviders({}))[0]->Passes();
    all.insert(all.end(), provider.begin(), provider.end());
    return all;
  }();
  TestModel model;
  model.Input("x", DataType::kFloat,
              {Dimension::Symbol("n"), 48, Dimension::Symbol("h"), Dimension::Symbol("w")});
  model.Constant("a", Ramp(Shape{64, 48, 3, 3}, 0.002f)).Constant("b", Ramp(Shape{64}, 0.1f));
  model.Constant("e", Ramp(Shape{256, 64, 1, 1}, 0.01f));
  model.Constant("d", Ramp(Shape{256, 1, 3, 3}, 0.05f));
  Attributes window, depthwise;
  window.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  depthwise = window;
  depthwise.Set("group", int64_t{256});
  model.Node("Conv", {"x", "a", "b"}, {"c"}, window).Node("Relu", {"c"}, {"r"});
  model.Node("Conv", {"r", "e"}, {"f"}).Node("Relu", {"f"}, {"g"});
  model.Node("Conv", {"g", "d"}, {"h"}, depthwise).Node("Add", {"h", "h"}, {"y"}).Output("y");
  TestModel copy = model;
  if (ProviderPass("winograd") != nullptr) {
    EXPECT_EQ(After(model, passes), "Transpose ConvWinograd ExpandDepthwise Add Transpose");
  }
  for (const Shape& image : {Shape{1, 48, 1, 1}, Shape{2, 48, 3, 40}, Shape{1, 48, 33, 26}}) {
    ExpectSameResults(copy, {Ramp(image, 0.1f)}, 1, 1e-3f);
  }
}

}  // namespace
}  // namespace onnxd
