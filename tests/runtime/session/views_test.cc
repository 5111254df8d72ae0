// What only moves elements does not run where those who read them take strides: attention on either
// side, Concat on a device.
#include <gmock/gmock.h>

#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/session/run_profile.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

Attributes With(const std::string& name, Attribute value) {
  Attributes attributes;
  attributes.Set(name, std::move(value));
  return attributes;
}

Attributes Order(std::vector<int64_t> order) { return With("perm", std::move(order)); }
Attributes Axis(int64_t axis) { return With("axis", axis); }

Tensor Waves(const Shape& shape, float scale) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * std::sin(static_cast<float>(i) * 0.37f) + 0.01f;
  }
  return tensor;
}

Tensor Row(std::initializer_list<int64_t> numbers) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(numbers.size())}, numbers);
}

// Attention of q [.., rows, width] over k and v, as it is exported.
TestModel& Attend(TestModel& model, const std::string& q, const std::string& k,
                  const std::string& v, std::vector<int64_t> key_order) {
  model.Node("Transpose", {k}, {"kt"}, Order(std::move(key_order)));
  model.Node("MatMul", {q, "kt"}, {"s"}).Node("Softmax", {"s"}, {"p"}, Axis(-1));
  return model.Node("MatMul", {"p", v}, {"y"}).Output("y");
}

// Queries, keys and values from one product, as rows of [batch, 5, 3 * heads * width].
TestModel Packed(int64_t heads, int64_t width) {
  const int64_t row = heads * width;
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 5, 32});
  model.Constant("w", Waves(Shape{32, 3 * row}, 0.3f));
  model.Node("MatMul", {"x", "w"}, {"qkv"});
  return model;
}

// As in GPT-2: the row is split in three.
TestModel SplitRows(int64_t heads = 4, int64_t width = 16) {
  TestModel model = Packed(heads, width);
  model.Constant("to", Row({0, 5, heads, width}));
  model.Node("Split", {"qkv"}, {"q0", "k0", "v0"}, Axis(-1));
  for (const std::string part : {"q", "k", "v"}) {
    model.Node("Reshape", {part + "0", "to"}, {part + "1"});
    model.Node("Transpose", {part + "1"}, {part}, Order({0, 2, 1, 3}));
  }
  return Attend(model, "q", "k", "v", {0, 1, 3, 2});
}

// As in PyTorch's MultiheadAttention: the three are an axis that comes first, heads join the batch.
TestModel StackedRows() {
  TestModel model = Packed(4, 16);
  model.Node("Transpose", {"qkv"}, {"rows_first"}, Order({1, 0, 2}));
  model.Constant("apart", Row({5, -1, 3, 64})).Constant("heads_join", Row({5, -1, 16}));
  model.Constant("heads_leave", Row({-1, 4, 5, 16}));
  model.Node("Reshape", {"rows_first", "apart"}, {"split"});
  model.Node("Transpose", {"split"}, {"stack"}, Order({2, 0, 1, 3}));
  int64_t index = 0;
  for (const std::string part : {"q", "k", "v"}) {
    model.Constant("at" + part, Tensor::Scalar(index++));
    model.Node("Gather", {"stack", "at" + part}, {part + "0"}, Axis(0));
    model.Node("Reshape", {part + "0", "heads_join"}, {part + "1"});
    model.Node("Transpose", {part + "1"}, {part + "2"}, Order({1, 0, 2}));
    model.Node("Reshape", {part + "2", "heads_leave"}, {part});
  }
  return Attend(model, "q", "k", "v", {0, 1, 3, 2});
}

struct Ran {
  std::vector<Value> outputs;
  std::vector<std::string> moves;  // the steps that only moved elements
};

Ran RunModel(TestModel model, const Tensor& x, const std::vector<std::string>& providers,
             OptimizationLevel level = OptimizationLevel::kAll) {
  SessionOptions options = DefaultSession(level);
  options.providers = *MakeProviders(providers);
  const auto session = InferenceSession::FromModel(std::move(model.model()), std::move(options));
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  RunProfile profile;
  RunOptions run;
  run.profile = &profile;
  Ran ran;
  const auto outputs = (*session)->Run(std::vector<Value>{x}, run);
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (outputs.ok()) ran.outputs = *outputs;
  for (const RunProfile::Event& event : profile.events) {
    const std::string& op = event.node->op_type;
    const bool moves =
        op == "Transpose" || op == "Split" || op == "Gather" || op == "Slice" || op == "Reshape";
    if (moves) ran.moves.push_back(op);
  }
  return ran;
}

// What is read for its shape alone, which the plan knows, is not computed.
TEST(UnreadResults, HaveNoStep) {
  for (const bool is_read : {false, true}) {
    TestModel model(17);
    model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), 5, 32});
    model.Constant("one", Tensor::Of<int64_t>(Shape{1}, {1}));
    model.Constant("end", Tensor::Of<int64_t>(Shape{1}, {100}));
    model.Constant("axis", Tensor::Of<int64_t>(Shape{1}, {0}));
    model.Node("Slice", {"x", "one", "end", "axis"}, {"rest"}).Node("Shape", {"rest"}, {"shape"});
    if (is_read) model.Node("Neg", {"rest"}, {"negated"}).Output("negated");
    const Ran ran = RunModel(model.Output("shape"), Waves(Shape{3, 5, 32}, 1), {"cpu"},
                             OptimizationLevel::kDisable);
    ASSERT_FALSE(ran.outputs.empty());
    EXPECT_THAT(ran.outputs.back().tensor().elements<int64_t>(), testing::ElementsAre(2, 5, 32));
    EXPECT_EQ(ran.moves.size(), is_read ? 1u : 0u);
  }
}

class Views : public testing::TestWithParam<const char*> {
 protected:
  std::vector<std::string> Providers() const {
    if (std::string_view(GetParam()) == "cpu") return {"cpu"};
    return {GetParam(), "cpu"};
  }

  // What it gives is what the operators give one by one; returns the steps that moved elements.
  std::vector<std::string> MovesOf(const TestModel& model, int64_t batch) {
    SCOPED_TRACE(StrCat("a batch of ", batch));
    const Tensor x = Waves(Shape{batch, 5, 32}, 1);
    const Ran got = RunModel(model, x, Providers());
    const Ran wanted = RunModel(model, x, {"cpu"}, OptimizationLevel::kDisable);
    EXPECT_EQ(got.outputs.size(), wanted.outputs.size());
    for (size_t i = 0; i < got.outputs.size(); ++i) {
      const Tensor &a = got.outputs[i].tensor(), &b = wanted.outputs[i].tensor();
      EXPECT_EQ(a.shape(), b.shape());
      for (int64_t j = 0; j < b.ElementCount() && a.shape() == b.shape(); ++j) {
        EXPECT_NEAR(a.data<float>()[j], b.data<float>()[j], 1e-5f) << i << ", element " << j;
      }
    }
    return got.moves;
  }

 private:
  void SetUp() override {
    if (MakeProviders(Providers())->size() < Providers().size()) {
      GTEST_SKIP() << "no OpenCL on this machine";
    }
  }
};

using Moves = std::vector<std::string>;

TEST_P(Views, OfThePartsOfARowAreAttendedTo) {
  for (const int64_t batch : {1, 3}) EXPECT_EQ(MovesOf(SplitRows(), batch), Moves{});
}

TEST_P(Views, OfAStackAreAttendedTo) {
  EXPECT_EQ(MovesOf(StackedRows(), 1), Moves{});
  EXPECT_EQ(MovesOf(StackedRows(), 3), Moves{});  // heads of three images, joined and parted again
}

// Where parts do not begin at an address that kernels count on.
TEST_P(Views, AreNotMadeOfPartsThatBeginAnywhere) {
  const Moves moves = MovesOf(SplitRows(3, 5), 2);
  EXPECT_EQ(std::count(moves.begin(), moves.end(), "Split"), 1);
}

// One of the readers wants it dense, or it is an output.
TEST_P(Views, AreNotMadeOfWhatOthersReadAsWell) {
  TestModel read = SplitRows();
  read.Node("Neg", {"k1"}, {"other"}).Output("other");
  const Moves of_read = MovesOf(read, 2);
  EXPECT_EQ(std::count(of_read.begin(), of_read.end(), "Split"), 1);
  TestModel given = SplitRows();
  given.Output("v");
  const Moves of_given = MovesOf(given, 2);
  EXPECT_EQ(std::count(of_given.begin(), of_given.end(), "Transpose"), 1);
}

// Reshape joins axes that do not follow each other: what was left out before it is made then.
TEST_P(Views, AreMadeDenseWhereAReshapeJoinsTheirAxes) {
  TestModel model = Packed(4, 16);
  model.Constant("apart", Row({0, 5, 3, 4, 16})).Constant("joined", Row({3, -1, 4, 16}));
  model.Node("Reshape", {"qkv", "apart"}, {"split"});
  model.Node("Transpose", {"split"}, {"stack"}, Order({2, 0, 1, 3, 4}));
  model.Node("Reshape", {"stack", "joined"}, {"flat"});  // [3, batch * 5, 4, 16]
  for (const std::string part : {"q", "k", "v"}) {
    model.Constant("at" + part, Tensor::Scalar(int64_t{part == "q" ? 0 : part == "k" ? 1 : 2}));
    model.Node("Gather", {"flat", "at" + part}, {part + "0"}, Axis(0));
    model.Node("Transpose", {part + "0"}, {part}, Order({1, 0, 2}));
  }
  Attend(model, "q", "k", "v", {0, 2, 1});
  EXPECT_EQ(MovesOf(model, 2).size(), 0u);  // batch and rows follow each other in the product

  TestModel turned = Packed(4, 16);
  turned.Constant("apart", Row({0, 5, 3, 4, 16})).Constant("joined", Row({3, 4, -1, 16}));
  turned.Node("Reshape", {"qkv", "apart"}, {"split"});
  turned.Node("Transpose", {"split"}, {"stack"}, Order({2, 3, 1, 0, 4}));
  turned.Node("Reshape", {"stack", "joined"}, {"flat"});  // rows before batches: they do not
  for (const std::string part : {"q", "k", "v"}) {
    turned.Constant("at" + part, Tensor::Scalar(int64_t{part == "q" ? 0 : part == "k" ? 1 : 2}));
    turned.Node("Gather", {"flat", "at" + part}, {part}, Axis(0));
  }
  Attend(turned, "q", "k", "v", {0, 2, 1});
  EXPECT_EQ(MovesOf(turned, 2), Moves{"Transpose"});
}

// A transposition that only its shape is asked of does not run.
TEST_P(Views, OfWhatOnlyItsShapeIsReadOfAreNotComputed) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 5, 32});
  model.Node("Exp", {"x"}, {"e"}).Node("Transpose", {"e"}, {"t"}, Order({2, 0, 1}));
  model.Node("Shape", {"t"}, {"shape"}).Node("Reshape", {"e", "shape"}, {"r"});
  model.Node("Neg", {"r"}, {"y"}).Output("y");
  EXPECT_EQ(MovesOf(model, 2), Moves{});
}

INSTANTIATE_TEST_SUITE_P(Providers, Views, testing::Values("cpu", "fused"),
                         [](const auto& info) { return std::string(info.param); });

// A decoder's new keys come from a part of a row.
TEST(ViewsOnDevice, AreJoinedByConcat) {
  if (MakeProviders({"opencl", "cpu"})->size() < 2) GTEST_SKIP() << "no OpenCL on this machine";
  TestModel model = Packed(4, 16);
  model.Constant("past", Waves(Shape{2, 4, 7, 16}, 0.5f)).Constant("to", Row({0, 5, 4, 16}));
  model.Node("Split", {"qkv"}, {"q", "k", "v"}, Axis(-1)).Node("Reshape", {"k", "to"}, {"k1"});
  model.Node("Transpose", {"k1"}, {"k2"}, Order({0, 2, 1, 3}));
  model.Node("Concat", {"past", "k2"}, {"y"}, Axis(2)).Output("y");
  const Tensor x = Waves(Shape{2, 5, 32}, 1);
  const Ran got = RunModel(model, x, {"opencl", "cpu"});
  const Ran wanted = RunModel(model, x, {"cpu"}, OptimizationLevel::kDisable);
  EXPECT_EQ(got.moves, Moves{});
  const Tensor &a = got.outputs[0].tensor(), &b = wanted.outputs[0].tensor();
  ASSERT_EQ(a.shape(), b.shape());
  for (int64_t i = 0; i < b.ElementCount(); ++i) {
    ASSERT_NEAR(a.data<float>()[i], b.data<float>()[i], 1e-5f) << i;
  }
}

}  // namespace
}  // namespace onnxd
