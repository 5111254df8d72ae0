// Convolutions and products by our own loops where these are faster than oneDNN's (AVX2), against
// the plain kernels.
#include <cmath>

#include "runtime/providers/cpu/packed_product.h"
#include "tests/support/every_simd.h"
#include "tests/support/operator_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

class OwnProducts : public testing::Test {
 protected:
  void SetUp() override {
    if (!simd_.is_there()) GTEST_SKIP() << "this processor has no AVX2";
  }

  // Elements that differ from pixel to pixel and from channel to channel.
  static Tensor Waves(const Shape& shape, float scale) {
    Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
    for (int64_t i = 0; i < shape.ElementCount(); ++i) {
      tensor.mutable_data<float>()[i] = scale * std::sin(static_cast<float>(i) * 0.37f) + 0.03f;
    }
    return tensor;
  }

 private:
  const math::ScopedSimd simd_{"avx2"};
};

struct ConvCase {
  const char* what;
  int64_t batch, in, out, height, width;
  std::vector<int64_t> kernel, strides, dilations, pads;
  const char* activation = "";
  bool has_sum = false;
};

TEST_F(OwnProducts, ConvolutionsOfEveryWindow) {
  const std::vector<ConvCase> cases = {
      {"pixels", 2, 40, 24, 9, 11, {1, 1}, {1, 1}, {1, 1}, {0, 0, 0, 0}, "Relu", true},
      {"pixels two apart", 2, 40, 24, 9, 11, {1, 1}, {2, 2}, {1, 1}, {0, 0, 0, 0}, "Sigmoid"},
      {"padded pixels", 1, 40, 9, 5, 4, {1, 1}, {1, 1}, {1, 1}, {1, 2, 0, 1}},
      {"many channels", 1, 48, 40, 14, 13, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}, "Relu", true},
      {"a step", 2, 33, 17, 15, 16, {3, 3}, {2, 2}, {1, 1}, {1, 1, 1, 1}, "", true},
      {"holes", 1, 32, 16, 12, 10, {3, 3}, {1, 1}, {2, 3}, {2, 3, 2, 3}, "Sigmoid", true},
      {"no padding", 1, 36, 16, 8, 9, {3, 2}, {1, 2}, {1, 1}, {0, 0, 0, 0}},
      {"few channels", 2, 8, 20, 10, 9, {5, 5}, {1, 3}, {1, 1}, {2, 1, 2, 1}, "Relu"},
      {"few channels, holes", 1, 12, 8, 11, 12, {3, 3}, {1, 1}, {2, 2}, {2, 2, 2, 2}},
      {"windows wider than the image", 1, 8, 8, 3, 2, {3, 7}, {1, 1}, {1, 1}, {1, 3, 1, 3}},
      {"padding wider than a window", 1, 16, 8, 2, 2, {2, 2}, {1, 1}, {1, 1}, {3, 4, 4, 3}},
      {"colors", 1, 16, 3, 12, 11, {9, 9}, {1, 1}, {1, 1}, {4, 4, 4, 4}, "Sigmoid", true},
      {"one channel", 2, 64, 1, 7, 6, {3, 3}, {1, 1}, {1, 1}, {1, 1, 1, 1}},
      {"rows of the window in padding", 2, 32, 16, 20, 7, {3, 3}, {1, 1}, {9, 2}, {9, 2, 9, 2}},
      {"the same, few channels", 2, 4, 16, 30, 7, {5, 3}, {1, 1}, {9, 1}, {18, 1, 18, 1}, "Relu"},
      {"a signal", 1, 1, 36, 1, 700, {1, 256}, {1, 16}, {1, 1}, {0, 0, 0, 0}},
      {"a signal, few at a time", 2, 20, 1, 1, 700, {1, 5}, {1, 2}, {1, 1}, {0, 3, 0, 2}, "Relu"},
      {"a narrow signal", 2, 40, 24, 1, 130, {1, 3}, {1, 2}, {1, 1}, {0, 1, 0, 1}, "Sigmoid", true},
  };
  for (const ConvCase& c : cases) {
    SCOPED_TRACE(c.what);
    TestModel model;
    model.Input("x", DataType::kFloat, {c.batch, c.in, c.height, c.width});
    model.Constant("w", Waves(Shape{c.out, c.in, c.kernel[0], c.kernel[1]}, 0.1f));
    model.Constant("b", Waves(Shape{c.out}, 0.5f));
    Attributes window;
    window.Set("strides", c.strides);
    window.Set("dilations", c.dilations);
    window.Set("pads", c.pads);
    model.Node("Conv", {"x", "w", "b"}, {"c"}, window);
    std::vector<Value> inputs(c.has_sum ? 2 : 1);
    inputs[0] = Waves(Shape{c.batch, c.in, c.height, c.width}, 1.0f);
    std::string last = "c";
    if (c.has_sum) {
      const auto extent = [&](size_t axis, int64_t size) {
        const int64_t reach = (c.kernel[axis] - 1) * c.dilations[axis] + 1;
        return (size + c.pads[axis] + c.pads[axis + 2] - reach) / c.strides[axis] + 1;
      };
      const Shape shape{c.batch, c.out, extent(0, c.height), extent(1, c.width)};
      model.Input("z", DataType::kFloat, {shape[0], shape[1], shape[2], shape[3]});
      model.Node("Add", {last, "z"}, {"s"});
      inputs[1] = Waves(shape, 0.7f);
      last = "s";
    }
    model.Node(*c.activation != 0 ? c.activation : "Identity", {last}, {"y"}).Output("y");
    for (const int threads : {1, 2, 3}) ExpectSameResults(model, inputs, threads);
  }
}

TEST_F(OwnProducts, ConvolutionsInGroupsOfFewChannels) {
  struct Case {
    int64_t group, groups, size, stride;
    const char* activation;
    bool has_sum;
  };
  for (const Case& c : {Case{4, 8, 14, 1, "Relu", false}, Case{8, 6, 9, 2, "Sigmoid", false},
                        Case{8, 5, 15, 1, "Relu", true}, Case{24, 2, 7, 1, "Sigmoid", true},
                        Case{32, 2, 10, 2, "", false}}) {
    SCOPED_TRACE(c.group);
    const int64_t channels = c.group * c.groups, out = (c.size - 1) / c.stride + 1;
    TestModel model;
    const auto attributes =
        With({{"group", c.groups}, {"pads", I{1, 1, 1, 1}}, {"strides", I{c.stride, c.stride}}});
    model.Input("x", DataType::kFloat, {2, channels, c.size, c.size});
    model.Input("z", DataType::kFloat, {2, channels, out, out});
    model.Constant("w", Waves(Shape{channels, c.group, 3, 3}, 0.1f));
    model.Constant("b", Waves(Shape{channels}, 0.5f));
    model.Node("Conv", {"x", "w", "b"}, {"c"}, attributes);
    const std::string last = c.has_sum ? "s" : "c";
    if (c.has_sum) model.Node("Add", {"c", "z"}, {"s"});
    model.Node(*c.activation != 0 ? c.activation : "Identity", {last}, {"y"}).Output("y");
    const std::vector<Value> inputs = {Waves(Shape{2, channels, c.size, c.size}, 1.0f),
                                       Waves(Shape{2, channels, out, out}, 0.7f)};
    for (const int threads : {1, 2, 3}) ExpectSameResults(model, inputs, threads);
  }
}

// Groups of 2 and 4 channels become groups of 8, of which most weights are 0, where nothing takes
// them as they are.
TEST_F(OwnProducts, NarrowGroupsBecomeWide) {
  for (const auto& [channels, out] : {std::pair<int64_t, int64_t>{2, 2}, {2, 3}, {4, 1}}) {
    const int64_t group = 8;
    TestModel model;
    Attributes attributes;
    attributes.Set("group", group);
    attributes.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Input("x", DataType::kFloat, {2, group * channels, 7, 6});
    model.Constant("w", Waves(Shape{group * out, channels, 3, 3}, 0.1f));
    model.Constant("b", Waves(Shape{group * out}, 0.5f));
    model.Node("Conv", {"x", "w", "b"}, {"c"}, attributes).Node("Relu", {"c"}, {"y"}).Output("y");
    ExpectSameResults(model, {Waves(Shape{2, group * channels, 7, 6}, 1.0f)});
    EXPECT_EQ(After(model, {ProviderPass("channels_last"), ProviderPass("wide_groups")}),
              "Transpose ConvChannelsLast Relu Transpose");
    const Node& conv = model.graph().nodes[1];
    EXPECT_EQ(conv.attributes.Int("group", 1), group * channels / 8);
    EXPECT_EQ(model.graph().initializers.at(conv.inputs[1]).shape()[1], 8);
  }
}

TEST_F(OwnProducts, MatricesWithBiasResidualAndActivation) {
  struct Case {
    int64_t m, k, n;
    const char* activation;
    bool has_sum;
  };
  for (const Case& c : {Case{1, 130, 200, "Relu", false}, Case{7, 130, 203, "Tanh", true},
                        Case{97, 256, 150, "Relu", true}, Case{200, 300, 129, "Sigmoid", false},
                        Case{300, 129, 257, "", true}}) {
    SCOPED_TRACE(c.m);
    TestModel model;
    model.Input("x", DataType::kFloat, {c.m, c.k}).Input("z", DataType::kFloat, {c.m, c.n});
    model.Constant("w", Waves(Shape{c.k, c.n}, 0.1f)).Constant("b", Waves(Shape{c.n}, 0.5f));
    model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"q"});
    model.Node(c.has_sum ? "Add" : "Identity",
               c.has_sum ? std::vector<std::string>{"q", "z"} : std::vector<std::string>{"q"},
               {"s"});
    model.Node(*c.activation != 0 ? c.activation : "Identity", {"s"}, {"y"}).Output("y");
    for (const int threads : {1, 2, 3}) {
      ExpectSameResults(model, {Waves(Shape{c.m, c.k}, 1.0f), Waves(Shape{c.m, c.n}, 0.7f)},
                        threads);
    }
  }
}

// Every row and column once, whatever the sizes.
TEST(ProductCut, CoversAllOnce) {
  constexpr int64_t kWidth = 16;
  for (const int64_t m : {1, 12, 49, 97, 128, 196, 1000}) {
    for (const int64_t n : {1, 16, 40, 512}) {
      for (const int threads : {1, 2, 3, 8}) {
        const int64_t panels = (n + kWidth - 1) / kWidth;
        const ProductCut cut = CutProduct(m, panels, m * n * 1000000, threads);
        std::vector<int> seen(static_cast<size_t>(m * n));
        for (int64_t i = 0; i < cut.units(); ++i) {
          const ProductUnit unit = UnitOf(cut, i, m, n, kWidth);
          EXPECT_EQ(unit.first_column % kWidth, 0);
          for (int64_t row = 0; row < unit.rows; ++row) {
            for (int64_t column = 0; column < unit.columns; ++column) {
              ++seen.at(
                  static_cast<size_t>((unit.first_row + row) * n + unit.first_column + column));
            }
          }
        }
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), m * n)
            << m << " " << n << " " << threads;
      }
    }
  }
}

TEST(ProductCut, LeavesSmallProductsToOneThread) {
  for (const int64_t m : {49, 1000}) EXPECT_EQ(CutProduct(m, 32, 1000, 4).workers, 1);
  EXPECT_EQ(CutProduct(49, 32, int64_t{1} << 30, 4).workers, 4);
  EXPECT_EQ(CutProduct(49, 32, int64_t{1} << 30, 4).units(), 4);
}

TEST(ProductCut, CountsAllProducts) {
  EXPECT_EQ(CutProduct(49, 32, int64_t{1} << 30, 4, 8).units(), 1);  // of one: eight are even
  EXPECT_EQ(CutProduct(49, 32, 1 << 19, 4, 8).workers, 4);
}

}  // namespace
}  // namespace onnxd
