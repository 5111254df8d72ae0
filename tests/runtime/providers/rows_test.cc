// What kernels of the CPU provider do by whole rows, columns and blocks, beside plain loops.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

struct PoolCase {
  int64_t kernel, stride, dilation, pad_begin, pad_end;
};

// One axis like the other.
std::vector<double> PlainPool(const Tensor& x, const PoolCase& c, bool average, bool include_pad) {
  const Shape& s = x.shape();
  const auto extent = [&](int64_t in) {
    return (in + c.pad_begin + c.pad_end - (c.kernel - 1) * c.dilation - 1) / c.stride + 1;
  };
  std::vector<double> out;
  for (int64_t plane = 0; plane < s[0] * s[1]; ++plane) {
    for (int64_t oy = 0; oy < extent(s[2]); ++oy) {
      for (int64_t ox = 0; ox < extent(s[3]); ++ox) {
        double sum = 0, largest = std::numeric_limits<float>::lowest();
        int64_t count = 0;
        for (int64_t i = 0; i < c.kernel * c.kernel; ++i) {
          const int64_t y = oy * c.stride - c.pad_begin + i / c.kernel * c.dilation;
          const int64_t z = ox * c.stride - c.pad_begin + i % c.kernel * c.dilation;
          if (y < 0 || y >= s[2] || z < 0 || z >= s[3]) continue;
          const double value = x.data<float>()[(plane * s[2] + y) * s[3] + z];
          sum += value;
          largest = std::isnan(largest) || largest > value ? largest : value;
          ++count;
        }
        if (include_pad) count = c.kernel * c.kernel;
        out.push_back(average ? sum / static_cast<double>(count) : largest);
      }
    }
  }
  return out;
}

TEST(PoolRows, AgreeWithPlainLoops) {
  const PoolCase cases[] = {{2, 2, 1, 0, 0}, {3, 2, 1, 1, 1}, {5, 1, 1, 2, 2}, {3, 1, 1, 1, 0},
                            {3, 3, 1, 0, 1}, {3, 1, 2, 2, 2}, {4, 2, 3, 3, 2}, {9, 4, 1, 4, 4}};
  Tensor x = Numbers(Shape{2, 3, 13, 41});
  x.mutable_data<float>()[77] = kNan;
  for (const PoolCase& c : cases) {
    for (const int threads : {1, 2}) {
      const auto attributes = [&](bool include_pad) {
        Attributes a = With({{"kernel_shape", I{c.kernel, c.kernel}},
                             {"strides", I{c.stride, c.stride}},
                             {"dilations", I{c.dilation, c.dilation}},
                             {"pads", I{c.pad_begin, c.pad_begin, c.pad_end, c.pad_end}}});
        if (include_pad) a.Set("count_include_pad", int64_t{1});
        return a;
      };
      const std::string what = StrCat("window ", c.kernel, ", stride ", c.stride);
      ExpectNear(Elements(RunOp("MaxPool", {x}, attributes(false), {.threads = threads})),
                 PlainPool(x, c, false, false), "MaxPool, " + what);
      for (const bool include_pad : {false, true}) {
        ExpectNear(
            Elements(RunOp("AveragePool", {x}, attributes(include_pad), {.threads = threads})),
            PlainPool(x, c, true, include_pad), "AveragePool, " + what);
      }
    }
  }
}

// What each reduction makes of some numbers.
double Reduced(const std::string& op, const std::vector<double>& x) {
  double sum = 0, sizes = 0, squares = 0, powers = 0, product = 1, least = kInfinity;
  for (const double v : x) {
    sum += v, sizes += std::abs(v), squares += v * v, powers += std::exp(v), product *= v;
    least = std::isnan(least) || least < v ? least : v;
  }
  if (op == "ReduceL1") return sizes;
  if (op == "ReduceL2") return std::sqrt(squares);
  if (op == "ReduceSumSquare") return squares;
  if (op == "ReduceLogSumExp") return std::log(powers);
  if (op == "ReduceLogSum") return std::log(sum);
  if (op == "ReduceProd") return product;
  if (op == "ReduceSum") return sum;
  if (op == "ReduceMean") return sum / static_cast<double>(x.size());
  if (op == "ReduceMax") return *std::max_element(x.begin(), x.end());
  return least;
}

TEST(ReductionRows, AgreeWithPlainSumsAlongEitherAxis) {
  for (const int64_t length : {1, 3, 56, 257, 600}) {
    Tensor x = Numbers(Shape{length, length + 9}, length > 9 ? 0.01f : 0.1f);
    if (length == 257) x.mutable_data<float>()[1000] = kNan;
    if (length == 56) x.mutable_data<float>()[100] = -kInfinity;
    for (const char* op : {"ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp",
                           "ReduceLogSum", "ReduceProd", "ReduceMin"}) {
      for (const int64_t axis : {0, 1}) {
        std::vector<double> wanted;
        for (int64_t kept = 0; kept < x.shape()[static_cast<int>(1 - axis)]; ++kept) {
          std::vector<double> some;
          for (int64_t i = 0; i < x.shape()[static_cast<int>(axis)]; ++i) {
            const int64_t row = axis == 0 ? i : kept, column = axis == 0 ? kept : i;
            some.push_back(x.data<float>()[row * (length + 9) + column]);
          }
          wanted.push_back(Reduced(op, some));
        }
        ExpectNear(Elements(RunOp(op, {x, Ints(Shape{1}, {axis})})), wanted,
                   StrCat(op, " of ", length, " along ", axis));
      }
    }
  }
}

TEST(ReductionRows, OfFewNeighboursAgreeWithPlainSums) {
  for (int64_t length = 1; length <= 9; ++length) {
    Tensor x = Numbers(Shape{5, 8, length}, 0.1f);
    // Sums near 0 have logarithms far apart.
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      float& element = x.mutable_data<float>()[i];
      if (i % 7 != 0 || length == 1) element = std::abs(element) + 0.1f;
    }
    for (const char* op :
         {"ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum",
          "ReduceProd", "ReduceMin", "ReduceMax", "ReduceSum", "ReduceMean"}) {
      std::vector<double> wanted;
      for (int64_t row = 0; row < 40; ++row) {
        const float* begin = x.data<float>() + row * length;
        wanted.push_back(Reduced(op, {begin, begin + length}));
      }
      ExpectNear(Elements(RunOp(op, {x, Ints(Shape{1}, {2})})), wanted, StrCat(op, " of ", length));
    }
  }
}

TEST(ReductionRows, FindTheFirstOrLastOfEqualsInColumns) {
  const int64_t rows = 9, columns = 300;
  Tensor x = *Tensor::Create(DataType::kFloat, Shape{rows, columns});
  for (int64_t i = 0; i < rows * columns; ++i) {
    x.mutable_data<float>()[i] = static_cast<float>(i * 7 % 5);
  }
  for (const bool last : {false, true}) {
    for (const bool smallest : {false, true}) {
      const auto got = Elements<int64_t>(
          RunOp(smallest ? "ArgMin" : "ArgMax", {x},
                With({{"axis", int64_t{0}}, {"select_last_index", int64_t{last}}})));
      for (int64_t c = 0; c < columns; ++c) {
        int64_t best = 0;
        for (int64_t r = 1; r < rows; ++r) {
          const float now = x.data<float>()[r * columns + c];
          const float then = x.data<float>()[best * columns + c];
          if (smallest ? now < then : now > then) best = r;
          if (last && now == then) best = r;
        }
        EXPECT_EQ(got[static_cast<size_t>(c)], best);
      }
    }
  }
}

TEST(Cast, CutsFloatsOffToWholeNumbersWithinTheirRange) {
  const Tensor x = Floats(Shape{10}, {1.9f, -1.9f, 2147483520.0f, 2147483648.0f, -2147483648.0f,
                                      -3e9f, kInfinity, -kInfinity, kNan, 1e20f});
  constexpr int32_t kMost = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = std::numeric_limits<int32_t>::lowest();
  const auto to = [](DataType type) { return With({{"to", static_cast<int64_t>(type)}}); };
  EXPECT_EQ(
      Elements<int32_t>(RunOp("Cast", {x}, to(DataType::kInt32))),
      (std::vector<int32_t>{1, -1, 2147483520, kMost, kLeast, kLeast, kMost, kLeast, 0, kMost}));
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(Elements<int64_t>(RunOp("Cast", {x}, to(DataType::kInt64))),
            (I{1, -1, 2147483520, 2147483648, -2147483648, -3000000000, kFar,
               std::numeric_limits<int64_t>::lowest(), 0, kFar}));
}

TEST(Transpose, MovesBytesAndWordsOfAnyShape) {
  for (const int64_t rows : {1, 5, 8, 17, 70}) {
    for (const int64_t columns : {2, 3, 9, 16, 37}) {
      Tensor bytes = *Tensor::Create(DataType::kUint8, Shape{rows, columns});
      Tensor words = *Tensor::Create(DataType::kInt32, Shape{rows, columns});
      for (int64_t i = 0; i < rows * columns; ++i) {
        bytes.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
        words.mutable_data<int32_t>()[i] = static_cast<int32_t>(i);
      }
      const auto b = Elements<uint8_t>(RunOp("Transpose", {bytes}));
      const auto w = Elements<int32_t>(RunOp("Transpose", {words}));
      for (int64_t i = 0; i < rows * columns; ++i) {
        const int64_t from = i % rows * columns + i / rows;
        ASSERT_EQ(b[static_cast<size_t>(i)], static_cast<uint8_t>(from * 7));
        ASSERT_EQ(w[static_cast<size_t>(i)], from);
      }
    }
  }
}

TEST(Trilu, TakesDiagonalsBeyondAllBounds) {
  const Tensor x = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  const auto trilu = [&](int64_t diagonal, int64_t upper) {
    return Elements(RunOp("Trilu", {x, Tensor::Scalar(diagonal)}, With({{"upper", upper}})));
  };
  constexpr int64_t kFar = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(trilu(1, 1), (std::vector<float>{0, 2, 3, 0, 0, 6}));
  EXPECT_EQ(trilu(-1, 0), (std::vector<float>{0, 0, 0, 4, 0, 0}));
  EXPECT_EQ(trilu(kFar, 0), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(trilu(kFar, 1), std::vector<float>(6, 0.0f));
  EXPECT_EQ(trilu(-kFar, 1), (std::vector<float>{1, 2, 3, 4, 5, 6}));
}

TEST(Scatter, WritesSlicesAndRefusesPlacesOutside) {
  const Tensor x = Numbers(Shape{3, 4, 5}), updates = Numbers(Shape{2, 5}, 7.0f);
  std::vector<float> wanted(x.data<float>(), x.data<float>() + 60);
  std::copy_n(updates.data<float>(), 5, wanted.data() + (2 * 4 + 1) * 5);
  std::copy_n(updates.data<float>() + 5, 5, wanted.data() + 3 * 5);
  EXPECT_EQ(Elements(RunOp("ScatterND", {x, Ints(Shape{2, 2}, {-1, 1, 0, 3}), updates})), wanted);
  const auto outside = RunOp("ScatterND", {x, Ints(Shape{2, 2}, {0, 4, 0, 3}), updates});
  EXPECT_NE(outside.status().ToString().find("index 4 is outside an axis of 4"), std::string::npos);
}

TEST(Gather, TakesElementsAlongAnyAxisAndRefusesPlacesOutside) {
  const Tensor x = Numbers(Shape{2, 3, 4});
  EXPECT_EQ(Elements(RunOp("GatherElements", {x, Ints(Shape{1, 2, 3}, {2, -3, 1, 0, 2, -1})},
                           With({{"axis", int64_t{1}}}))),
            (std::vector<float>{x.data<float>()[8], x.data<float>()[1], x.data<float>()[6],
                                x.data<float>()[0], x.data<float>()[9], x.data<float>()[10]}));
  EXPECT_FALSE(
      RunOp("GatherElements", {x, Ints(Shape{1, 1, 1}, {3})}, With({{"axis", int64_t{1}}})).ok());
}

// mean and deviation of x[first, first + count).
std::pair<double, double> Moments(const Tensor& x, int64_t first, int64_t count) {
  double mean = 0, variance = 0;
  for (int64_t i = first; i < first + count; ++i) mean += x.data<float>()[i];
  mean /= static_cast<double>(count);
  for (int64_t i = first; i < first + count; ++i) {
    variance += std::pow(x.data<float>()[i] - mean, 2);
  }
  return {mean, std::sqrt(variance / static_cast<double>(count))};
}

TEST(Normalization, OfGroupsHasParametersByChannelOrByGroup) {
  const int64_t images = 2, channels = 6, groups = 3, plane = 35, width = channels / groups * plane;
  const Tensor x = Numbers(Shape{images, channels, 5, 7});
  for (const int64_t opset : {18, 21}) {
    const int64_t count = opset == 18 ? groups : channels;
    const Tensor scale = Numbers(Shape{count}, 0.01f), bias = Numbers(Shape{count}, 0.02f);
    std::vector<double> wanted;
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      const auto [mean, deviation] = Moments(x, i / width * width, width);
      const int64_t at = opset == 18 ? i / width % groups : i / plane % channels;
      wanted.push_back((x.data<float>()[i] - mean) / std::sqrt(deviation * deviation + 1e-5) *
                           scale.data<float>()[at] +
                       bias.data<float>()[at]);
    }
    ExpectNear(Elements(RunOp("GroupNormalization", {x, scale, bias},
                              With({{"num_groups", groups}}), {.opset = opset})),
               wanted, StrCat("opset ", opset));
  }
}

TEST(Normalization, OfMeanAndVarianceTakesAnyAxes) {
  const Tensor x = Numbers(Shape{1, 4, 6, 5});
  std::vector<double> planes, all;
  for (int64_t i = 0; i < x.ElementCount(); ++i) {
    const auto [mean, deviation] = Moments(x, i / 30 * 30, 30);
    planes.push_back((x.data<float>()[i] - mean) / (deviation + 1e-9));
    const auto [whole_mean, whole_deviation] = Moments(x, 0, 120);
    all.push_back((x.data<float>()[i] - whole_mean) / (whole_deviation + 1e-9));
  }
  ExpectNear(Elements(RunOp("MeanVarianceNormalization", {x})), planes, "planes");
  ExpectNear(Elements(RunOp("MeanVarianceNormalization", {x}, With({{"axes", I{0, 1, 2, 3}}}))),
             all, "all");
}

// Offsets that point half outside of the image, whose other pixels do not count.
TEST(DeformConv, SeesNothingBeyondTheImage) {
  Tensor x = Numbers(Shape{1, 2, 4, 4});
  x.mutable_data<float>()[0] = kNan;
  const Tensor weights = Floats(Shape{1, 2, 1, 1}, {1, 10});
  Tensor offsets = *Tensor::Create(DataType::kFloat, Shape{1, 2, 4, 4});
  std::fill_n(offsets.mutable_data<float>(), 32, 0.5f);
  const auto got = Elements(RunOp("DeformConv", {x, weights, offsets}, {}, {.opset = 19}));
  std::vector<double> wanted;
  for (int64_t i = 0; i < 16; ++i) {
    double sum = 0;
    for (int64_t c = 0; c < 2; ++c) {
      for (const int64_t corner : {0, 1, 4, 5}) {
        if (i / 4 + corner / 4 > 3 || i % 4 + corner % 4 > 3) continue;
        sum += 0.25 * weights.data<float>()[c] * x.data<float>()[c * 16 + i + corner];
      }
    }
    wanted.push_back(sum);
  }
  ExpectNear(got, wanted, "half a pixel away");
}

// Of many channels, which are read together, and of each alone.
TEST(Sampling, OfManyChannelsIsThatOfEach) {
  const int64_t batches = 2, channels = 11, height = 9, width = 7, points = 300;
  const Tensor image = Numbers(Shape{batches, channels, height, width});
  Tensor grid = *Tensor::Create(DataType::kFloat, Shape{batches, points / 20, 20, 2});
  for (int64_t i = 0; i < grid.ElementCount(); ++i) {
    grid.mutable_data<float>()[i] = 1.3f * std::sin(static_cast<float>(i * i));
  }
  Tensor rois = *Tensor::Create(DataType::kFloat, Shape{6, 4});
  Tensor of_batch = *Tensor::Create(DataType::kInt64, Shape{6});
  for (int64_t r = 0; r < 6; ++r) {
    const auto at = static_cast<float>(r);
    const float corners[] = {0.3f * at, 0.5f * at - 1, 3 + 0.4f * at, 5 + at};
    std::copy_n(corners, 4, rois.mutable_data<float>() + r * 4);
    of_batch.mutable_data<int64_t>()[r] = r % batches;
  }
  const auto one_channel = [&](int64_t c) {
    Tensor out = *Tensor::Create(DataType::kFloat, Shape{batches, 1, height, width});
    for (int64_t b = 0; b < batches; ++b) {
      std::copy_n(image.data<float>() + (b * channels + c) * height * width, height * width,
                  out.mutable_data<float>() + b * height * width);
    }
    return out;
  };
  const auto agree = [&](const std::string& op, const std::vector<Tensor>& others,
                         const Attributes& attributes) {
    std::vector<Tensor> inputs = {image};
    inputs.insert(inputs.end(), others.begin(), others.end());
    const std::vector<float> all = Elements(RunOp(op, inputs, attributes));
    for (int64_t c = 0; c < channels; ++c) {
      inputs[0] = one_channel(c);
      const std::vector<float> own = Elements(RunOp(op, inputs, attributes));
      ASSERT_EQ(own.size() * channels, all.size());
      const auto each = static_cast<int64_t>(own.size()) / (op == "RoiAlign" ? 6 : batches);
      for (size_t i = 0; i < own.size(); ++i) {
        const auto at = static_cast<int64_t>(i);
        const auto of_all = static_cast<size_t>((at / each * channels + c) * each + at % each);
        ASSERT_NEAR(all[of_all], own[i], 1e-5f) << op << " " << c << " " << i;
      }
    }
  };
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      agree("GridSample", {grid}, With({{"mode", mode}, {"padding_mode", padding}}));
    }
  }
  agree("RoiAlign", {rois, of_batch},
        With({{"output_height", int64_t{3}}, {"output_width", int64_t{5}}}));
}

// [9, columns], or its transpose, by the norm of each of its rows.
void CheckNorms(int64_t columns) {
  const int64_t rows = 9;
  Tensor x = Numbers(Shape{rows, columns});
  std::fill_n(x.mutable_data<float>() + 2 * columns, columns, 0.0f);  // stay zeros
  const auto at = [&](int64_t row, int64_t column) {
    return static_cast<double>(x.data<float>()[row * columns + column]);
  };
  const auto norm = [&](const std::string& kind, int64_t row) {
    double largest = -1e9, sizes = 0, squares = 0;
    for (int64_t c = 0; c < columns; ++c) {
      largest = std::max(largest, at(row, c));
      sizes += std::abs(at(row, c));
      squares += at(row, c) * at(row, c);
    }
    const double all = kind == "MAX" ? largest : kind == "L1" ? sizes : std::sqrt(squares);
    return all == 0 ? 1.0 : all;
  };
  Tensor turned = *Tensor::Create(DataType::kFloat, Shape{columns, rows});
  for (int64_t i = 0; i < rows * columns; ++i) {
    turned.mutable_data<float>()[i] = static_cast<float>(at(i % rows, i / rows));
  }
  for (const int64_t p : {1, 2}) {
    const std::string kind = p == 1 ? "L1" : "L2";
    const auto along = Elements(RunOp("LpNormalization", {x}, With({{"p", p}})));
    const auto across =
        Elements(RunOp("LpNormalization", {turned}, With({{"p", p}, {"axis", int64_t{0}}})));
    for (int64_t i = 0; i < rows * columns; ++i) {
      const auto own = static_cast<size_t>(i);
      EXPECT_NEAR(along[own], at(i / columns, i % columns) / norm(kind, i / columns), 1e-6);
      EXPECT_NEAR(across[own], at(i % rows, i / rows) / norm(kind, i % rows), 1e-6);
    }
  }
  for (const std::string kind : {"MAX", "L1", "L2"}) {
    const auto y =
        Elements(RunOp("Normalizer", {x}, With({{"norm", kind}}), {.domain = "ai.onnx.ml"}));
    for (int64_t i = 0; i < rows * columns; ++i) {
      EXPECT_NEAR(y[static_cast<size_t>(i)], at(i / columns, i % columns) / norm(kind, i / columns),
                  1e-5)
          << kind;
    }
  }
}

TEST(Normalization, DividesByNormsAlongEitherAxis) {
  CheckNorms(37);
  CheckNorms(90);
}

TEST(Scaler, SubtractsAndMultipliesByColumnOrAll) {
  const Tensor x = Floats(Shape{2, 2}, {1, 2, 3, 4}), wide = Ints(Shape{1, 2}, {7, 8});
  const auto scaled = [](const Tensor& in, std::vector<float> offset, std::vector<float> scale) {
    return RunOp("Scaler", {in}, With({{"offset", offset}, {"scale", scale}}),
                 {.domain = "ai.onnx.ml"});
  };
  EXPECT_EQ(Elements(scaled(x, {1, 2}, {10, 100})), (std::vector<float>{0, 0, 20, 200}));
  EXPECT_EQ(Elements(scaled(wide, {1}, {2, 3})), (std::vector<float>{12, 21}));
  EXPECT_EQ(scaled(x, {1, 2, 3}, {1}).status().code(), StatusCode::kInvalidArgument);
}

TEST(LinearModels, RefuseOutputsThatTheirCoefficientsAreNotOf) {
  const Tensor x = Numbers(Shape{2, 3});
  for (const int64_t targets : {int64_t{2}, int64_t{1} << 40}) {
    Attributes attributes =
        With({{"coefficients", std::vector<float>{1, 2, 3}}, {"targets", targets}});
    const auto refused = RunOp("LinearRegressor", {x}, attributes, {.domain = "ai.onnx.ml"});
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  }
}

// Small whole numbers, so that sums are exact in any order; more rows than are taken at once.
TEST(LinearModels, GiveWhatPlainSumsGive) {
  const int64_t rows = 131, width = 10;
  Tensor x = *Tensor::Create(DataType::kFloat, Shape{rows, width});
  for (int64_t i = 0; i < rows * width; ++i) {
    x.mutable_data<float>()[i] = static_cast<float>(i * i % 11 - 5);
  }
  for (const int64_t outputs : {1, 2, 4, 5, 40}) {
    std::vector<float> coefficients, intercepts;
    for (int64_t i = 0; i < outputs * width; ++i) {
      coefficients.push_back(static_cast<float>(i * 5 % 13 - 6));
    }
    for (int64_t o = 0; o < outputs; ++o) intercepts.push_back(static_cast<float>(o % 3));
    const auto score = [&](int64_t row, int64_t o) {
      float sum = intercepts[static_cast<size_t>(o)];
      for (int64_t i = 0; i < width; ++i) {
        sum += x.data<float>()[row * width + i] * coefficients[static_cast<size_t>(o * width + i)];
      }
      return sum;
    };
    Attributes regressor =
        With({{"coefficients", coefficients}, {"intercepts", intercepts}, {"targets", outputs}});
    const auto y = Elements(RunOp("LinearRegressor", {x}, regressor, {.domain = "ai.onnx.ml"}));
    std::vector<int64_t> labels(static_cast<size_t>(outputs));
    std::iota(labels.begin(), labels.end(), 100);
    Attributes classifier = With(
        {{"coefficients", coefficients}, {"intercepts", intercepts}, {"classlabels_ints", labels}});
    const auto classes =
        RunOp("LinearClassifier", {x}, classifier, {.domain = "ai.onnx.ml", .outputs = 2});
    const auto label = Elements<int64_t>(classes);
    const auto scores = Elements(classes, 1);
    for (int64_t row = 0; row < rows; ++row) {
      int64_t best = 0;
      for (int64_t o = 0; o < outputs; ++o) {
        const auto at = static_cast<size_t>(row * outputs + o);
        EXPECT_EQ(y[at], score(row, o));
        EXPECT_EQ(scores[at], score(row, o));
        if (score(row, o) > score(row, best)) best = o;
      }
      EXPECT_EQ(label[static_cast<size_t>(row)], 100 + best);
    }
  }
}

// Windows over images of either order of their sums: added one by one.
TEST(Col2Im, AddsPatchesOfAnyStrideAndPadding) {
  struct Case {
    std::vector<int64_t> image, block, strides, pads, dilations;
  };
  const Case cases[] = {{{9, 8}, {3, 3}, {1, 1}, {1, 1, 1, 1}, {1, 1}},
                        {{9, 8}, {2, 3}, {2, 3}, {0, 2, 1, 1}, {1, 1}},
                        {{10, 7}, {3, 2}, {1, 2}, {2, 0, 1, 3}, {2, 3}},
                        {{3, 2}, {2, 2}, {1, 1}, {4, 3, 0, 5}, {1, 1}}};
  const auto extent = [](const Case& c, size_t axis) {
    const int64_t reach = (c.block[axis] - 1) * c.dilations[axis] + 1;
    return (c.image[axis] + c.pads[axis] + c.pads[axis + 2] - reach) / c.strides[axis] + 1;
  };
  for (const Case& c : cases) {
    const int64_t rows = extent(c, 0), columns = extent(c, 1), taps = c.block[0] * c.block[1];
    const Tensor x = Numbers(Shape{2, 3 * taps, rows * columns}, 1.0f);
    const auto y = Elements(
        RunOp("Col2Im",
              {x, Tensor::Of<int64_t>(Shape{2}, c.image), Tensor::Of<int64_t>(Shape{2}, c.block)},
              With({{"strides", c.strides}, {"pads", c.pads}, {"dilations", c.dilations}})));
    const int64_t plane = c.image[0] * c.image[1];
    std::vector<float> wanted(static_cast<size_t>(6 * plane));
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      const int64_t position = i % (rows * columns), tap = i / (rows * columns) % taps;
      const int64_t down =
          position / columns * c.strides[0] - c.pads[0] + tap / c.block[1] * c.dilations[0];
      const int64_t across =
          position % columns * c.strides[1] - c.pads[1] + tap % c.block[1] * c.dilations[1];
      if (down < 0 || down >= c.image[0] || across < 0 || across >= c.image[1]) continue;
      const int64_t lane = i / (rows * columns * taps);
      wanted[static_cast<size_t>(lane * plane + down * c.image[1] + across)] += x.data<float>()[i];
    }
    EXPECT_EQ(y, wanted);
  }
}

TEST(Hardmax, TakesTheFirstOfTheLargest) {
  Tensor x = Numbers(Shape{3, 70});
  float* values = x.mutable_data<float>();
  values[20] = values[50] = 1e6f;       // the first row's
  std::fill_n(values + 70, 70, -1.0f);  // the first of all
  values[140 + 69] = kInfinity;
  TestModel model;  // whose Hardmax writes where it reads
  model.Input("x", DataType::kFloat, {3, 70}).Node("Neg", {"x"}, {"n"}).Node("Neg", {"n"}, {"p"});
  model.Node("Hardmax", {"p"}, {"h"}).Node("Neg", {"h"}, {"y"}).Output("y");
  const auto session = model.Load(OptimizationLevel::kDisable);
  ASSERT_TRUE(session.ok());
  const auto y = Elements(RunOp("Hardmax", {x}));
  const auto in_place = Elements((*session)->Run(std::vector<Value>{x}, {}));
  for (int64_t i = 0; i < 210; ++i) {
    const bool chosen = i == 20 || i == 70 || i == 209;
    EXPECT_EQ(y[static_cast<size_t>(i)], chosen ? 1.0f : 0.0f) << i;
    EXPECT_EQ(in_place[static_cast<size_t>(i)], chosen ? -1.0f : 0.0f) << i;
  }
}

// As onnxruntime does: (3 + 0.5) / 0.35 - 0.5 is 9.5 in float, and a tie, but more in double.
TEST(Resize, FindsTheNearestInFloat) {
  Tensor x = *Tensor::Create(DataType::kFloat, Shape{1, 1, 640});
  std::iota(x.mutable_data<float>(), x.mutable_data<float>() + 640, 0.0f);
  const Tensor none = *Tensor::Create(DataType::kFloat, Shape{0});
  const auto y = Elements(
      RunOp("Resize", {x, none, none, Ints(Shape{3}, {1, 1, 224})}, With({{"mode", "nearest"}})));
  ASSERT_EQ(y.size(), 224u);
  for (int64_t i = 0; i < 224; ++i) {
    const float at = (static_cast<float>(i) + 0.5f) / 0.35f - 0.5f;
    EXPECT_EQ(y[static_cast<size_t>(i)], std::ceil(at - 0.5f)) << i;
  }
  EXPECT_EQ(y[3], 9.0f);
}

TEST(Resize, DoublesToTheNearestAlongAnyAxis) {
  const Tensor x = Numbers(Shape{2, 3, 5, 4});
  for (const auto& scales : {std::vector<float>{1, 1, 2, 2}, {1, 1, 1, 2}, {1, 2, 1, 1}}) {
    Attributes attributes = With({{"mode", "nearest"},
                                  {"coordinate_transformation_mode", "asymmetric"},
                                  {"nearest_mode", "floor"}});
    const auto y = Elements(
        RunOp("Resize",
              {x, *Tensor::Create(DataType::kFloat, Shape{0}), Tensor::Of<float>(Shape{4}, scales)},
              attributes));
    size_t at = 0;
    const auto extent = [&](size_t axis) {
      return x.shape()[static_cast<int>(axis)] * static_cast<int64_t>(scales[axis]);
    };
    for (int64_t n = 0; n < extent(0); ++n) {
      for (int64_t c = 0; c < extent(1); ++c) {
        for (int64_t h = 0; h < extent(2); ++h) {
          for (int64_t w = 0; w < extent(3); ++w) {
            const auto from = [&](int64_t i, size_t axis) {
              return i / static_cast<int64_t>(scales[axis]);
            };
            const int64_t source =
                ((from(n, 0) * 3 + from(c, 1)) * 5 + from(h, 2)) * 4 + from(w, 3);
            ASSERT_EQ(y[at++], x.data<float>()[source]);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace onnxd
