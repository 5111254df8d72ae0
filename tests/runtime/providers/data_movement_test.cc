// Operators that move or select elements.
#include <algorithm>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

// By the definition, one element at a time. `pads`: all begins, then all ends.
Tensor PaddedByElements(const Tensor& x, const std::vector<int64_t>& pads,
                        const std::string& mode) {
  const int rank = x.shape().rank();
  Shape shape = x.shape();
  for (int axis = 0; axis < rank; ++axis) {
    shape[axis] += pads[static_cast<size_t>(axis)] + pads[static_cast<size_t>(rank + axis)];
  }
  Tensor out = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t position = 0; position < out.ElementCount(); ++position) {
    int64_t rest = position, from = 0, stride = 1;
    bool outside = false;
    for (int axis = rank - 1; axis >= 0; --axis) {
      const int64_t extent = x.shape()[axis];
      int64_t at = rest % shape[axis] - pads[static_cast<size_t>(axis)];
      rest /= shape[axis];
      while (mode == "reflect" && extent > 1 && (at < 0 || at >= extent)) {
        at = at < 0 ? -at : 2 * (extent - 1) - at;
      }
      if (mode == "edge" || extent == 1)
        at = mode == "constant" ? at : std::clamp<int64_t>(at, 0, extent - 1);
      if (mode == "wrap") at = (at % extent + extent) % extent;
      outside = outside || at < 0 || at >= extent;
      from += at * stride;
      stride *= extent;
    }
    out.mutable_data<float>()[position] = outside ? 0.0f : x.data<float>()[from];
  }
  return out;
}

TEST(DataMovement, PadTakesAxesTogetherWithoutMixingThem) {
  const std::vector<std::pair<Shape, std::vector<int64_t>>> cases = {
      {{2, 3, 4, 1}, {0, 0, 2, 0, 0, 0, 1, 0}},
      {{2, 3, 4, 2}, {0, 0, 2, 0, 0, 0, 1, 0}},
      {{2, 3, 4}, {0, 1, 0, 0, 2, 0}},
      {{3, 1, 5}, {1, 0, 0, 1, 0, 0}},
      {{3, 4, 5}, {0, 0, 0, 0, 0, 0}},
      {{3, 4, 5}, {1, 2, 3, 2, 1, 0}},
      {{3, 4, 5}, {0, 0, -2, 0, 0, 1}},
      {{3, 4, 5}, {-1, 0, 0, 1, 0, -3}},
      {{1, 1, 6, 1, 1}, {0, 0, 3, 0, 0, 0, 0, 2, 0, 0}}};
  for (const auto& [shape, pads] : cases) {
    Tensor x = *Tensor::Create(DataType::kFloat, shape);
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      x.mutable_data<float>()[i] = static_cast<float>(i + 1);
    }
    const Tensor counts = Tensor::Of<int64_t>(Shape{static_cast<int64_t>(pads.size())}, pads);
    for (const char* mode : {"constant", "reflect", "edge", "wrap"}) {
      const Tensor expected = PaddedByElements(x, pads, mode);
      const auto elements = expected.elements<float>();
      EXPECT_EQ(Elements(RunOp("Pad", {x, counts}, With({{"mode", std::string(mode)}}),
                               {.opset = 19, .constants = 0b10})),
                F(elements.begin(), elements.end()))
          << shape.ToString() << " " << mode;
    }
  }
}

TEST(DataMovement, ConcatSpreadsPiecesOfEverySize) {
  for (const std::vector<int64_t>& widths :
       {std::vector<int64_t>{1, 1, 1}, {2, 1, 4}, {3, 0, 5}, {16, 1, 2}}) {
    constexpr int64_t kRows = 150;
    std::vector<Tensor> parts;
    F expected;
    for (size_t i = 0; i < widths.size(); ++i) {
      Tensor part = *Tensor::Create(DataType::kFloat, Shape{kRows, widths[i]});
      for (int64_t j = 0; j < part.ElementCount(); ++j) {
        part.mutable_data<float>()[j] = static_cast<float>(1000 * i) + static_cast<float>(j);
      }
      parts.push_back(part);
    }
    for (int64_t row = 0; row < kRows; ++row) {
      for (size_t i = 0; i < widths.size(); ++i) {
        const float* from = parts[i].data<float>() + row * widths[i];
        expected.insert(expected.end(), from, from + widths[i]);
      }
    }
    EXPECT_EQ(
        Elements(RunOp("Concat", {parts[0], parts[1], parts[2]}, With({{"axis", int64_t{1}}}))),
        expected);
  }
}

TEST(DataMovement, TurnsJoinsAndCuts) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Elements(RunOp("Transpose", {m})), (F{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(Elements(RunOp("Concat", {m, m}, With({{"axis", int64_t{1}}}))),
            (F{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(Elements(RunOp("Slice",
                           {m, Ints(Shape{1}, {-1}), Ints(Shape{1}, {-9}), Ints(Shape{1}, {1}),
                            Ints(Shape{1}, {-2})},
                           {}, {.constants = 0b11110})),
            (F{3, 1, 6, 4}));
  EXPECT_EQ(Elements(RunOp("Tile", {m, Ints(Shape{2}, {1, 2})}, {}, {.constants = 0b10})),
            (F{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(Elements(RunOp("Pad", {m, Ints(Shape{4}, {0, 1, 1, 0}), Tensor::Scalar(9.0f)}, {},
                           {.constants = 0b10})),
            (F{9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9}));
  EXPECT_EQ(Elements(RunOp("Pad", {m, Ints(Shape{4}, {0, 2, 0, 2})},
                           With({{"mode", std::string("reflect")}}), {.constants = 0b10})),
            (F{3, 2, 1, 2, 3, 2, 1, 6, 5, 4, 5, 6, 5, 4}));
  const auto split = RunOp("Split", {m, Ints(Shape{2}, {1, 2})}, With({{"axis", int64_t{1}}}),
                           {.constants = 0b10, .outputs = 2});
  EXPECT_EQ(Elements(split, 0), (F{1, 4}));
  EXPECT_EQ(Elements(split, 1), (F{2, 3, 5, 6}));
  const Tensor depth = Floats(Shape{1, 4, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(Elements(RunOp("DepthToSpace", {depth}, With({{"blocksize", int64_t{2}}}))),
            (F{0, 2, 1, 3, 4, 6, 5, 7}));
}

// What no exporter writes but a file may hold; found by tests/hostile.
TEST(DataMovement, EmptyOperandsAreDefinedOrRefused) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6}), none = Ints(Shape{0}, {});
  // Empty axes and steps stand for those left out, planned or not.
  for (const unsigned constants : {0b11110u, 0u}) {
    const auto slice = RunOp("Slice", {m, Ints(Shape{1}, {1}), Ints(Shape{1}, {2}), none, none}, {},
                             {.constants = constants});
    EXPECT_EQ(Elements(slice), (F{4, 5, 6})) << constants;
  }
  const Tensor nothing = Tensor::Of<bool>(Shape{0}, std::initializer_list<bool>{});
  const auto dropout = RunOp("Dropout", {m, Tensor::Scalar(0.5f), nothing});
  EXPECT_EQ(dropout.status().code(), StatusCode::kInvalidArgument);
}

// ONNX leaves it undefined; extents and offsets of both would lead out of the input.
TEST(DataMovement, AnAxisThatComesTwiceIsRefused) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6}), axes = Ints(Shape{2}, {1, -1});
  for (const unsigned constants : {0b11110u, 0u}) {
    const auto slice = RunOp("Slice", {m, Ints(Shape{2}, {2, -1}), Ints(Shape{2}, {3, 9}), axes},
                             {}, {.constants = constants});
    EXPECT_EQ(slice.status().code(), StatusCode::kInvalidArgument) << constants;
    const auto pad = RunOp("Pad", {m, Ints(Shape{4}, {3, -3, 0, 0}), Tensor(), axes}, {},
                           {.opset = 18, .constants = constants});
    EXPECT_EQ(pad.status().code(), StatusCode::kInvalidArgument) << constants;
    const auto crop = RunOp("CenterCropPad", {m, Ints(Shape{2}, {101, 1})},
                            With({{"axes", I{1, -1}}}), {.opset = 18, .constants = constants});
    EXPECT_EQ(crop.status().code(), StatusCode::kInvalidArgument) << constants;
    const auto resize = RunOp("Resize", {m, Tensor(), Floats(Shape{2}, {4, 1})},
                              With({{"axes", I{1, -1}}}), {.opset = 18, .constants = constants});
    EXPECT_EQ(resize.status().code(), StatusCode::kInvalidArgument) << constants;
    EXPECT_NE(resize.status().message().find("axis 1 is given twice"), std::string::npos);
  }
}

TEST(DataMovement, SelectByIndex) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Elements(RunOp("Gather", {m, Ints(Shape{2}, {2, -3})}, With({{"axis", int64_t{1}}}))),
            (F{3, 1, 6, 4}));
  EXPECT_EQ(Elements(RunOp("GatherND", {m, Ints(Shape{2, 2}, {0, 1, 1, 2})})), (F{2, 6}));
  EXPECT_EQ(Elements(RunOp("GatherElements", {m, Ints(Shape{1, 3}, {1, 0, 1})},
                           With({{"axis", int64_t{0}}}))),
            (F{4, 2, 6}));
  EXPECT_EQ(Elements(RunOp(
                "OneHot",
                {Ints(Shape{3}, {1, -1, 7}), Tensor::Scalar(int64_t{3}), Floats(Shape{2}, {0, 1})},
                {}, {.constants = 0b10})),
            (F{0, 1, 0, 0, 0, 1, 0, 0, 0}));
  const auto top = RunOp("TopK", {m, Ints(Shape{1}, {2})}, {}, {.constants = 0b10, .outputs = 2});
  EXPECT_EQ(Elements(top, 0), (F{3, 2, 6, 5}));
  EXPECT_EQ(Elements<int64_t>(top, 1), (I{2, 1, 2, 1}));
}

TEST(Split, CountsThePartsThatAreLeftOut) {
  for (const bool equal : {true, false}) {
    TestModel model(18);
    model.Input("x", DataType::kFloat, {1, 6});
    model.Constant("sizes", Tensor::Of<int64_t>(Shape{3}, {1, 2, 3}));
    Attributes attributes = With({{"axis", int64_t{1}}});
    if (equal) attributes.Set("num_outputs", int64_t{3});
    model.Node("Split",
               equal ? std::vector<std::string>{"x"} : std::vector<std::string>{"x", "sizes"},
               {"", "b", "c"}, attributes);
    model.Output("b").Output("c");
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const auto outputs =
        (*session)->Run(std::vector<Value>{Floats(Shape{1, 6}, {0, 1, 2, 3, 4, 5})}, {});
    EXPECT_EQ(Elements(outputs, 0), equal ? (F{2, 3}) : (F{1, 2}));
    EXPECT_EQ(Elements(outputs, 1), equal ? (F{4, 5}) : (F{3, 4, 5}));
  }
}

}  // namespace
}  // namespace onnxd
