// A property of every pass: what it rewrites computes what it did. Random graphs of random shapes
// at every optimization level, against the level that rewrites nothing.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "runtime/base/str_cat.h"
#include "runtime/ops/shape_inference.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

constexpr int kGraphs = 250;
constexpr int kNodes = 14;

// Adds nodes to values that exist already; every value is float, of rank 4 or less.
class RandomGraph {
 public:
  explicit RandomGraph(uint64_t seed) : random_(seed) {
    input_shape_ = Shape{Between(1, 2), Between(1, 4), Between(3, 6), Between(3, 6)};
    model_.Input("x", DataType::kFloat, ToSymbolic(input_shape_));
    values_.emplace_back("x", input_shape_);
    for (int i = 0; i < kNodes; ++i) AddNode();
    // The last value and one in the middle.
    model_.Output(values_.back().first);
    const auto& other = Pick();
    if (other.first != values_.back().first) model_.Output(other.first);
  }

  TestModel& model() { return model_; }

  Tensor Input() { return Random(input_shape_); }

  // What was added, for messages.
  const std::string& text() const { return text_; }

 private:
  using Named = std::pair<std::string, Shape>;

  int64_t Between(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  const Named& Pick() {
    return values_[static_cast<size_t>(Between(0, static_cast<int64_t>(values_.size()) - 1))];
  }

  Tensor Random(const Shape& shape) {
    Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      tensor.mutable_data<float>()[i] = normal(random_);
    }
    return tensor;
  }

  std::string Constant(Tensor tensor) {
    const std::string name = StrCat("c", count_++);
    model_.Constant(name, std::move(tensor));
    return name;
  }
  std::string Integers(std::vector<int64_t> values) {
    const Shape shape{static_cast<int64_t>(values.size())};
    return Constant(Tensor::Of<int64_t>(shape, std::span<const int64_t>(values)));
  }

  void Add(const std::string& op, std::vector<std::string> inputs, Attributes attributes = {}) {
    const std::string name = StrCat("v", count_++);
    model_.Node(op, inputs, {name}, std::move(attributes));
    text_ += StrCat(name, " = ", op, "(", StrJoin(inputs, ", "), "); ");
    ASSERT_TRUE(InferGraph(model_.graph()).ok()) << text_;
    const ValueType& type = model_.graph().value(model_.graph().FindValue(name)).type;
    const auto shape = type.shape ? ToConcrete(*type.shape) : std::nullopt;
    ASSERT_TRUE(shape) << text_;
    if (shape->ElementCount() > 0 && shape->ElementCount() < 4096)
      values_.emplace_back(name, *shape);
  }

  void AddNode() {
    const Named value = Pick();
    const std::string& x = value.first;
    const Shape& shape = value.second;
    switch (Between(0, 20)) {
      case 0:
        return AddUnary(x);
      case 1:
        return AddBinary(value);
      case 2:
        return AddConvolution(value);
      case 3:
        return AddBatchNormalization(value);
      case 4:
        return AddTranspose(value);
      case 5:
        return Add("Reshape", {x, Integers({shape.ElementCount()})});
      case 6:
        return AddFlattenedProduct(value);
      case 7:
        return AddPool(value);
      case 8:
        return Add("Identity", {x});
      case 9:
        return Add("Dropout", {x});
      case 10:
        return AddConcat(value);
      case 11:
        return AddReduction(value);
      case 12:
        return AddSlice(value);
      case 13:
        return AddConstants();
      case 14:
        return AddSoftmax(value);
      case 15:
        return AddConvTranspose(value);
      case 16:
        return AddBlocks(value);
      case 17:
        return AddResize(value);
      case 18:
        return AddNormalization(value);
      case 19:
        return AddTokens(value);
      default:
        return AddUnary(x);
    }
  }

  void AddUnary(const std::string& x) {
    static const std::vector<std::string> kOperators = {
        "Relu",      "Sigmoid", "Tanh", "Neg", "Abs",       "Softplus",
        "LeakyRelu", "Elu",     "Clip", "Sin", "HardSwish", "Identity"};
    const auto& op = kOperators[static_cast<size_t>(Between(0, 11))];
    if (op != "Clip") return Add(op, {x});
    Add(op, {x, Constant(Tensor::Scalar(-0.5f)), Constant(Tensor::Scalar(1.0f))});
  }

  void AddBinary(const Named& value) {
    static const std::vector<std::string> kOperators = {"Add", "Sub", "Mul", "Max", "Min"};
    const auto& op = kOperators[static_cast<size_t>(Between(0, 4))];
    const Named other = Pick();
    if (Between(0, 1) == 0 && other.second == value.second)
      return Add(op, {value.first, other.first});
    // A constant: a scalar (at times the neutral 0 or 1), one per channel, or a whole tensor.
    Shape shape;
    const int64_t form = Between(0, 2);
    if (form == 1 && value.second.rank() == 4) shape = Shape{1, value.second[1], 1, 1};
    if (form == 2) shape = value.second;
    Tensor constant = Random(shape);
    if (shape.rank() == 0) constant.mutable_data<float>()[0] = static_cast<float>(Between(0, 1));
    Add(op, {value.first, Constant(std::move(constant))});
  }

  void AddConvolution(const Named& value) {
    if (value.second.rank() != 4) return AddUnary(value.first);
    const int64_t channels = value.second[1], kernel = Between(0, 1) == 0 ? 1 : 3;
    const bool depthwise = Between(0, 2) == 0;
    const int64_t out = depthwise ? channels : Between(1, 5);
    Attributes attributes;
    attributes.Set("pads", std::vector<int64_t>(4, kernel / 2));
    attributes.Set("strides", std::vector<int64_t>(2, Between(1, 2)));
    if (depthwise) attributes.Set("group", channels);
    std::vector<std::string> inputs = {
        value.first, Constant(Random({out, depthwise ? 1 : channels, kernel, kernel}))};
    if (Between(0, 1) == 0) inputs.push_back(Constant(Random({out})));
    Add("Conv", inputs, attributes);
  }

  void AddBatchNormalization(const Named& value) {
    if (value.second.rank() < 2) return AddUnary(value.first);
    const Shape channels{value.second[1]};
    Tensor variance = Random(channels);
    for (int64_t i = 0; i < channels[0]; ++i) {
      variance.mutable_data<float>()[i] = 0.5f + std::fabs(variance.data<float>()[i]);
    }
    Add("BatchNormalization", {value.first, Constant(Random(channels)), Constant(Random(channels)),
                               Constant(Random(channels)), Constant(std::move(variance))});
  }

  void AddTranspose(const Named& value) {
    std::vector<int64_t> perm;
    for (int axis = 0; axis < value.second.rank(); ++axis) perm.push_back(axis);
    std::shuffle(perm.begin(), perm.end(), random_);
    Attributes attributes;
    attributes.Set("perm", perm);
    Add("Transpose", {value.first}, attributes);
  }

  void AddFlattenedProduct(const Named& value) {
    const int64_t rows = value.second.rank() == 0 ? 1 : value.second[0];
    const int64_t columns = value.second.ElementCount() / rows, width = Between(1, 6);
    Add("Reshape", {value.first, Integers({rows, columns})});
    const std::string matrix = StrCat("v", count_ - 1);
    if (Between(0, 1) == 0) return Add("MatMul", {matrix, Constant(Random({columns, width}))});
    Attributes attributes;
    attributes.Set("transB", int64_t{1});
    Add("Gemm", {matrix, Constant(Random({width, columns})), Constant(Random({width}))},
        attributes);
  }

  void AddPool(const Named& value) {
    if (value.second.rank() != 4) return AddUnary(value.first);
    if (Between(0, 2) == 0) return Add("GlobalAveragePool", {value.first});
    Attributes attributes;
    attributes.Set("kernel_shape", std::vector<int64_t>{3, 3});
    attributes.Set("pads", std::vector<int64_t>(4, 1));
    attributes.Set("strides", std::vector<int64_t>(2, Between(1, 2)));
    Add(Between(0, 1) == 0 ? "MaxPool" : "AveragePool", {value.first}, attributes);
  }

  void AddConcat(const Named& value) {
    if (value.second.rank() == 0) return AddUnary(value.first);
    Attributes attributes;
    attributes.Set("axis", Between(0, value.second.rank() - 1));
    Add("Concat", {value.first, Constant(Random(value.second)), value.first}, attributes);
  }

  void AddReduction(const Named& value) {
    static const std::vector<std::string> kOperators = {"ReduceMean", "ReduceMax", "ReduceL2"};
    if (value.second.rank() == 0) return AddUnary(value.first);
    Attributes attributes;
    attributes.Set("axes", std::vector<int64_t>{Between(0, value.second.rank() - 1)});
    attributes.Set("keepdims", Between(0, 1));
    Add(kOperators[static_cast<size_t>(Between(0, 2))], {value.first}, attributes);
  }

  void AddSlice(const Named& value) {
    if (value.second.rank() == 0) return AddUnary(value.first);
    const int64_t axis = Between(0, value.second.rank() - 1);
    Add("Slice", {value.first, Integers({Between(-2, 1)}), Integers({1 << 20}), Integers({axis}),
                  Integers({Between(1, 2)})});
  }

  // Nothing but constants: folded away.
  void AddConstants() {
    const Shape shape{Between(1, 3), Between(1, 3)};
    Add("Add", {Constant(Random(shape)), Constant(Random(shape))});
    Add("Exp", {StrCat("v", count_ - 1)});
  }

  void AddSoftmax(const Named& value) {
    if (value.second.rank() == 0) return AddUnary(value.first);
    Attributes attributes;
    attributes.Set("axis", Between(-1, value.second.rank() - 1));
    Add("Softmax", {value.first}, attributes);
  }

  std::string Last() const { return StrCat("v", count_ - 1); }

  void AddConvTranspose(const Named& value) {
    if (value.second.rank() != 4) return AddUnary(value.first);
    const int64_t kernel = Between(2, 4), pad = kernel > 2 ? Between(0, 1) : 0;
    Attributes attributes;
    attributes.Set("strides", std::vector<int64_t>(2, 2));
    attributes.Set("pads", std::vector<int64_t>(4, pad));
    Add("ConvTranspose",
        {value.first, Constant(Random({value.second[1], Between(1, 3), kernel, kernel}))},
        attributes);
  }

  void AddBlocks(const Named& value) {
    if (value.second.rank() != 4 || value.second[1] % 4 != 0) return AddConvolution(value);
    Attributes attributes;
    attributes.Set("blocksize", int64_t{2});
    Add("DepthToSpace", {value.first}, attributes);
  }

  void AddResize(const Named& value) {
    if (value.second.rank() != 4) return AddUnary(value.first);
    Attributes attributes;
    if (Between(0, 1) == 0) attributes.Set("mode", "linear");
    Add("Resize", {value.first, "", Constant(Floats(Shape{4}, {1, 1, 2, 1}))}, attributes);
  }

  // Of channels, or of groups as exporters write it. Epsilon bounds how much differences grow.
  void AddNormalization(const Named& value) {
    if (value.second.rank() != 4) return AddUnary(value.first);
    const int64_t channels = value.second[1], groups = channels % 2 == 0 ? channels / 2 : channels;
    Attributes attributes;
    attributes.Set("epsilon", 0.1f);
    if (Between(0, 1) == 0) {
      return Add("InstanceNormalization",
                 {value.first, Constant(Random({channels})), Constant(Random({channels}))},
                 attributes);
    }
    Add("Reshape", {value.first, Integers({0, groups, -1})});
    Tensor ones = Random({groups}), zeros = Random({groups});
    std::fill_n(ones.mutable_data<float>(), groups, 1.0f);
    std::fill_n(zeros.mutable_data<float>(), groups, 0.0f);
    Add("InstanceNormalization", {Last(), Constant(std::move(ones)), Constant(std::move(zeros))},
        attributes);
    Add("Reshape", {Last(), Integers(value.second.dims())});
    Add("Mul", {Last(), Constant(Random({channels, 1, 1}))});
    Add("Add", {Last(), Constant(Random({channels, 1, 1}))});
  }

  // An image as rows of channels, and back.
  void AddTokens(const Named& value) {
    if (value.second.rank() != 4) return AddUnary(value.first);
    Add("Reshape", {value.first, Integers({0, 0, -1})});
    Add("Transpose", {Last()}, Order({0, 2, 1}));
    AddUnary(Last());
    Add("Transpose", {Last()}, Order({0, 2, 1}));
    Add("Reshape", {Last(), Integers(value.second.dims())});
  }

  std::mt19937_64 random_;
  TestModel model_;
  Shape input_shape_;
  std::vector<Named> values_;
  std::string text_;
  int count_ = 0;
};

// The last of several runs.
std::vector<Value> RunAt(RandomGraph& graph, SessionOptions options, const Tensor& input,
                         int runs = 1) {
  TestModel copy = graph.model();
  const auto session = InferenceSession::FromModel(std::move(copy.model()), std::move(options));
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  if (!session.ok()) return {};
  auto outputs = (*session)->Run(std::vector<Value>{input}, {});
  while (--runs > 0 && outputs.ok()) {
    outputs = (*session)->Run(std::vector<Value>{Ramp(input.shape(), 0.1f)}, {});
    if (outputs.ok()) outputs = (*session)->Run(std::vector<Value>{input}, {});
  }
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  return outputs.ok() ? std::move(*outputs) : std::vector<Value>{};
}

void ExpectSame(const Tensor& got, const Tensor& wanted) {
  ASSERT_EQ(got.shape(), wanted.shape());
  for (int64_t i = 0; i < wanted.ElementCount(); ++i) {
    const float a = got.data<float>()[i], b = wanted.data<float>()[i];
    ASSERT_TRUE(a == b || std::fabs(a - b) <= 1e-4f + 1e-3f * std::fabs(b) ||
                (std::isnan(a) && std::isnan(b)))
        << "element " << i << ": " << a << ", expected " << b;
  }
}

TEST(RandomGraphs, ComputeTheSameAtEveryLevel) {
  for (uint64_t seed = 0; seed < kGraphs && !testing::Test::HasFailure(); ++seed) {
    RandomGraph graph(seed);
    SCOPED_TRACE(StrCat("seed ", seed, ": ", graph.text()));
    const Tensor input = graph.Input();
    const auto wanted = RunAt(graph, DefaultSession(OptimizationLevel::kDisable), input);
    for (const auto level :
         {OptimizationLevel::kBasic, OptimizationLevel::kExtended, OptimizationLevel::kAll}) {
      SCOPED_TRACE(OptimizationLevelName(level));
      const auto got = RunAt(graph, DefaultSession(level), input);
      ASSERT_EQ(got.size(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) ExpectSame(got[i].tensor(), wanted[i].tensor());
    }
  }
}

// Fused kernels as well, of which each graph has its own.
TEST(RandomGraphs, ComputeTheSameOnADevice) {
  constexpr uint64_t kDeviceGraphs = 25;
  SessionOptions options = DefaultSession();
  options.providers = *MakeProviders({"fused", "cpu"});
  if (options.providers.size() < 2) GTEST_SKIP() << "no OpenCL on this machine";
  for (uint64_t seed = 0; seed < kDeviceGraphs && !testing::Test::HasFailure(); ++seed) {
    RandomGraph graph(seed);
    SCOPED_TRACE(StrCat("seed ", seed, ": ", graph.text()));
    const Tensor input = graph.Input();
    const auto wanted = RunAt(graph, DefaultSession(OptimizationLevel::kDisable), input);
    // What the second run recorded, the others replay.
    const auto got = RunAt(graph, options, input, 2);
    ASSERT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); ++i) ExpectSame(got[i].tensor(), wanted[i].tensor());
  }
}

}  // namespace
}  // namespace onnxd
