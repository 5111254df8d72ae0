#include "runtime/session/last_rows.h"

#include <algorithm>

#include "tests/support/operator_testing.h"

namespace onnxd {
namespace {

const LastRows kLogits{"logits", "past"};

// Rows of four numbers for each token, beside a state as language models have it.
TestModel Hidden(SymbolicShape shape = {Dimension::Symbol("batch"), Dimension::Symbol("tokens"),
                                        4}) {
  TestModel model(17);
  model.Input("hidden", DataType::kFloat, std::move(shape));
  model.Input("past_0", DataType::kFloat, {Dimension::Symbol("batch")});
  model.Constant("matrix", Numbers(Shape{4, 6}, 0.01f));
  return model;
}

std::unique_ptr<InferenceSession> Load(const TestModel& model,
                                       const LastRows& last_rows = kLogits) {
  SessionOptions options = DefaultSession();
  options.last_rows = last_rows;
  TestModel copy = model;
  auto session = InferenceSession::FromModel(std::move(copy.model()), options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  return session.ok() ? *std::move(session) : nullptr;
}

// Of three tokens in each of two texts.
std::vector<Value> Texts() { return {Numbers(Shape{2, 3, 4}), Floats(Shape{2}, {0, 0})}; }

std::vector<Value> WithLastRows(int64_t count) {
  auto inputs = Texts();
  inputs.push_back(*Tensor::Create(DataType::kInt64, Shape{count}));
  return inputs;
}

// That runs give the last rows of what the model gives without.
void ExpectLastRows(const TestModel& model, double tolerance = 0) {
  const auto whole = Load(model, {});
  const auto session = Load(model);
  ASSERT_TRUE(whole && session);
  ASSERT_EQ(session->inputs().size(), 3u);
  EXPECT_EQ(session->inputs()[2].name, LastRows::kInput);
  const auto all = whole->Run(Texts(), {});
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  const auto logits = (*all)[0].tensor().elements<float>();
  for (const int64_t count : {1, 2, 3, 7}) {
    const int64_t rows = std::min<int64_t>(count, 3);
    const auto last = session->Run(WithLastRows(count), {});
    ASSERT_TRUE(last.ok()) << last.status().ToString();
    const Tensor& tensor = (*last)[0].tensor();
    ASSERT_EQ(tensor.shape(), (Shape{2, rows, 6}));
    for (int64_t i = 0; i < tensor.shape().ElementCount(); ++i) {
      const int64_t text = i / (rows * 6), place = (3 - rows) * 6 + i % (rows * 6);
      EXPECT_NEAR(tensor.data<float>()[i], logits[static_cast<size_t>(text * 18 + place)],
                  tolerance)
          << count << " rows, element " << i;
    }
  }
}

TEST(LastRows, OfAProduct) {
  TestModel model = Hidden();
  model.Node("MatMul", {"hidden", "matrix"}, {"logits"}).Output("logits");
  ExpectLastRows(model, 1e-6);
}

TEST(LastRows, OfAProductWithBiasAndSoftCap) {
  TestModel model = Hidden();
  model.Constant("bias", Floats(Shape{6}, {1, 2, 3, 4, 5, 6}));
  model.Constant("cap", Floats(Shape{}, {30}));
  model.Node("MatMul", {"hidden", "matrix"}, {"product"}).Node("Add", {"bias", "product"}, {"sum"});
  model.Node("Div", {"sum", "cap"}, {"part"}).Node("Tanh", {"part"}, {"bent"});
  model.Node("Mul", {"bent", "cap"}, {"logits"}).Output("logits");
  ExpectLastRows(model, 1e-5);
}

TEST(LastRows, OfBytesWhoseStepIsThatOfAllRows) {
  TestModel model = Hidden();
  model.Constant("bytes",
                 Tensor::Of<int8_t>(Shape{4, 6}, {1,  2, 3,  4, 5,  6, 7,  8, 9, 10, 11, 12,
                                                  -1, 2, -3, 4, -5, 6, -7, 8, 9, 0,  1,  2}));
  model.Constant("step", Floats(Shape{}, {0.5}));
  model.Node("DynamicQuantizeLinear", {"hidden"}, {"rounded", "scale", "zero"});
  model.Node("MatMulInteger", {"rounded", "bytes", "zero"}, {"product"});
  model.Node("Cast", {"product"}, {"float"}, With({{"to", int64_t{1}}}));
  model.Node("Mul", {"scale", "step"}, {"scales"}).Node("Mul", {"float", "scales"}, {"logits"});
  ExpectLastRows(model.Output("logits"), 1e-6);
}

TEST(LastRows, LeaveOtherGraphsAsTheyAre) {
  TestModel no_state(17);
  no_state.Input("hidden", DataType::kFloat, {Dimension(), Dimension(), 4});
  no_state.Constant("matrix", Numbers(Shape{4, 6}));
  no_state.Node("MatMul", {"hidden", "matrix"}, {"logits"}).Output("logits");
  EXPECT_EQ(Load(no_state)->inputs().size(), 1u) << "no state";

  TestModel other_name = Hidden();
  other_name.Node("MatMul", {"hidden", "matrix"}, {"scores"}).Output("scores");
  EXPECT_EQ(Load(other_name)->inputs().size(), 2u) << "no such output";

  TestModel softmax = Hidden();
  softmax.Node("MatMul", {"hidden", "matrix"}, {"product"});
  softmax.Node("Softmax", {"product"}, {"logits"}, With({{"axis", int64_t{1}}})).Output("logits");
  EXPECT_EQ(Load(softmax)->inputs().size(), 2u) << "rows depend on each other";

  TestModel twice = Hidden();
  twice.Node("MatMul", {"hidden", "matrix"}, {"logits"}).Node("Abs", {"logits"}, {"sizes"});
  EXPECT_EQ(Load(twice.Output("logits").Output("sizes"))->inputs().size(), 2u) << "used elsewhere";

  TestModel by_row = Hidden();
  by_row.Input("weights", DataType::kFloat, {Dimension::Symbol("tokens"), 1});
  by_row.Node("MatMul", {"hidden", "matrix"}, {"product"});
  by_row.Node("Mul", {"product", "weights"}, {"logits"}).Output("logits");
  EXPECT_EQ(Load(by_row)->inputs().size(), 3u) << "a factor for each row";

  TestModel scales = Hidden();
  scales.Constant("scale", Floats(Shape{3}, {1, 2, 3}));
  scales.Constant("zero", Tensor::Of<int8_t>(Shape{3}, {0, 0, 0}));
  scales.Node("MatMul", {"hidden", "matrix"}, {"product"});
  scales.Node("QuantizeLinear", {"product", "scale", "zero"}, {"bytes"});
  scales.Node("DequantizeLinear", {"bytes", "scale", "zero"}, {"logits"}).Output("logits");
  EXPECT_EQ(Load(scales)->inputs().size(), 2u) << "a scale for each row";

  TestModel zeros = Hidden();
  zeros.Input("rounded", DataType::kUint8,
              {Dimension::Symbol("batch"), Dimension::Symbol("tokens"), 4});
  zeros.Input("zeros", DataType::kUint8, {Dimension::Symbol("tokens")});
  zeros.Constant("bytes", Tensor::Of<int8_t>(Shape{4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}));
  zeros.Node("MatMulInteger", {"rounded", "bytes", "zeros"}, {"product"});
  zeros.Node("Cast", {"product"}, {"logits"}, With({{"to", int64_t{1}}})).Output("logits");
  EXPECT_EQ(Load(zeros)->inputs().size(), 4u) << "a zero point for each row";

  TestModel one_row = Hidden({Dimension::Symbol("batch"), 1, 4});
  one_row.Node("MatMul", {"hidden", "matrix"}, {"logits"}).Output("logits");
  EXPECT_EQ(Load(one_row)->inputs().size(), 2u) << "so many rows always";
}

}  // namespace
}  // namespace onnxd
