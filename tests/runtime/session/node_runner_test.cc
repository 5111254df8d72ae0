// What a node that runs again and again prepares anew, and what it keeps.
#include "runtime/session/node_runner.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/test_model.h"

namespace onnxd {
namespace {

// Copies its first input and counts how often it was prepared.
class CountingKernel : public Kernel {
 public:
  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    ++prepared;
    if (context.outputs[0].shape == nullptr) return FailedPrecondition("the shape is not known");
    const size_t bytes = static_cast<size_t>(context.OutputShape(0).ElementCount()) * sizeof(float);
    PreparedKernel made;
    made.compute = [bytes](const KernelContext& k) {
      std::memcpy(k.output<float>(0), k.input<float>(0), bytes);
      return Status::Ok();
    };
    return made;
  }
  mutable int prepared = 0;
};

class NodeRunnerTest : public testing::Test {
 protected:
  NodeRunnerTest() : types_(1), pool_(1) { types_[0] = ValueType::TensorOf(DataType::kFloat); }

  Shape Run(const Node& node, const std::vector<Value>& inputs, const std::vector<bool>& constant) {
    const auto outputs =
        RunNode({kernel_, node, inputs, types_, 1, 1 << 20}, constant, kept_, pool_);
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    return outputs.ok() ? (*outputs)[0].tensor().shape() : Shape{};
  }

  static Node MakeNode(const char* op, int inputs) {
    Node node;
    node.op_type = op;
    node.since_version = 14;
    for (int i = 0; i < inputs; ++i) node.inputs.push_back(i);
    node.outputs = {inputs};
    return node;
  }

  CountingKernel kernel_;
  KeptNode kept_;
  std::vector<ValueType> types_;
  ThreadPool pool_;
};

TEST_F(NodeRunnerTest, IsPreparedAgainWhenShapesChangeAlone) {
  const Node relu = MakeNode("Relu", 1);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Run(relu, {Floats({2}, {1, 2})}, {false}), (Shape{2}));
  EXPECT_EQ(kernel_.prepared, 1);
  EXPECT_EQ(Run(relu, {Floats({3}, {1, 2, 3})}, {false}), (Shape{3}));
  EXPECT_EQ(kernel_.prepared, 2);
}

TEST_F(NodeRunnerTest, ElementsThatDecideAShapeAreReadInEachRun) {
  const Node reshape = MakeNode("Reshape", 2);
  const Tensor x = Floats({4}, {1, 2, 3, 4});
  EXPECT_EQ(Run(reshape, {x, Ints({2}, {2, 2})}, {false, false}), (Shape{2, 2}));
  EXPECT_EQ(Run(reshape, {x, Ints({2}, {4, 1})}, {false, false}), (Shape{4, 1}));
  EXPECT_EQ(Run(reshape, {x, Ints({2}, {1, -1})}, {false, false}), (Shape{1, 4}));
}

TEST_F(NodeRunnerTest, ElementsOfConstantsAreReadOnce) {
  const Node reshape = MakeNode("Reshape", 2);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(Run(reshape, {Floats({4}, {1, 2, 3, 4}), Ints({2}, {2, -1})}, {false, true}),
              (Shape{2, 2}));
  }
  EXPECT_EQ(kernel_.prepared, 1);
}

TEST_F(NodeRunnerTest, MemoryBeyondTheBudgetIsRefusedEachTime) {
  const Node relu = MakeNode("Relu", 1);
  for (int i = 0; i < 2; ++i) {
    const std::vector<Value> inputs = {*Tensor::Create(DataType::kFloat, Shape{1 << 19})};
    const auto outputs =
        RunNode({kernel_, relu, inputs, types_, 1, 1 << 20}, {false}, kept_, pool_);
    EXPECT_EQ(outputs.status().code(), StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace onnxd
