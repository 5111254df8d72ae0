// What the fused provider joins, and that it computes what the CPU does operator by operator.
#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/fusion/dequantize_folding.h"
#include "runtime/graph/graph_text.h"
#include "runtime/optimizer/passes/passes.h"
#include "runtime/providers/fused/passes/fusion.h"
#include "runtime/providers/fused/passes/reduction_axes.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/session/run_profile.h"
#include "tests/support/fused_testing.h"
#include "tests/support/pass_testing.h"
#include "tests/support/quantized_testing.h"

namespace onnxd {
namespace {

// "MatMul+Add+Relu Softmax": the nodes as they are after fusion, those of one kernel joined.
std::string Fused(TestModel model, std::set<std::string> float_layers = {}) {
  const QuantizedOperatorsPass quantized(QuantizedFormsOnDevice(std::move(float_layers)));
  const std::string ops =
      After(model, {&quantized, DequantizeFolding(), IdentityElimination(), DeadCodeElimination(),
                    ReductionAxesAsAttribute(), NeighbourFusion()});
  std::string text;
  for (const Node& node : model.graph().nodes) {
    text += text.empty() ? "" : " ";
    const FusedGraph* graph = node.attributes.Find<FusedGraph>("graph");
    if (graph == nullptr) {
      text += node.op_type;
      continue;
    }
    for (const Node& part : (*graph)->nodes) {
      text += (&part == &(*graph)->nodes.front() ? "" : "+") + part.op_type;
    }
  }
  return text;
}

TEST(FusedProvider, JoinsAProductWithWhatFollowsElementByElement) {
  TestModel model;
  const SymbolicShape rows = {Dimension::Symbol("batch"), 5, 12};
  model.Input("x", DataType::kFloat, rows).Input("skip", DataType::kFloat, rows);
  model.Constant("w", Sines(Shape{12, 12}, 0.4f)).Constant("b", Sines(Shape{12}, 0.3f));
  model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"q"});
  model.Node("Sigmoid", {"q"}, {"s"}).Node("Mul", {"q", "s"}, {"g"});
  model.Node("Add", {"g", "skip"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "MatMul+Add+Sigmoid+Mul+Add");
  for (const int64_t batch : {1, 4}) {
    ExpectSameOnDevice(model, {Sines(Shape{batch, 5, 12}, 1), Sines(Shape{batch, 5, 12}, 0.5f)});
  }
}

// As exporters write Expand: -1 in a shape stands for the dimension that is there.
TestModel ExpandedByShape() {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 6});
  model.Constant("first", Tensor::Scalar(int64_t{0}));
  model.Constant("axes", Tensor::Of<int64_t>(Shape{1}, {0}));
  model.Constant("tail", Tensor::Of<int64_t>(Shape{1}, {-1}));
  model.Constant("minus", Tensor::Of<int64_t>(Shape{2}, {-1, -1}));
  model.Constant("ones", Tensor::Of<int64_t>(Shape{2}, {1, 1}));
  model.Node("Shape", {"x"}, {"shape"}).Node("Gather", {"shape", "first"}, {"batch"});
  model.Node("Unsqueeze", {"batch", "axes"}, {"b"})
      .Node("Concat", {"b", "tail"}, {"wanted"}, Axis(0));
  model.Node("Equal", {"wanted", "minus"}, {"open"});
  model.Node("Where", {"open", "ones", "wanted"}, {"to"});
  model.Node("Expand", {"x", "to"}, {"e"}).Node("Exp", {"e"}, {"f"}).Node("Neg", {"f"}, {"y"});
  return model.Output("y");
}

TEST(FusedProvider, LeavesWhatComputesShapesToPlanning) {
  EXPECT_EQ(Fused(ExpandedByShape()), "Shape Gather Unsqueeze Concat Equal Where Expand Exp+Neg");
  SessionOptions options = DefaultSession();
  options.providers = *MakeProviders({"fused", "cpu"});
  if (options.providers.size() < 2) GTEST_SKIP() << "no OpenCL on this machine";
  TestModel model = ExpandedByShape();
  const auto session = InferenceSession::FromModel(std::move(model.model()), std::move(options));
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  RunProfile profile;
  RunOptions run;
  run.profile = &profile;
  ASSERT_TRUE((*session)->Run(std::vector<Value>{Sines(Shape{3, 6}, 1)}, run).ok());
  std::string steps;
  for (const RunProfile::Event& event : profile.events) steps += event.node->op_type + " ";
  EXPECT_EQ(steps, "CopyToDevice Expand Fused CopyToHost ");
  ExpectSameOnDevice(ExpandedByShape(), {Sines(Shape{3, 6}, 1)});
}

TEST(FusedProvider, BiasesAConvolutionByChannelAndGatesIt) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 3, 9, 9});
  model.Constant("w", Sines(Shape{16, 3, 3, 3}, 0.4f)).Constant("b", Sines(Shape{16, 1, 1}, 0.3f));
  model.Node("Conv", {"x", "w"}, {"c"}).Node("Add", {"c", "b"}, {"d"});
  model.Node("HardSwish", {"d"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "Conv+Add+HardSwish");
  ExpectSameOnDevice(model, {Sines(Shape{2, 3, 9, 9}, 1)});
}

TEST(FusedProvider, NormalizesASumThatIsReadAgain) {
  TestModel model;
  const SymbolicShape shape = {Dimension::Symbol("batch"), 7, 100};
  model.Input("x", DataType::kFloat, shape).Input("z", DataType::kFloat, shape);
  model.Constant("scale", Sines(Shape{100}, 0.7f)).Constant("bias", Sines(Shape{100}, 0.2f));
  model.Node("Add", {"x", "z"}, {"sum"});
  model.Node("LayerNormalization", {"sum", "scale", "bias"}, {"n"}).Node("Tanh", {"n"}, {"t"});
  model.Node("Transpose", {"t"}, {"moved"}).Node("Transpose", {"moved"}, {"back"});
  model.Node("Sub", {"sum", "back"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "Add+LayerNormalization+Tanh Transpose Transpose Sub");
  ExpectSameOnDevice(model, {Sines(Shape{3, 7, 100}, 1), Sines(Shape{3, 7, 100}, 0.5f)});
  ExpectSameOnDevice(model, {Sines(Shape{0, 7, 100}, 1), Sines(Shape{0, 7, 100}, 0.5f)});
}

TEST(FusedProvider, AddsTheRowsBeforeANormalizationToThoseBehindIt) {
  TestModel model;
  model.Input("x", DataType::kFloat, {4, 60}).Constant("scale", Sines(Shape{60}, 0.7f));
  model.Constant("bias", Sines(Shape{60}, 0.2f))
      .Node("Exp", {"x"}, {"e"})
      .Node("Neg", {"e"}, {"n"});
  model.Node("LayerNormalization", {"n", "scale", "bias"}, {"l"});
  model.Node("Add", {"l", "e"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "Exp+Neg+LayerNormalization+Add");
  ExpectSameOnDevice(model, {Sines(Shape{4, 60}, 1)});
}

TEST(FusedProvider, ScalesAndMasksTheRowsOfASoftmax) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 3, 4, 70}).Input("mask", DataType::kFloat, {2, 1, 1, 70});
  model.Constant("scale", Tensor::Scalar(0.125f)).Constant("half", Tensor::Scalar(0.5f));
  model.Node("Mul", {"x", "scale"}, {"a"}).Node("Add", {"a", "mask"}, {"b"});
  Attributes last;
  last.Set("axis", int64_t{-1});
  model.Node("Softmax", {"b"}, {"s"}, last).Node("Sub", {"s", "half"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "Mul+Add+Softmax+Sub");
  ExpectSameOnDevice(model, {Sines(Shape{2, 3, 4, 70}, 5), Sines(Shape{2, 1, 1, 70}, 3)});
}

TEST(FusedProvider, ReducesWhatItComputesOnTheWay) {
  for (const char* op : {"ReduceMean", "ReduceMax", "ReduceMin", "ReduceSum", "ReduceL1",
                         "ReduceL2", "ReduceSumSquare"}) {
    TestModel model(18);
    model.Input("x", DataType::kFloat, {4, 6, 50}).Input("z", DataType::kFloat, {4, 6, 50});
    model.Constant("axes", Ints(Shape{2}, {1, 2})).Constant("two", Tensor::Scalar(2.0f));
    model.Node("Sub", {"x", "z"}, {"d"}).Node(op, {"d", "axes"}, {"r"});
    model.Node("Mul", {"r", "two"}, {"y"}).Output("y");
    EXPECT_EQ(Fused(model), StrCat("Sub+", op, "+Mul"));
    ExpectSameOnDevice(model, {Sines(Shape{4, 6, 50}, 1), Sines(Shape{4, 6, 50}, 0.5f)});
  }
}

TEST(FusedProvider, WritesOutWhatOthersReadOfAChain) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3, 40}).Constant("row", Sines(Shape{40}, 0.3f));
  model.Constant("column", Sines(Shape{3, 1}, 0.3f));
  model.Node("Exp", {"x"}, {"a"}).Node("Add", {"a", "row"}, {"b"}).Node("Neg", {"b"}, {"c"});
  model.Node("Mul", {"c", "column"}, {"y"}).Output("y").Output("b");
  EXPECT_EQ(Fused(model), "Exp+Add+Neg+Mul");
  ExpectSameOnDevice(model, {Sines(Shape{3, 40}, 1)});
}

TEST(FusedProvider, LeavesWhatWouldHaveToWaitForItself) {
  TestModel model;
  model.Input("x", DataType::kFloat, {8, 8}).Constant("w", Sines(Shape{8, 8}, 0.3f));
  // The sum reads the first product and the second, which reads the first's activation.
  model.Node("MatMul", {"x", "w"}, {"p"}).Node("Relu", {"p"}, {"r"});
  model.Node("Transpose", {"r"}, {"t"}).Node("Add", {"p", "t"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "MatMul+Relu Transpose Add");
  ExpectSameOnDevice(model, {Sines(Shape{8, 8}, 1)});
}

// Networks of several resolutions, whose branches exchange sums.
TEST(FusedProvider, LeavesSetsThatWouldWaitForEachOther) {
  TestModel down;
  down.Input("x", DataType::kFloat, {8, 8}).Constant("v", Sines(Shape{8, 8}, 0.2f));
  down.Constant("w", Sines(Shape{8, 8}, 0.3f));
  down.Node("MatMul", {"x", "v"}, {"a"}).Node("MatMul", {"x", "w"}, {"b"});
  down.Node("Transpose", {"a"}, {"c"}).Node("Transpose", {"b"}, {"d"});
  down.Node("Add", {"a", "d"}, {"y"}).Node("Add", {"b", "c"}, {"z"}).Output("y").Output("z");
  EXPECT_EQ(Fused(down), "MatMul Transpose MatMul+Add Transpose Add");
  ExpectSameOnDevice(down, {Sines(Shape{8, 8}, 1)});

  TestModel up;
  up.Input("x", DataType::kFloat, {8, 8}).Constant("w", Sines(Shape{8, 8}, 0.3f));
  up.Node("MatMul", {"x", "w"}, {"a"}).Node("Exp", {"x"}, {"b"}).Node("Transpose", {"a"}, {"c"});
  up.Node("Mul", {"b", "c"}, {"y"}).Node("Add", {"a", "b"}, {"z"}).Output("y").Output("z");
  EXPECT_EQ(Fused(up), "Exp MatMul+Add Transpose Mul");
  ExpectSameOnDevice(up, {Sines(Shape{8, 8}, 1)});
}

TEST(FusedProvider, FollowsDimensionsThatInferenceLeavesOpen) {
  TestModel model;
  // Compress leaves the extent to the data.
  model.Input("x", DataType::kFloat, {6, 12}).Input("keep", DataType::kBool, {6});
  model.Constant("w", Sines(Shape{12, 12}, 0.4f)).Constant("b", Sines(Shape{12}, 0.3f));
  Attributes rows;
  rows.Set("axis", int64_t{0});
  model.Node("Compress", {"x", "keep"}, {"some"}, rows).Node("MatMul", {"some", "w"}, {"p"});
  model.Node("Add", {"p", "b"}, {"q"}).Node("Relu", {"q"}, {"r"});
  model.Node("Add", {"r", "some"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "Compress MatMul+Add+Relu+Add");
  Tensor keep = *Tensor::Create(DataType::kBool, Shape{6});
  for (int64_t i = 0; i < 6; ++i) keep.mutable_data<bool>()[i] = i % 2 == 0;
  ExpectSameOnDevice(model, {Sines(Shape{6, 12}, 1), keep});
}

TEST(FusedProvider, KeepsRoundingsThatTheModelAsksFor) {
  TestModel model;
  model.Input("x", DataType::kFloat, {500}).Constant("third", Tensor::Scalar(0.33333f));
  Attributes half, full;
  half.Set("to", static_cast<int64_t>(DataType::kFloat16));
  full.Set("to", static_cast<int64_t>(DataType::kFloat));
  model.Node("Mul", {"x", "third"}, {"a"}).Node("Cast", {"a"}, {"h"}, half);
  model.Node("Cast", {"h"}, {"f"}, full).Node("Add", {"f", "third"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "Mul+Cast+Cast+Add");
  ExpectSameOnDevice(model, {Sines(Shape{500}, 3)});
}

TEST(FusedProvider, AttendsWithManyHeadsAMaskAndAPast) {
  for (const bool with_past : {false, true}) {
    for (const int64_t causal : {0, 1}) {
      TestModel model;
      const int64_t past = with_past ? 3 : 0, keys = 5 + past;
      model.Input("q", DataType::kFloat, {2, 5, 12}).Input("k", DataType::kFloat, {2, 5, 12});
      model.Input("v", DataType::kFloat, {2, 5, 8}).Input("mask", DataType::kInt32, {2, keys});
      model.Constant("bias", Sines(Shape{32}, 0.3f));
      model.Constant("scores", Sines(Shape{1, 4, 5, keys}, 0.5f));
      std::vector<std::string> inputs = {"q", "k", "v", "bias", "mask", "scores"};
      std::vector<std::string> outputs = {"y"};
      Tensor mask = *Tensor::Create(DataType::kInt32, Shape{2, keys});
      for (int64_t i = 0; i < 2 * keys; ++i) mask.mutable_data<int32_t>()[i] = i % 4 != 1;
      std::vector<Value> values = {Sines(Shape{2, 5, 12}, 1), Sines(Shape{2, 5, 12}, 0.7f),
                                   Sines(Shape{2, 5, 8}, 0.9f), mask};
      if (with_past) {
        model.Input("past_k", DataType::kFloat, {2, 4, 3, 3});
        model.Input("past_v", DataType::kFloat, {2, 4, 3, 2});
        inputs.insert(inputs.end(), {"past_k", "past_v"});
        outputs.insert(outputs.end(), {"present_k", "present_v"});
        values.emplace_back(Sines(Shape{2, 4, 3, 3}, 0.4f));
        values.emplace_back(Sines(Shape{2, 4, 3, 2}, 0.6f));
      }
      Attributes attributes;
      attributes.Set("num_heads", int64_t{4});
      attributes.Set("unidirectional", causal);
      model.Node("MultiHeadAttention", inputs, outputs, attributes, "com.microsoft");
      for (const std::string& name : outputs) model.Output(name);
      ExpectSameOnDevice(model, values, true);
    }
  }
}

// One call with 4 heads of queries and 2 of keys, each 6 wide; what it has beside is the case.
struct GroupCase {
  const char* name;
  bool packed = false, rotates = false, interleaved = false, positions = false, bias = false;
  bool sink = false, smooth = false;
  int64_t past = 0, held = 0, sequence = 5, window = -1;
  float softcap = 0;
};

void AttendsInGroups(const GroupCase& c) {
  SCOPED_TRACE(c.name);
  const int64_t total = std::max(c.past + c.sequence, c.held);
  TestModel model;
  std::vector<std::string> inputs = {"q", "", "", "", "", "lengths", "total"};
  std::vector<Value> values;
  const auto add = [&](const std::string& name, size_t at, Tensor tensor) {
    model.Input(name, tensor.type(), ToSymbolic(tensor.shape()));
    if (inputs.size() <= at) inputs.resize(at + 1);
    inputs[at] = name;
    values.emplace_back(std::move(tensor));
  };
  add("q", 0, Sines(Shape{2, c.sequence, c.packed ? 48 : 24}, 1));
  if (!c.packed) {
    add("k", 1, Sines(Shape{2, c.sequence, 12}, 0.7f));
    add("v", 2, Sines(Shape{2, c.sequence, 12}, 0.9f));
  }
  if (c.past > 0) {
    const int64_t held = std::max(c.past, c.held);
    add("past_k", 3, Sines(Shape{2, 2, held, 6}, 0.4f));
    add("past_v", 4, Sines(Shape{2, 2, held, 6}, 0.6f));
  }
  const auto last = static_cast<int32_t>(c.past + c.sequence - 1);
  add("lengths", 5, Tensor::Of<int32_t>(Shape{2}, {last, c.past > 0 ? last - 1 : last}));
  const auto all = static_cast<int32_t>(c.past + c.sequence);
  model.Constant("total", Tensor::Of<int32_t>(Shape{1}, {all}));
  if (c.rotates) {
    add("cos", 7, Sines(Shape{20, 2}, 0.8f));
    add("sin", 8, Sines(Shape{20, 2}, 0.6f));
  }
  if (c.positions) {
    Tensor positions = *Tensor::Create(DataType::kInt64, Shape{2, c.sequence});
    for (int64_t i = 0; i < 2 * c.sequence; ++i) positions.mutable_data<int64_t>()[i] = i % 7;
    add("positions", 9, std::move(positions));
  }
  if (c.bias) add("bias", 10, Sines(Shape{1, 4, c.sequence, total}, 0.5f));
  if (c.sink) add("sink", 11, Sines(Shape{4}, 0.7f));
  Attributes attributes;
  attributes.Set("num_heads", int64_t{4});
  attributes.Set("kv_num_heads", int64_t{2});
  attributes.Set("do_rotary", int64_t{c.rotates ? 1 : 0});
  attributes.Set("rotary_interleaved", int64_t{c.interleaved ? 1 : 0});
  attributes.Set("local_window_size", c.window);
  attributes.Set("smooth_softmax", int64_t{c.smooth ? 1 : 0});
  attributes.Set("softcap", c.softcap);
  model.Node("GroupQueryAttention", inputs, {"y", "present_k", "present_v"}, attributes,
             "com.microsoft");
  model.Output("y").Output("present_k").Output("present_v");
  ExpectSameOnDevice(model, values, true);
}

TEST(FusedProvider, AttendsInGroupsAsTheCpuDoes) {
  AttendsInGroups({.name = "a prompt"});
  AttendsInGroups({.name = "packed", .packed = true});
  AttendsInGroups({.name = "rotated", .rotates = true});
  AttendsInGroups({.name = "packed and rotated", .packed = true, .rotates = true});
  AttendsInGroups({.name = "interleaved", .rotates = true, .interleaved = true});
  AttendsInGroups({.name = "positions", .rotates = true, .positions = true});
  AttendsInGroups({.name = "a step", .rotates = true, .past = 6, .sequence = 1});
  AttendsInGroups({.name = "room", .rotates = true, .past = 6, .held = 16, .sequence = 1});
  AttendsInGroups({.name = "a window", .past = 6, .sequence = 1, .window = 3});
  AttendsInGroups({.name = "a prompt's window", .window = 3});
  AttendsInGroups({.name = "capped", .softcap = 2});
  AttendsInGroups({.name = "biased", .bias = true});
  AttendsInGroups({.name = "with sinks", .sink = true});
  AttendsInGroups({.name = "smooth", .smooth = true, .past = 6, .sequence = 1});
}

// Of x[2, heads, 5, 8] or x[2, 5, heads * 8], by positions of every kind.
TEST(FusedProvider, TurnsPairsAsTheCpuDoes) {
  struct Case {
    const char* domain;
    bool split_heads, interleaved;
    int64_t positions, rotated;
  };
  const Case cases[] = {{"", true, false, 10, 0},
                        {"", false, true, 10, 4},
                        {"", true, true, 0, 0},
                        {"com.microsoft", true, false, 1, 6},
                        {"com.microsoft", false, true, 10, 0}};
  for (const Case& c : cases) {
    SCOPED_TRACE(StrCat(c.domain, " ", c.positions));
    const int64_t width = (c.rotated == 0 ? 8 : c.rotated) / 2;
    const Shape shape = c.split_heads ? Shape{2, 3, 5, 8} : Shape{2, 5, 24};
    const Shape cache = c.positions == 0 ? Shape{2, 5, width} : Shape{20, width};
    TestModel model(23);
    model.Input("x", DataType::kFloat, ToSymbolic(shape));
    std::vector<Value> values = {Sines(shape, 1)};
    model.Constant("cos", Sines(cache, 0.8f)).Constant("sin", Sines(cache, 0.6f));
    std::vector<std::string> inputs = {"x", "cos", "sin"};
    if (c.positions > 0) {
      const Shape positions = c.positions == 1 ? Shape{1} : Shape{2, 5};
      Tensor tensor = *Tensor::Create(DataType::kInt64, positions);
      for (int64_t i = 0; i < c.positions; ++i) tensor.mutable_data<int64_t>()[i] = i * 3 % 19;
      model.Input("p", DataType::kInt64, ToSymbolic(positions));
      values.push_back(tensor);
      inputs.insert(*c.domain == 0 ? inputs.end() : inputs.begin() + 1, "p");
    }
    Attributes attributes;
    attributes.Set("num_heads", int64_t{3});
    attributes.Set("interleaved", int64_t{c.interleaved ? 1 : 0});
    if (c.rotated > 0) attributes.Set("rotary_embedding_dim", c.rotated);
    model.Node("RotaryEmbedding", inputs, {"y"}, attributes, c.domain).Output("y");
    ExpectSameOnDevice(model, values, true);
    if (c.positions == 0) continue;
    const Tensor& given = values[1].tensor();
    Tensor outside = *Tensor::Create(DataType::kInt64, given.shape());
    std::fill_n(outside.mutable_data<int64_t>(), outside.ElementCount(), 20);
    for (const bool on_device : {false, true}) {
      SessionOptions options = DefaultSession();
      if (on_device) options.providers = *MakeProviders({"fused", "cpu"});
      TestModel copy = model;
      const auto session = InferenceSession::FromModel(std::move(copy.model()), std::move(options));
      const auto refused = (*session)->Run(std::vector<Value>{values[0], outside}, {});
      EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
      EXPECT_NE(refused.status().message().find("position"), std::string::npos);
    }
  }
}

Tensor Bytes(const Shape& shape, int64_t step) {
  Tensor tensor = *Tensor::Create(DataType::kUint8, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * step + i / 5);
  }
  return tensor;
}

// Operators of quantized files, which have no kernels there, by those that have. Scales are powers
// of two, so that both sides round the same numbers.
TEST(FusedProvider, ComputesWhatQuantizedFilesAskForByItsParts) {
  struct Case {
    const char* op;
    std::vector<std::string> inputs;
    std::initializer_list<std::pair<const char*, Attribute>> attributes;
  };
  const std::vector<std::string> one = {"a", "sa", "za", "sc", "zc"};
  const std::vector<std::string> two = {"a", "sa", "za", "b", "sb", "zb", "sc", "zc"};
  const Case cases[] = {
      {"QLinearAdd", two, {}},
      {"QLinearMul", two, {}},
      {"QLinearLeakyRelu", one, {{"alpha", 0.25f}}},
      {"QLinearGlobalAveragePool", one, {}},
      {"QLinearGlobalAveragePool", one, {{"channels_last", int64_t{1}}}},
      {"QLinearConcat", {"sc", "zc", "a", "sa", "za", "b", "sb", "zb"}, {{"axis", int64_t{1}}}},
      {"QLinearSigmoid", {"a", "sa", "za", "fine", "zero"}, {}},
      {"QLinearSoftmax",
       {"a", "sa", "za", "fine", "zero"},
       {{"axis", int64_t{-1}}, {"opset", int64_t{13}}}},
  };
  const Shape shape{2, 4, 4, 4};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.op);
    TestModel model(19);
    model.Input("a", DataType::kUint8, ToSymbolic(shape)).Constant("b", Bytes(shape, 11));
    const std::pair<const char*, float> scales[] = {
        {"sa", 0.125f}, {"sb", 0.0625f}, {"sc", 0.25f}, {"fine", 1.0f / 256}};
    for (const auto& [name, scale] : scales) model.Constant(name, Tensor::Scalar(scale));
    const std::pair<const char*, uint8_t> zeros[] = {
        {"za", 120}, {"zb", 7}, {"zc", 90}, {"zero", 0}};
    for (const auto& [name, zero] : zeros) model.Constant(name, Tensor::Scalar(zero));
    Attributes attributes;
    for (const auto& [name, value] : c.attributes) attributes.Set(name, value);
    model.Node(c.op, c.inputs, {"q"}, attributes, "com.microsoft");
    const bool is_fine = c.inputs.size() > 3 && c.inputs[3] == "fine";
    model.Node("DequantizeLinear", {"q", is_fine ? "fine" : "sc", is_fine ? "zero" : "zc"}, {"y"});
    model.Output("y");
    // What is no whole number of steps may be rounded either way.
    ExpectSameOnDevice(model, {Bytes(shape, 37)}, true, Precision::kFloat32,
                       is_fine ? 1.01f / 256 : 2e-5f);
  }
}

TEST(FusedProvider, MultipliesBytesByScalesOfColumns) {
  Tensor columns = Sines(Shape{6}, 0.02f);
  for (const char* op : {"MatMulIntegerToFloat", "DynamicQuantizeMatMul"}) {
    SCOPED_TRACE(op);
    TestModel model(19);
    model.Constant("b", Bytes(Shape{8, 6}, 11)).Constant("sb", columns);
    model.Constant("zb", Bytes(Shape{6}, 3)).Constant("bias", Sines(Shape{6}, 0.5f));
    std::vector<Value> values;
    if (std::string(op) == "DynamicQuantizeMatMul") {
      model.Input("a", DataType::kFloat, {3, 8});
      values = {Sines(Shape{3, 8}, 1)};
      model.Node(op, {"a", "b", "sb", "zb", "bias"}, {"y"}, {}, "com.microsoft");
    } else {
      model.Input("a", DataType::kUint8, {3, 8}).Constant("sa", Tensor::Scalar(0.05f));
      model.Constant("za", Tensor::Scalar(uint8_t{12}));
      values = {Bytes(Shape{3, 8}, 37)};
      model.Node(op, {"a", "b", "sa", "sb", "za", "zb", "bias"}, {"y"}, {}, "com.microsoft");
    }
    model.Output("y");
    ExpectSameOnDevice(model, values, true);
  }
}

struct BitsCase {
  int64_t rows, k, n, bits, block;
  bool packed_zeros, zeros, bias;
};

// Numbers of which sums are exact, also in float16.
void MultipliesCodes(const BitsCase& c, DataType type) {
  SCOPED_TRACE(StrCat(c.bits, " bits, ", c.rows, " rows"));
  const int64_t blocks = (c.k + c.block - 1) / c.block;
  const auto bytes = [](const Shape& shape, int step) {
    Tensor tensor = *Tensor::Create(DataType::kUint8, shape);
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      tensor.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * step + i / 7);
    }
    return tensor;
  };
  const auto steps = [](const Shape& shape, int64_t count, float size) {
    Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
    for (int64_t i = 0; i < tensor.ElementCount(); ++i) {
      tensor.mutable_data<float>()[i] = static_cast<float>(i % count - count / 2) * size;
    }
    return tensor;
  };
  TestModel model;
  model.Input("x", DataType::kFloat, {c.rows, c.k});
  model.Constant("b", bytes(Shape{c.n, blocks, c.block * c.bits / 8}, 37));
  model.Constant("s", steps(Shape{c.n * blocks}, 3, 0.25f));
  model.Constant("z", c.packed_zeros ? bytes(Shape{c.n, (blocks * c.bits + 7) / 8}, 11)
                                     : steps(Shape{c.n, blocks}, 4, 0.5f));
  model.Constant("row", steps(Shape{c.n}, 5, 0.5f));
  std::vector<std::string> inputs = {"x", "b", "s", c.zeros ? "z" : "", "", c.bias ? "row" : ""};
  std::string result = "p";
  if (type != DataType::kFloat) {
    for (std::string& input : inputs) {
      if (input.empty() || input == "b" || (input == "z" && c.packed_zeros)) continue;
      Attributes to;
      to.Set("to", static_cast<int64_t>(type));
      model.Node("Cast", {input}, {input + "_half"}, to);
      input += "_half";
    }
  }
  Attributes attributes;
  for (const auto& [name, value] :
       {std::pair("K", c.k), {"N", c.n}, {"bits", c.bits}, {"block_size", c.block}}) {
    attributes.Set(name, value);
  }
  model.Node("MatMulNBits", inputs, {"p"}, attributes, "com.microsoft");
  Attributes wide;
  wide.Set("to", static_cast<int64_t>(DataType::kFloat));
  model.Node("Cast", {"p"}, {"f"}, wide).Node("Relu", {"f"}, {"y"}).Output("y");
  ExpectSameOnDevice(model, {steps(Shape{c.rows, c.k}, 3, 1.0f)}, true);
}

TEST(FusedProvider, MultipliesCodesOfFewBitsAsTheCpuDoes) {
  for (const DataType type : {DataType::kFloat, DataType::kFloat16}) {
    MultipliesCodes({1, 64, 50, 4, 32, false, false, true}, type);
    MultipliesCodes({3, 70, 33, 4, 16, true, true, false}, type);
    MultipliesCodes({40, 96, 40, 4, 32, false, true, true}, type);
    MultipliesCodes({2, 48, 16, 8, 16, true, true, false}, type);
    MultipliesCodes({1, 100, 40, 2, 64, true, true, true}, type);
  }
}

// Which the device would not dequantize: it has no elements of four bits.
TEST(FusedProvider, MultipliesWhatIsDequantizedInBlocks) {
  TestModel model(21);
  model.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), 64});
  Tensor codes = *Tensor::Create(DataType::kInt4, Shape{64, 10});
  auto* bytes = static_cast<uint8_t*>(codes.mutable_raw());
  for (size_t i = 0; i < codes.bytes(); ++i) bytes[i] = static_cast<uint8_t>(i * 37);
  model.Constant("q", codes).Constant("s", Sines(Shape{2, 10}, 0.5f));
  Attributes attributes;
  attributes.Set("axis", int64_t{0});
  attributes.Set("block_size", int64_t{32});
  model.Node("DequantizeLinear", {"q", "s"}, {"w"}, attributes);
  model.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  ExpectSameOnDevice(model, {Sines(Shape{3, 64}, 1)}, true);
}

TEST(FusedProvider, JoinsAProductOfCodesWithWhatFollows) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 32});
  Tensor codes = *Tensor::Create(DataType::kUint8, Shape{12, 1, 16});
  std::fill_n(codes.mutable_data<uint8_t>(), 12 * 16, uint8_t{0x3a});
  model.Constant("b", codes).Constant("s", Sines(Shape{12}, 0.5f));
  Attributes attributes;
  for (const auto& [name, value] : {std::pair("K", 32), {"N", 12}, {"block_size", 32}}) {
    attributes.Set(name, int64_t{value});
  }
  model.Node("MatMulNBits", {"x", "b", "s"}, {"p"}, attributes, "com.microsoft");
  model.Node("Sigmoid", {"p"}, {"s2"}).Node("Mul", {"p", "s2"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "MatMulNBits+Sigmoid+Mul");
  ExpectSameOnDevice(model, {Sines(Shape{2, 32}, 1)}, true);
}

// Values as onnxruntime's quantizer writes them, between QuantizeLinear and DequantizeLinear.
class QuantizedModel {
 public:
  explicit QuantizedModel(const SymbolicShape& x) {
    model_.Input("x", DataType::kFloat, x);
    RoundTrip("x", 0.02f, 120);
  }

  // NAME's values become NAME_dq.
  void RoundTrip(const std::string& name, float scale, int zero) {
    model_.Constant(name + "_s", Scales(0, scale)).Constant(name + "_z", Byte(false, zero));
    model_.Node("QuantizeLinear", {name, name + "_s", name + "_z"}, {name + "_q"});
    model_.Node("DequantizeLinear", {name + "_q", name + "_s", name + "_z"}, {name + "_dq"});
  }

  // Signed weights with a scale for each slice of the first axis, and a bias of floats.
  void Weights(const std::string& name, const Shape& shape) {
    model_.Constant(name + "_w", Bytes(shape, true, 9));
    model_.Constant(name + "_ws", Scales(shape[0], 0.004f));
    model_.Constant(name + "_wz", Zeros(DataType::kInt8, shape[0]));
    model_.Node("DequantizeLinear", {name + "_w", name + "_ws", name + "_wz"}, {name + "_wdq"},
                One("axis", 0));
    model_.Constant(name + "_b", Sines(Shape{shape[0]}, 0.3f));
  }

  TestModel& model() { return model_; }

 private:
  TestModel model_{17};
};

QuantizedModel ResidualBlock() {
  QuantizedModel net({2, 4, 9, 9});
  TestModel& model = net.model();
  net.Weights("c1", Shape{12, 4, 3, 3});
  net.Weights("c2", Shape{12, 12, 1, 1});
  net.Weights("fc", Shape{10, 12});
  Attributes pads;
  pads.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
  model.Node("Conv", {"x_dq", "c1_wdq", "c1_b"}, {"c1"}, pads).Node("Relu", {"c1"}, {"r1"});
  net.RoundTrip("r1", 0.05f, 0);
  model.Node("Conv", {"r1_dq", "c2_wdq", "c2_b"}, {"c2"});
  net.RoundTrip("c2", 0.06f, 128);
  model.Node("Add", {"c2_dq", "r1_dq"}, {"sum"}).Node("Relu", {"sum"}, {"r2"});
  net.RoundTrip("r2", 0.07f, 0);
  model.Node("GlobalAveragePool", {"r2_dq"}, {"pooled"});
  net.RoundTrip("pooled", 0.04f, 0);
  model.Node("Flatten", {"pooled_dq"}, {"flat"});
  net.RoundTrip("flat", 0.04f, 0);
  model.Node("Gemm", {"flat_dq", "fc_wdq", "fc_b"}, {"fc"}, One("transB", 1));
  net.RoundTrip("fc", 0.05f, 100);
  model.Output("fc_dq");
  return net;
}

TEST(FusedProvider, ComputesQuantizedLayersInBytes) {
  const TestModel model = ResidualBlock().model();
  EXPECT_EQ(Fused(model),
            "QuantizeLinear QLinearConv QLinearConv "
            "DequantizeLinear+DequantizeLinear+Add+Relu+QuantizeLinear+DequantizeLinear "
            "GlobalAveragePool QuantizeLinear Flatten QGemm DequantizeLinear");
  ExpectSameOnDevice(model, {Sines(Shape{2, 4, 9, 9}, 1)}, true, Precision::kFloat32, 0.051f);
}

TEST(FusedProvider, KeepsQuantizedLayersFloatWhereThatIsWanted) {
  const std::string ops = Fused(ResidualBlock().model(), {"c2", "fc"});
  EXPECT_NE(ops.find("QuantizeLinear QLinearConv DequantizeLinear Conv+QuantizeLinear"),
            std::string::npos)
      << ops;
  EXPECT_EQ(ops.find("QGemm"), std::string::npos) << ops;
  EXPECT_NE(ops.find("Gemm+QuantizeLinear"), std::string::npos) << ops;
}

TEST(FusedProvider, MultipliesMatricesOfBytes) {
  QuantizedModel net({3, 5, 16});
  TestModel& model = net.model();
  model.Constant("w", Bytes(Shape{16, 20}, true, 9)).Constant("ws", Scales(20, 0.004f));
  model.Constant("wz", Zeros(DataType::kInt8, 20));
  model.Node("DequantizeLinear", {"w", "ws", "wz"}, {"wdq"}, One("axis", 1));
  model.Node("MatMul", {"x_dq", "wdq"}, {"y"});
  net.RoundTrip("y", 0.05f, 128);
  model.Output("y_dq");
  EXPECT_EQ(Fused(model), "QuantizeLinear QLinearMatMul DequantizeLinear");
  ExpectSameOnDevice(model, {Sines(Shape{3, 5, 16}, 1)}, true, Precision::kFloat32, 0.051f);
}

// Blocks, and scales by channel, are kernels of their own.
TEST(FusedProvider, JoinsQuantizationByOneScaleAlone) {
  TestModel model(21);
  model.Input("x", DataType::kUint8, {4, 6}).Constant("s", Scales(6, 0.1f));
  model.Node("DequantizeLinear", {"x", "s"}, {"f"}, One("axis", 1)).Node("Exp", {"f"}, {"e"});
  model.Constant("one", Scales(0, 0.5f)).Node("QuantizeLinear", {"e", "one"}, {"q"});
  model.Node("DequantizeLinear", {"q", "one"}, {"y"}).Output("y");
  EXPECT_EQ(Fused(model), "DequantizeLinear Exp+QuantizeLinear+DequantizeLinear");
  ExpectSameOnDevice(model, {Bytes(Shape{4, 6}, false, 2)});
}

TEST(FusedProvider, ShowsWhatAKernelIsMadeOf) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3, 40});
  model.Node("Exp", {"x"}, {"a"}).Node("Neg", {"a"}, {"y"}).Output("y");
  After(model, NeighbourFusion());
  const std::string text = GraphText(model.graph());
  EXPECT_NE(text.find("onnxd::Fused(x)"), std::string::npos) << text;
  EXPECT_NE(text.find("    a: float[3, 40] = Exp(x)"), std::string::npos) << text;
}

}  // namespace
}  // namespace onnxd
