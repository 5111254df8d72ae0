// Operators of windows over images: Conv, pooling, ConvTranspose, Resize.
#include "runtime/tensor/strides.h"
#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// A convolution by its definition, for any stride, padding, dilation and group.
F PlainConv(const Tensor& x, const Tensor& w, int64_t stride, int64_t pad, int64_t dilation,
            int64_t group, Shape& out_shape) {
  const Shape &xs = x.shape(), &ws = w.shape();
  const auto extent = [&](int64_t in, int64_t k) {
    return (in + 2 * pad - (k - 1) * dilation - 1) / stride + 1;
  };
  out_shape = Shape{xs[0], ws[0], extent(xs[2], ws[2]), extent(xs[3], ws[3])};
  F out;
  for (int64_t n = 0; n < xs[0]; ++n) {
    for (int64_t o = 0; o < ws[0]; ++o) {
      for (int64_t y = 0; y < out_shape[2]; ++y) {
        for (int64_t z = 0; z < out_shape[3]; ++z) {
          double total = 0;
          for (int64_t c = 0; c < ws[1]; ++c) {
            const int64_t channel = o / (ws[0] / group) * ws[1] + c;
            for (int64_t i = 0; i < ws[2]; ++i) {
              for (int64_t j = 0; j < ws[3]; ++j) {
                const int64_t row = y * stride - pad + i * dilation;
                const int64_t column = z * stride - pad + j * dilation;
                if (row < 0 || row >= xs[2] || column < 0 || column >= xs[3]) continue;
                total +=
                    static_cast<double>(
                        x.data<float>()[((n * xs[1] + channel) * xs[2] + row) * xs[3] + column]) *
                    static_cast<double>(w.data<float>()[((o * ws[1] + c) * ws[2] + i) * ws[3] + j]);
              }
            }
          }
          out.push_back(static_cast<float>(total));
        }
      }
    }
  }
  return out;
}

// At every optimization level, so that layout passes and fast kernels face the same judge.
TEST(Conv, AgreesWithItsDefinition) {
  struct Case {
    Shape x, w;
    int64_t stride, pad, dilation, group;
  };
  const Case cases[] = {
      {{1, 3, 9, 9}, {8, 3, 3, 3}, 1, 1, 1, 1},    {{2, 4, 7, 8}, {6, 4, 1, 1}, 1, 0, 1, 1},
      {{1, 3, 12, 12}, {4, 3, 5, 5}, 2, 2, 1, 1},  {{1, 8, 9, 9}, {8, 1, 3, 3}, 1, 1, 1, 8},
      {{2, 8, 9, 9}, {16, 4, 3, 3}, 2, 1, 1, 2},   {{1, 2, 11, 11}, {3, 2, 3, 3}, 1, 2, 2, 1},
      {{1, 16, 5, 5}, {16, 1, 5, 5}, 2, 2, 1, 16}, {{1, 32, 6, 6}, {64, 32, 3, 3}, 1, 1, 1, 1}};
  for (const Case& c : cases) {
    const Tensor x = Random(c.x, 1), w = Random(c.w, 2);
    Shape out_shape;
    const F wanted = PlainConv(x, w, c.stride, c.pad, c.dilation, c.group, out_shape);
    for (const auto level : {OptimizationLevel::kDisable, OptimizationLevel::kAll}) {
      TestModel model;
      model.Input("x", DataType::kFloat, ToSymbolic(c.x)).Constant("w", w);
      model.Node("Conv", {"x", "w"}, {"y"},
                 With({{"strides", I{c.stride, c.stride}},
                       {"pads", I{c.pad, c.pad, c.pad, c.pad}},
                       {"dilations", I{c.dilation, c.dilation}},
                       {"group", c.group}}));
      model.Output("y");
      const auto session = model.Load(level);
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      const std::vector<Value> inputs = {x};
      const auto outputs = (*session)->Run(inputs, {});
      ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
      ASSERT_EQ((*outputs)[0].tensor().shape(), out_shape);
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_NEAR((*outputs)[0].tensor().data<float>()[i], wanted[i], 1e-4)
            << c.x.ToString() << c.w.ToString() << " at " << i;
      }
    }
  }
}

TEST(Pool, CountsPaddingAsAsked) {
  const Tensor x = Floats(Shape{1, 1, 2, 2}, {1, 2, 3, 4});
  const auto attributes = [](int64_t include) {
    return With(
        {{"kernel_shape", I{2, 2}}, {"pads", I{1, 1, 0, 0}}, {"count_include_pad", include}});
  };
  EXPECT_EQ(Elements(RunOp("AveragePool", {x}, attributes(0))), (F{1, 1.5, 2, 2.5}));
  EXPECT_EQ(Elements(RunOp("AveragePool", {x}, attributes(1))), (F{0.25, 0.75, 1, 2.5}));
  EXPECT_EQ(
      Elements(RunOp("MaxPool", {x}, With({{"kernel_shape", I{2, 2}}, {"pads", I{1, 1, 0, 0}}}))),
      (F{1, 2, 3, 4}));
  EXPECT_EQ(Elements(RunOp("GlobalAveragePool", {x})), F{2.5});
}

TEST(ConvTranspose, ScattersWhatConvGathers) {
  const Tensor x = Floats(Shape{1, 1, 2, 2}, {1, 2, 3, 4});
  const Tensor w = Floats(Shape{1, 1, 2, 2}, {1, 10, 100, 1000});
  EXPECT_EQ(Elements(RunOp("ConvTranspose", {x, w}, With({{"strides", I{2, 2}}}))),
            (F{1, 10, 2, 20, 100, 1000, 200, 2000, 3, 30, 4, 40, 300, 3000, 400, 4000}));
}

TEST(Resize, NearestAndLinear) {
  const Tensor x = Floats(Shape{1, 1, 1, 2}, {1, 3});
  const Tensor none, scales = Floats(Shape{4}, {1, 1, 1, 2});
  EXPECT_EQ(Elements(RunOp("Resize", {x, none, scales}, {}, {.constants = 0b100})),
            (F{1, 1, 3, 3}));
  EXPECT_EQ(Elements(RunOp("Resize", {x, none, scales}, With({{"mode", std::string("linear")}}),
                           {.constants = 0b100})),
            (F{1, 1.5, 2.5, 3}));
}

}  // namespace
}  // namespace onnxd
