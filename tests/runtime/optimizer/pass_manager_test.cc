// When passes run again: after changes of others, and not before.
#include "runtime/optimizer/pass_manager.h"

#include <gtest/gtest.h>

#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

// Counts its runs by graph; turns one node of type `from`, where there is one, into `to`.
class Counting : public GraphPass {
 public:
  explicit Counting(std::string from = "", std::string to = "")
      : from_(std::move(from)), to_(std::move(to)) {}
  std::string_view name() const override { return "counting"; }
  OptimizationLevel level() const override { return OptimizationLevel::kBasic; }
  Result<bool> Run(Graph& graph, const PassContext&) const override {
    ++runs[&graph];
    for (Node& node : graph.nodes) {
      if (from_.empty() || !node.Is(from_)) continue;
      node.op_type = to_;
      return true;
    }
    return false;
  }
  mutable std::map<const Graph*, int> runs;

 private:
  const std::string from_, to_;
};

class PassRuns : public testing::Test {
 protected:
  void SetUp() override {
    model_.Input("x", DataType::kFloat, {4}).Input("which", DataType::kBool, {});
    model_.Node("Exp", {"x"}, {"e"});
    Attributes branches;
    for (const char* name : {"then_branch", "else_branch"}) {
      TestModel body;
      body.Constant("c", Tensor::Scalar(1.0f)).Node("Abs", {"c"}, {"a"}).Output("a");
      branches.Set(name, std::make_shared<Graph>(body.graph()));
    }
    model_.Node("If", {"which"}, {"i"}, branches).Output("e").Output("i");
    ASSERT_TRUE(InferGraph(model_.graph()).ok());
  }

  const Graph* body() {
    for (const auto& [name, attribute] : model_.graph().nodes[1].attributes.entries()) {
      if (name == "then_branch") return std::get<std::shared_ptr<Graph>>(attribute).get();
    }
    return nullptr;
  }

  TestModel model_;
  const PassContext context_{};
  PassRunner runner_{OptimizationLevel::kBasic, context_};
};

TEST_F(PassRuns, OnceWhereNothingChanges) {
  const Counting first, second;
  ASSERT_TRUE(runner_.Run({&first}, model_.graph()).ok());
  ASSERT_TRUE(runner_.Run({&first, &second}, model_.graph()).ok());
  for (const Counting* pass : {&first, &second}) {
    EXPECT_EQ(pass->runs[&model_.graph()], 1);
    EXPECT_EQ(pass->runs[body()], 1);
  }
}

TEST_F(PassRuns, AgainAfterAnotherChangedTheGraph) {
  const Counting first, changes("Exp", "Neg");
  ASSERT_TRUE(runner_.Run({&first}, model_.graph()).ok());
  ASSERT_TRUE(runner_.Run({&first, &changes}, model_.graph()).ok());
  EXPECT_EQ(first.runs[&model_.graph()], 2);
  EXPECT_EQ(changes.runs[&model_.graph()], 2);
  EXPECT_EQ(first.runs[body()], 2);  // of whose surroundings it may know
}

TEST_F(PassRuns, AgainAfterABodyChanged) {
  const Counting first, changes("Abs", "Neg");
  ASSERT_TRUE(runner_.Run({&first}, model_.graph()).ok());
  ASSERT_TRUE(runner_.Run({&first, &changes}, model_.graph()).ok());
  EXPECT_EQ(first.runs[body()], 2);
  EXPECT_EQ(first.runs[&model_.graph()], 1);
  ASSERT_TRUE(runner_.Run({&first, &changes}, model_.graph()).ok());
  EXPECT_EQ(first.runs[&model_.graph()], 2);
}

TEST_F(PassRuns, LeavesOutThoseOfHigherLevels) {
  const Counting pass;
  PassRunner none(OptimizationLevel::kDisable, context_);
  ASSERT_TRUE(none.Run({&pass}, model_.graph()).ok());
  EXPECT_TRUE(pass.runs.empty());
}

}  // namespace
}  // namespace onnxd
