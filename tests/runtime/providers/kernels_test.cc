// Kernels against values that can be read, and fast paths against plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "runtime/base/str_cat.h"
#include "runtime/tensor/strides.h"
#include "tests/support/pass_testing.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using I = std::vector<int64_t>;
using F = std::vector<float>;

Attributes With(std::initializer_list<std::pair<const char*, Attribute>> entries) {
  Attributes attributes;
  for (const auto& [name, value] : entries) attributes.Set(name, value);
  return attributes;
}

// Runs one node; tensors are graph inputs, or constants when `constants` says so by bit.
Result<std::vector<Value>> RunOp(const std::string& op, const std::vector<Tensor>& inputs,
                                 Attributes attributes = {}, int64_t opset = 17,
                                 unsigned constants = 0, const std::string& domain = "",
                                 size_t outputs = 1) {
  TestModel model(opset);
  std::vector<std::string> names, output_names;
  std::vector<Value> values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) {
      names.emplace_back();
      continue;
    }
    names.push_back(StrCat("in", i));
    if ((constants >> i & 1) != 0) {
      model.Constant(names.back(), inputs[i]);
    } else {
      model.Input(names.back(), inputs[i].type(), ToSymbolic(inputs[i].shape()));
      values.push_back(inputs[i]);
    }
  }
  for (size_t i = 0; i < outputs; ++i) output_names.push_back(StrCat("out", i));
  model.Node(op, names, output_names, std::move(attributes), domain);
  for (const auto& name : output_names) model.Output(name);
  ONNXD_ASSIGN_OR_RETURN(const auto session, model.Load(OptimizationLevel::kDisable));
  return session->Run(values, {});
}

F FloatsOf(const Result<std::vector<Value>>& outputs, size_t i = 0) {
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (!outputs.ok()) return {};
  const auto elements = (*outputs)[i].tensor().elements<float>();
  return F(elements.begin(), elements.end());
}

I IntsOf(const Result<std::vector<Value>>& outputs, size_t i = 0) {
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (!outputs.ok()) return {};
  const auto elements = (*outputs)[i].tensor().elements<int64_t>();
  return I(elements.begin(), elements.end());
}

TEST(Kernels, BroadcastInBothDirections) {
  const Tensor column = Floats(Shape{2, 1}, {10, 20}), row = Floats(Shape{3}, {1, 2, 3});
  EXPECT_EQ(FloatsOf(RunOp("Add", {column, row})), (F{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ(FloatsOf(RunOp("Sub", {row, column})), (F{-9, -8, -7, -19, -18, -17}));
  EXPECT_EQ(FloatsOf(RunOp("Max", {row, column, Floats(Shape{1}, {12})})),
            (F{12, 12, 12, 20, 20, 20}));
}

// Short rows are taken several at a time, on either side, and others where the leading axis goes
// on.
TEST(Kernels, ARowMeetsManyRows) {
  struct Case {
    Shape many, row;
  };
  for (const Case& c : {Case{{700, 3}, {3}},
                        {{2, 700, 5}, {2, 1, 5}},
                        {{3, 2, 9, 40}, {1, 2, 1, 40}},
                        {{300, 255}, {255}},
                        {{4, 1}, {1}},
                        {{3, 2}, {2}},
                        {{5, 300}, {300}}}) {
    Tensor many = *Tensor::Create(DataType::kInt64, c.many);
    Tensor row = *Tensor::Create(DataType::kInt64, c.row);
    Tensor many_floats = *Tensor::Create(DataType::kFloat, c.many);
    Tensor row_floats = *Tensor::Create(DataType::kFloat, c.row);
    for (int64_t i = 0; i < c.many.ElementCount(); ++i) {
      many_floats.mutable_data<float>()[i] = static_cast<float>(i % 1001);
      many.mutable_data<int64_t>()[i] = i % 1001;
    }
    for (int64_t i = 0; i < c.row.ElementCount(); ++i) {
      row_floats.mutable_data<float>()[i] = static_cast<float>(i * 3);
      row.mutable_data<int64_t>()[i] = i * 3;
    }
    const auto strides = BroadcastStrides(c.row, c.many);
    const auto at = [&](int64_t i) {
      int64_t place = 0;
      for (int axis = c.many.rank(); axis-- > 0; i /= c.many[axis]) {
        place += i % c.many[axis] * strides[static_cast<size_t>(axis)];
      }
      return place * 3;
    };
    const I left = IntsOf(RunOp("Sub", {many, row})), right = IntsOf(RunOp("Sub", {row, many}));
    const F floats = FloatsOf(RunOp("Sub", {many_floats, row_floats}));
    const F turned = FloatsOf(RunOp("Sub", {row_floats, many_floats}));
    ASSERT_EQ(left.size(), static_cast<size_t>(c.many.ElementCount()));
    for (int64_t i = 0; i < c.many.ElementCount(); ++i) {
      const auto n = static_cast<size_t>(i);
      const int64_t difference = i % 1001 - at(i);
      ASSERT_EQ(left[n], difference) << c.many.ToString() << " " << i;
      ASSERT_EQ(right[n], -difference) << c.many.ToString() << " " << i;
      ASSERT_EQ(floats[n], static_cast<float>(difference)) << c.many.ToString() << " " << i;
      ASSERT_EQ(turned[n], static_cast<float>(-difference)) << c.many.ToString() << " " << i;
    }
  }
}

TEST(Kernels, IntegerArithmeticIsDefinedEverywhere) {
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  const Tensor a = Ints(Shape{4}, {7, -7, kMin, 5}), b = Ints(Shape{4}, {2, 2, -1, 0});
  EXPECT_EQ(IntsOf(RunOp("Div", {a, b})), (I{3, -3, kMin, 0}));
  EXPECT_EQ(IntsOf(RunOp("Mod", {a, b})), (I{1, 1, 0, 0}));
  EXPECT_EQ(IntsOf(RunOp("Mod", {a, b}, With({{"fmod", int64_t{1}}}))), (I{1, -1, 0, 0}));
  EXPECT_EQ(IntsOf(RunOp("Neg", {a})), (I{-7, 7, kMin, -5}));
  EXPECT_EQ(IntsOf(RunOp("Mul", {a, Ints(Shape{1}, {2})})), (I{14, -14, 0, 10}));
}

TEST(Kernels, CastSaturatesAndTruncates) {
  const Tensor x = Floats(Shape{5}, {1.9f, -1.9f, 1e30f, -1e30f, NAN});
  EXPECT_EQ(
      IntsOf(RunOp("Cast", {x}, With({{"to", int64_t{7}}}))),
      (I{1, -1, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min(), 0}));
  const auto half = RunOp("Cast", {x}, With({{"to", int64_t{10}}}));
  ASSERT_TRUE(half.ok());
  EXPECT_EQ((*half)[0].tensor().data<Float16>()[2].bits, 0x7c00);
}

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

TEST(Kernels, PadTakesAxesTogetherWithoutMixingThem) {
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
      EXPECT_EQ(FloatsOf(RunOp("Pad", {x, counts}, With({{"mode", std::string(mode)}}), 19, 0b10)),
                F(elements.begin(), elements.end()))
          << shape.ToString() << " " << mode;
    }
  }
}

TEST(Kernels, ConcatSpreadsPiecesOfEverySize) {
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
        FloatsOf(RunOp("Concat", {parts[0], parts[1], parts[2]}, With({{"axis", int64_t{1}}}))),
        expected);
  }
}

TEST(Kernels, DataMovement) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(FloatsOf(RunOp("Transpose", {m})), (F{1, 4, 2, 5, 3, 6}));
  EXPECT_EQ(FloatsOf(RunOp("Concat", {m, m}, With({{"axis", int64_t{1}}}))),
            (F{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(FloatsOf(RunOp("Slice",
                           {m, Ints(Shape{1}, {-1}), Ints(Shape{1}, {-9}), Ints(Shape{1}, {1}),
                            Ints(Shape{1}, {-2})},
                           {}, 17, 0b11110)),
            (F{3, 1, 6, 4}));
  EXPECT_EQ(FloatsOf(RunOp("Tile", {m, Ints(Shape{2}, {1, 2})}, {}, 17, 0b10)),
            (F{1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(
      FloatsOf(RunOp("Pad", {m, Ints(Shape{4}, {0, 1, 1, 0}), Tensor::Scalar(9.0f)}, {}, 17, 0b10)),
      (F{9, 1, 2, 3, 9, 4, 5, 6, 9, 9, 9, 9}));
  EXPECT_EQ(FloatsOf(RunOp("Pad", {m, Ints(Shape{4}, {0, 2, 0, 2})},
                           With({{"mode", std::string("reflect")}}), 17, 0b10)),
            (F{3, 2, 1, 2, 3, 2, 1, 6, 5, 4, 5, 6, 5, 4}));
  const auto split =
      RunOp("Split", {m, Ints(Shape{2}, {1, 2})}, With({{"axis", int64_t{1}}}), 17, 0b10, "", 2);
  EXPECT_EQ(FloatsOf(split, 0), (F{1, 4}));
  EXPECT_EQ(FloatsOf(split, 1), (F{2, 3, 5, 6}));
  const Tensor depth = Floats(Shape{1, 4, 1, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_EQ(FloatsOf(RunOp("DepthToSpace", {depth}, With({{"blocksize", int64_t{2}}}))),
            (F{0, 2, 1, 3, 4, 6, 5, 7}));
}

// What no exporter writes but a file may hold; found by tests/hostile.
TEST(Kernels, EmptyOperandsAreDefinedOrRefused) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6}), none = Ints(Shape{0}, {});
  // Empty axes and steps stand for those left out, planned or not.
  for (const unsigned constants : {0b11110u, 0u}) {
    const auto slice = RunOp("Slice", {m, Ints(Shape{1}, {1}), Ints(Shape{1}, {2}), none, none}, {},
                             17, constants);
    EXPECT_EQ(FloatsOf(slice), (F{4, 5, 6})) << constants;
  }
  const Tensor nothing = Tensor::Of<bool>(Shape{0}, std::initializer_list<bool>{});
  const auto dropout = RunOp("Dropout", {m, Tensor::Scalar(0.5f), nothing});
  EXPECT_EQ(dropout.status().code(), StatusCode::kInvalidArgument);
}

// ONNX leaves it undefined; extents and offsets of both would lead out of the input.
TEST(Kernels, AnAxisThatComesTwiceIsRefused) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6}), axes = Ints(Shape{2}, {1, -1});
  for (const unsigned constants : {0b11110u, 0u}) {
    const auto slice = RunOp("Slice", {m, Ints(Shape{2}, {2, -1}), Ints(Shape{2}, {3, 9}), axes},
                             {}, 17, constants);
    EXPECT_EQ(slice.status().code(), StatusCode::kInvalidArgument) << constants;
    const auto pad =
        RunOp("Pad", {m, Ints(Shape{4}, {3, -3, 0, 0}), Tensor(), axes}, {}, 18, constants);
    EXPECT_EQ(pad.status().code(), StatusCode::kInvalidArgument) << constants;
    const auto crop = RunOp("CenterCropPad", {m, Ints(Shape{2}, {101, 1})},
                            With({{"axes", I{1, -1}}}), 18, constants);
    EXPECT_EQ(crop.status().code(), StatusCode::kInvalidArgument) << constants;
    const auto resize = RunOp("Resize", {m, Tensor(), Floats(Shape{2}, {4, 1})},
                              With({{"axes", I{1, -1}}}), 18, constants);
    EXPECT_EQ(resize.status().code(), StatusCode::kInvalidArgument) << constants;
    EXPECT_NE(resize.status().message().find("axis 1 is given twice"), std::string::npos);
  }
}

TEST(Kernels, BoundsOfClipAreScalars) {
  const Tensor m = Floats(Shape{2, 2}, {1, 2, 3, 4});
  EXPECT_EQ(FloatsOf(RunOp("Clip", {m, Floats(Shape{1}, {2}), Tensor::Scalar(3.0f)})),
            (F{2, 2, 3, 3}));
  const auto refused = RunOp("Clip", {m, Tensor(), Floats(Shape{2}, {1, 2})});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

TEST(Kernels, ShiftsBeyondTheTypeLeaveNothing) {
  const Tensor x = Tensor::Of<uint16_t>(Shape{3}, {1, 1, 0x8001}),
               by = Tensor::Of<uint16_t>(Shape{3}, {15, 16, 40000});
  const auto shifted = RunOp("BitShift", {x, by}, With({{"direction", std::string("LEFT")}}));
  ASSERT_TRUE(shifted.ok());
  const auto elements = (*shifted)[0].tensor().elements<uint16_t>();
  EXPECT_EQ(I(elements.begin(), elements.end()), (I{0x8000, 0, 0}));
}

TEST(Kernels, SelectByIndex) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(FloatsOf(RunOp("Gather", {m, Ints(Shape{2}, {2, -3})}, With({{"axis", int64_t{1}}}))),
            (F{3, 1, 6, 4}));
  EXPECT_EQ(FloatsOf(RunOp("GatherND", {m, Ints(Shape{2, 2}, {0, 1, 1, 2})})), (F{2, 6}));
  EXPECT_EQ(FloatsOf(RunOp("GatherElements", {m, Ints(Shape{1, 3}, {1, 0, 1})},
                           With({{"axis", int64_t{0}}}))),
            (F{4, 2, 6}));
  EXPECT_EQ(FloatsOf(RunOp(
                "OneHot",
                {Ints(Shape{3}, {1, -1, 7}), Tensor::Scalar(int64_t{3}), Floats(Shape{2}, {0, 1})},
                {}, 17, 0b10)),
            (F{0, 1, 0, 0, 0, 1, 0, 0, 0}));
  const auto top = RunOp("TopK", {m, Ints(Shape{1}, {2})}, {}, 17, 0b10, "", 2);
  EXPECT_EQ(FloatsOf(top, 0), (F{3, 2, 6, 5}));
  EXPECT_EQ(IntsOf(top, 1), (I{2, 1, 2, 1}));
}

// Leading axes, whose rows are taken whole: as many columns as several parts have, and NaN.
TEST(Kernels, ReductionsOfLeadingAxes) {
  const int64_t planes = 2, rows = 3, columns = 300;
  std::vector<float> numbers(static_cast<size_t>(planes * rows * columns));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 37 % 101) * 0.1f;
  numbers[7] = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>(Shape{planes, rows, columns}, numbers);
  const auto expect = [&](const char* op, const std::vector<int64_t>& axes, auto add, bool mean) {
    const auto y = FloatsOf(RunOp(op, {x}, With({{"axes", axes}, {"keepdims", int64_t{0}}}), 11));
    const bool both = axes.size() == 2;
    ASSERT_EQ(y.size(), static_cast<size_t>(both ? columns : planes * columns));
    for (size_t at = 0; at < y.size(); ++at) {
      const int64_t plane = static_cast<int64_t>(at) / columns;
      const float* from =
          x.data<float>() + plane * rows * columns + static_cast<int64_t>(at) % columns;
      double total = *from;
      const int64_t count = both ? planes * rows : rows;
      for (int64_t i = 1; i < count; ++i) total = add(total, double{from[i * columns]});
      if (mean) total /= static_cast<double>(count);
      if (std::isnan(total)) {
        EXPECT_TRUE(std::isnan(y[at])) << op << " " << at;
      } else {
        EXPECT_NEAR(y[at], total, 1e-5 * (1 + std::abs(total))) << op << " " << at;
      }
    }
  };
  const auto sum = [](double a, double b) { return a + b; };
  const auto largest = [](double a, double b) { return a > b || std::isnan(a) ? a : b; };
  const auto least = [](double a, double b) { return a < b || std::isnan(a) ? a : b; };
  for (const auto& axes : {I{1}, I{0, 1}}) {
    expect("ReduceSum", axes, sum, false);
    expect("ReduceMean", axes, sum, true);
    expect("ReduceMax", axes, largest, false);
    expect("ReduceMin", axes, least, false);
    expect(
        "ReduceProd", axes, [](double a, double b) { return a * b; }, false);
  }
}

// One number added after the other would be off by 6e-5.
TEST(Kernels, MeansOfManyRowsAreExact) {
  constexpr int64_t kRows = 400'000, kColumns = 9;
  Tensor x = *Tensor::Create(DataType::kFloat, Shape{kRows, kColumns});
  std::mt19937 random(1);
  std::uniform_real_distribution<float> numbers(3, 4);
  std::generate_n(x.mutable_data<float>(), x.ElementCount(), [&] { return numbers(random); });
  std::vector<double> means(kColumns);
  for (int64_t i = 0; i < x.ElementCount(); ++i) {
    means[static_cast<size_t>(i % kColumns)] += static_cast<double>(x.data<float>()[i]) / kRows;
  }
  const F y = FloatsOf(RunOp("ReduceMean", {x}, With({{"axes", I{0}}}), 13));
  ASSERT_EQ(y.size(), means.size());
  for (size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], means[i], 1e-5);
}

// Trailing axes of few elements, of which many outputs are taken at once; one more than that.
TEST(Kernels, TheLargestAndTheLeastOfShortRows) {
  for (const int64_t elements : {2, 3, 8, 9}) {
    constexpr int64_t kOutputs = 301;
    std::vector<float> numbers(static_cast<size_t>(kOutputs * elements));
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i * 37 % 101) - 50;
    numbers[static_cast<size_t>(elements * 17 + 1)] = std::numeric_limits<float>::quiet_NaN();
    const Tensor x = Tensor::Of<float>(Shape{7, kOutputs / 7, elements}, numbers);
    const Attributes last = With({{"axes", I{-1}}, {"keepdims", int64_t{0}}});
    const F largest = FloatsOf(RunOp("ReduceMax", {x}, last, 13));
    const F least = FloatsOf(RunOp("ReduceMin", {x}, last, 13));
    ASSERT_EQ(largest.size(), static_cast<size_t>(kOutputs));
    ASSERT_EQ(least.size(), static_cast<size_t>(kOutputs));
    for (int64_t i = 0; i < kOutputs; ++i) {
      const auto at = static_cast<size_t>(i);
      const auto row = numbers.begin() + i * elements;
      if (i == 17) {
        EXPECT_TRUE(std::isnan(largest[at]) && std::isnan(least[at]));
      } else {
        EXPECT_EQ(largest[at], *std::max_element(row, row + elements)) << elements << ", " << i;
        EXPECT_EQ(least[at], *std::min_element(row, row + elements)) << elements << ", " << i;
      }
    }
  }
}

TEST(Kernels, Reductions) {
  const Tensor m = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, -6});
  EXPECT_EQ(FloatsOf(RunOp("ReduceMean", {m}, With({{"axes", I{0}}, {"keepdims", int64_t{0}}}))),
            (F{2.5, 3.5, -1.5}));
  EXPECT_EQ(FloatsOf(RunOp("ReduceMax", {m}, With({{"axes", I{1}}}))), (F{3, 5}));
  EXPECT_EQ(FloatsOf(RunOp("ReduceSum", {m})), (F{9}));
  EXPECT_EQ(FloatsOf(RunOp("ReduceL1", {m})), (F{21}));
  EXPECT_NEAR(FloatsOf(RunOp("ReduceLogSumExp", {m}))[0], 5.4519f, 1e-3);
  EXPECT_EQ(IntsOf(RunOp("ArgMax", {m}, With({{"axis", int64_t{1}}}))), (I{2, 1}));
  EXPECT_EQ(FloatsOf(RunOp("CumSum", {m, Tensor::Scalar(int64_t{1})}, {}, 17, 0b10)),
            (F{1, 3, 6, 4, 9, 3}));
}

TEST(Kernels, SoftmaxBeforeAndSinceOpset13) {
  const Tensor x = Floats(Shape{1, 2, 2}, {0, 0, 0, 0});
  EXPECT_EQ(FloatsOf(RunOp("Softmax", {x}, {}, 13)), (F{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(FloatsOf(RunOp("Softmax", {x}, {}, 12)), (F{0.25, 0.25, 0.25, 0.25}));
}

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

Tensor Random(const Shape& shape, unsigned seed) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (int64_t i = 0; i < shape.ElementCount(); ++i)
    tensor.mutable_data<float>()[i] = uniform(random);
  return tensor;
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
  EXPECT_EQ(FloatsOf(RunOp("AveragePool", {x}, attributes(0))), (F{1, 1.5, 2, 2.5}));
  EXPECT_EQ(FloatsOf(RunOp("AveragePool", {x}, attributes(1))), (F{0.25, 0.75, 1, 2.5}));
  EXPECT_EQ(
      FloatsOf(RunOp("MaxPool", {x}, With({{"kernel_shape", I{2, 2}}, {"pads", I{1, 1, 0, 0}}}))),
      (F{1, 2, 3, 4}));
  EXPECT_EQ(FloatsOf(RunOp("GlobalAveragePool", {x})), F{2.5});
}

TEST(ConvTranspose, ScattersWhatConvGathers) {
  const Tensor x = Floats(Shape{1, 1, 2, 2}, {1, 2, 3, 4});
  const Tensor w = Floats(Shape{1, 1, 2, 2}, {1, 10, 100, 1000});
  EXPECT_EQ(FloatsOf(RunOp("ConvTranspose", {x, w}, With({{"strides", I{2, 2}}}))),
            (F{1, 10, 2, 20, 100, 1000, 200, 2000, 3, 30, 4, 40, 300, 3000, 400, 4000}));
}

// MatMul and Gemm with constant and with varying right sides, against three loops.
TEST(MatMul, AgreesWithItsDefinition) {
  for (const int64_t m : {1, 5, 33}) {
    const Tensor a = Random(Shape{2, m, 40}, 3), b = Random(Shape{40, 50}, 4);
    for (const unsigned constant : {0u, 2u}) {
      const F got = FloatsOf(RunOp("MatMul", {a, b}, {}, 17, constant));
      ASSERT_EQ(got.size(), static_cast<size_t>(2 * m * 50));
      for (int64_t row = 0; row < 2 * m; ++row) {
        for (int64_t column = 0; column < 50; ++column) {
          double wanted = 0;
          for (int64_t k = 0; k < 40; ++k) {
            wanted += static_cast<double>(a.data<float>()[row * 40 + k]) *
                      b.data<float>()[k * 50 + column];
          }
          ASSERT_NEAR(got[static_cast<size_t>(row * 50 + column)], wanted, 1e-4);
        }
      }
    }
  }
}

TEST(MatMul, BroadcastsBatches) {
  const Tensor a = Floats(Shape{2, 1, 1, 2}, {1, 2, 3, 4});
  const Tensor b = Floats(Shape{1, 2, 2, 1}, {1, 1, 10, 10});
  EXPECT_EQ(FloatsOf(RunOp("MatMul", {a, b})), (F{3, 30, 7, 70}));
  EXPECT_EQ(IntsOf(RunOp("MatMul", {Ints(Shape{1, 2}, {1, 2}), Ints(Shape{2, 1}, {3, 4})})), I{11});
}

// A constant right side may take another path than one that comes with the run, and several threads
// cut the rows.
TEST(Gemm, LargeConstantMatricesAgreeWithThoseOfTheRun) {
  constexpr int64_t k = 400, n = 331;
  const Tensor row = Random(Shape{n}, 3);
  for (const bool transposed : {false, true}) {
    const Tensor b = Random(transposed ? Shape{n, k} : Shape{k, n}, 2);
    const Attributes attributes = With({{"transB", int64_t{transposed}}});
    for (const int64_t m : {1, 2, 7, 40, 97}) {
      const Tensor a = Random(Shape{m, k}, 1);
      const F plain = FloatsOf(RunOp("Gemm", {a, b, row}, attributes));
      for (const int threads : {1, 3}) {
        TestModel model;
        model.Input("a", DataType::kFloat, {m, k}).Constant("b", b).Constant("c", row);
        model.Node("Gemm", {"a", "b", "c"}, {"y"}, attributes).Output("y");
        SessionOptions options = DefaultSession();
        options.pool = std::make_shared<ThreadPool>(threads);
        const auto session = InferenceSession::FromModel(model.model(), options);
        ASSERT_TRUE(session.ok()) << session.status().ToString();
        const std::vector<Value> inputs = {a};
        const F got = FloatsOf((*session)->Run(inputs, {}));
        ASSERT_EQ(got.size(), plain.size());
        for (size_t i = 0; i < got.size(); ++i) {
          ASSERT_NEAR(got[i], plain[i], 1e-4f * (1 + std::fabs(plain[i])))
              << m << " rows, " << threads << " threads, at " << i;
        }
      }
    }
  }
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
    EXPECT_EQ(FloatsOf(outputs, 0), equal ? (F{2, 3}) : (F{1, 2}));
    EXPECT_EQ(FloatsOf(outputs, 1), equal ? (F{4, 5}) : (F{3, 4, 5}));
  }
}

// Up to kMostFewRows are another kernel's than more of them.
TEST(Gemm, FewRowsAndMoreTakeBiasResidualAndActivation) {
  constexpr int64_t k = 160, n = 150;
  const Tensor b = Random(Shape{k, n}, 2), row = Random(Shape{n}, 3);
  for (const int64_t m : {1, 6, 7, 12, 13}) {
    const Tensor a = Random(Shape{m, k}, 1), z = Random(Shape{m, n}, 4);
    TestModel model;
    model.Input("a", DataType::kFloat, {m, k}).Input("z", DataType::kFloat, {m, n});
    model.Constant("b", b).Constant("c", row);
    model.Node("MatMul", {"a", "b"}, {"ab"}).Node("Add", {"ab", "c"}, {"abc"});
    model.Node("Add", {"abc", "z"}, {"sum"}).Node("Relu", {"sum"}, {"y"}).Output("y");
    const auto session = InferenceSession::FromModel(model.model(), DefaultSession());
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const std::vector<Value> inputs = {a, z};
    const F got = FloatsOf((*session)->Run(inputs, {}));
    ASSERT_EQ(got.size(), static_cast<size_t>(m * n));
    for (int64_t i = 0; i < m * n; ++i) {
      double wanted = row.data<float>()[i % n] + z.data<float>()[i];
      for (int64_t p = 0; p < k; ++p) {
        wanted +=
            static_cast<double>(a.data<float>()[i / n * k + p]) * b.data<float>()[p * n + i % n];
      }
      ASSERT_NEAR(got[static_cast<size_t>(i)], std::max(wanted, 0.0), 1e-4)
          << m << " rows, at " << i;
    }
  }
}

TEST(Gemm, AppliesFactorsTransposesAndAnyBroadcastOfC) {
  const Tensor a = Floats(Shape{2, 2}, {1, 2, 3, 4}), b = Floats(Shape{2, 2}, {1, 0, 0, 1});
  EXPECT_EQ(FloatsOf(RunOp("Gemm", {a, b, Floats(Shape{2}, {10, 20})})), (F{11, 22, 13, 24}));
  EXPECT_EQ(FloatsOf(RunOp("Gemm", {a, b, Floats(Shape{2, 1}, {10, 20})},
                           With({{"alpha", 2.0f}, {"beta", 0.5f}, {"transA", int64_t{1}}}))),
            (F{7, 11, 14, 18}));
  EXPECT_EQ(FloatsOf(RunOp("Gemm", {a, b, Tensor::Scalar(1.0f)})), (F{2, 3, 4, 5}));
}

TEST(LayerNormalization, GivesRowsOfMeanZero) {
  const auto outputs = RunOp("LayerNormalization",
                             {Floats(Shape{2, 4}, {1, 2, 3, 4, -5, 5, -5, 5}),
                              Floats(Shape{4}, {1, 1, 1, 1}), Floats(Shape{4}, {0, 0, 0, 1})},
                             {}, 17, 0, "", 2);
  const F y = FloatsOf(outputs, 0);
  EXPECT_NEAR(y[0], -1.3416f, 1e-3);
  EXPECT_NEAR(y[5], 1.0f, 1e-4);
  EXPECT_NEAR(y[7], 2.0f, 1e-4);
  EXPECT_NEAR(FloatsOf(outputs, 1)[0], 2.5f, 1e-6);
}

// LayerNormalization-17: scale and bias broadcast to the input.
TEST(LayerNormalization, BroadcastsScaleAndBias) {
  const Tensor x = Floats(Shape{2, 2, 2}, {-1, 1, 1, -1, 3, 5, -5, -3});
  const auto normalized = [&](const Tensor& scale, const Tensor& bias, int64_t axis) {
    F rounded = FloatsOf(
        RunOp("LayerNormalization", {x, scale, bias}, With({{"axis", axis}, {"epsilon", 0.0f}})));
    for (float& y : rounded) y = std::round(y);
    return rounded;
  };
  // Rows are -1 1, 1 -1, -1 1, -1 1.
  EXPECT_EQ(normalized(Tensor::Scalar(2.0f), Floats(Shape{1}, {10}), -1),
            (F{8, 12, 12, 8, 8, 12, 8, 12}));
  EXPECT_EQ(normalized(Floats(Shape{2, 1}, {1, 3}), Floats(Shape{2}, {10, 20}), -1),
            (F{9, 21, 13, 17, 9, 21, 7, 23}));
  EXPECT_EQ(normalized(Floats(Shape{2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8}), Tensor(), -1),
            (F{-1, 2, 3, -4, -5, 6, -7, 8}));
  EXPECT_EQ(normalized(Floats(Shape{1, 1, 2}, {1, 2}), Tensor(), -1),
            (F{-1, 2, 1, -2, -1, 2, -1, 2}));
  // Of pages: -1 1 1 -1, and 3 5 -5 -3 by sqrt(17).
  EXPECT_EQ(normalized(Floats(Shape{2}, {1, 10}), Floats(Shape{2, 1}, {0, 100}), 1),
            (F{-1, 10, 101, 90, 1, 12, 99, 93}));
  const auto refused = RunOp("LayerNormalization", {x, Floats(Shape{3}, {1, 1, 1})});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
}

// Doubles are computed by the operators that it stands for, which list the axes.
TEST(LayerNormalization, RefusesAnAxisThatIsNotThere) {
  const Tensor x = Tensor::Of<double>(Shape{2, 2}, {1, 2, 3, 4});
  const Tensor scale = Tensor::Of<double>(Shape{2}, {1, 1});
  EXPECT_TRUE(RunOp("LayerNormalization", {x, scale}, With({{"axis", int64_t{-1}}})).ok());
  for (const int64_t axis : {std::numeric_limits<int64_t>::min(), int64_t{-3}, int64_t{2}}) {
    EXPECT_FALSE(RunOp("LayerNormalization", {x, scale}, With({{"axis", axis}})).ok()) << axis;
  }
}

// Attention-24: how many of the keys are no padding comes with the data, and may be anything.
TEST(Attention, CountsOfKeysKeepToTheirRange) {
  const Tensor queries = Floats(Shape{1, 1, 1, 2}, {1, 2}), none;
  const Tensor keys = Floats(Shape{1, 1, 3, 2}, {1, 0, 0, 1, 1, 1});
  const auto attend = [&](int64_t count) {
    return FloatsOf(RunOp("Attention",
                          {queries, keys, keys, none, none, none, Ints(Shape{1}, {count})},
                          With({{"is_causal", int64_t{1}}}), 24));
  };
  EXPECT_EQ(attend(std::numeric_limits<int64_t>::max()), attend(3));
  EXPECT_EQ(attend(std::numeric_limits<int64_t>::min()), attend(0));
  EXPECT_NE(attend(3), attend(2));
}

TEST(Resize, NearestAndLinear) {
  const Tensor x = Floats(Shape{1, 1, 1, 2}, {1, 3});
  const Tensor none, scales = Floats(Shape{4}, {1, 1, 1, 2});
  EXPECT_EQ(FloatsOf(RunOp("Resize", {x, none, scales}, {}, 17, 0b100)), (F{1, 1, 3, 3}));
  EXPECT_EQ(FloatsOf(RunOp("Resize", {x, none, scales}, With({{"mode", std::string("linear")}}), 17,
                           0b100)),
            (F{1, 1.5, 2.5, 3}));
}

// With all weights zero every gate is sigmoid(0) = 0.5 and the candidate tanh(0) = 0, so each step
// halves the cell. The node leaves out sequence_lens and P: operands that it does not list are
// absent.
TEST(Lstm, HalvesItsCellWhenAllWeightsAreZero) {
  const auto zeros = [](const Shape& shape) {
    Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
    std::fill_n(tensor.mutable_data<float>(), shape.ElementCount(), 0.0f);
    return tensor;
  };
  const Tensor none, cell = Floats(Shape{1, 1, 2}, {4, -8});
  for (const unsigned constants : {0u, 0b110u}) {
    const auto outputs = RunOp("LSTM",
                               {zeros(Shape{3, 1, 5}), zeros(Shape{1, 8, 5}), zeros(Shape{1, 8, 2}),
                                none, none, zeros(Shape{1, 1, 2}), cell},
                               With({{"hidden_size", int64_t{2}}}), 14, constants, "", 3);
    const F c = FloatsOf(outputs, 2), h = FloatsOf(outputs, 1);
    ASSERT_EQ(c.size(), 2u);
    EXPECT_NEAR(c[0], 0.5f, 1e-6);
    EXPECT_NEAR(c[1], -1.0f, 1e-6);
    EXPECT_NEAR(h[1], 0.5f * std::tanh(-1.0f), 1e-6);
  }
}

TEST(Recurrent, RefusesMoreStepsThanWorkingMemoryCanBeCountedFor) {
  constexpr int64_t kMany = int64_t{1} << 20;  // of rows without an element
  TestModel model(14);
  model.Input("x", DataType::kFloat, {kMany, kMany, 0});
  model.Input("w", DataType::kFloat, {1, 4 * 1024, 0});
  model.Input("r", DataType::kFloat, {1, 4 * 1024, 1024});
  model.Node("LSTM", {"x", "w", "r"}, {"", "h"}, With({{"hidden_size", int64_t{1024}}}))
      .Output("h");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  std::vector<Value> inputs;
  for (const Shape& shape : {Shape{kMany, kMany, 0}, Shape{1, 4096, 0}, Shape{1, 4096, 1024}}) {
    inputs.emplace_back(Tensor::Create(DataType::kFloat, shape).value());
  }
  const auto refused = (*session)->Run(inputs, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("too many elements"), std::string::npos)
      << refused.status().ToString();
}

}  // namespace
}  // namespace onnxd
