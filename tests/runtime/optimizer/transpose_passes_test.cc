// The standard passes that merge and drop transpositions.
#include "runtime/optimizer/pass_manager.h"
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

TEST(TransposeElimination, JoinsTwoAndDropsWhatTheyCancel) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 3, 4});
  model.Node("Transpose", {"x"}, {"a"}, Order({0, 2, 1}));
  model.Node("Transpose", {"a"}, {"b"}, Order({0, 2, 1})).Node("Relu", {"b"}, {"y"}).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, TransposeElimination()), "Transpose Identity Relu");
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 4}, 0.5f)});
}

TEST(TransposeElimination, ComposesOrdersOfAxes) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 3, 4});
  model.Node("Transpose", {"x"}, {"a"}, Order({1, 2, 0}));
  model.Node("Transpose", {"a"}, {"y"}, Order({0, 2, 1})).Output("y");
  TestModel copy = model;
  EXPECT_EQ(After(model, TransposeElimination()), "Transpose Transpose");
  EXPECT_EQ(model.graph().nodes[1].attributes.Ints("perm"), (std::vector<int64_t>{1, 0, 2}));
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 4}, 0.5f)});
}

TEST(TransposeElimination, LeavesOrdersThatAreNone) {
  TestModel model;
  Attributes wrong;
  wrong.Set("perm", std::vector<int64_t>{7, -3});
  model.Input("x", DataType::kFloat, {2, 3});
  model.Input("s", DataType::kInt64, {Dimension::Symbol("rank")});
  model.Node("Reshape", {"x", "s"}, {"u"}).Node("Transpose", {"u"}, {"v"}, wrong);
  model.Node("Transpose", {"v"}, {"y"}, wrong).Output("y");
  EXPECT_EQ(After(model, TransposeElimination()), "Reshape Transpose Transpose");
}

// x reshaped, turned and reshaped again.
TestModel Parted(SymbolicShape x, std::vector<int64_t> merged, std::vector<int64_t> order,
                 std::vector<int64_t> parted) {
  TestModel model;
  const auto sizes = [&](const char* name, const std::vector<int64_t>& extents) {
    const Shape count{static_cast<int64_t>(extents.size())};
    model.Constant(name, Tensor::Of<int64_t>(count, std::span<const int64_t>(extents)));
  };
  sizes("merged", merged), sizes("parted", parted);
  model.Input("x", DataType::kFloat, std::move(x)).Node("Reshape", {"x", "merged"}, {"a"});
  model.Node("Transpose", {"a"}, {"b"}, Order(std::move(order)));
  return model.Node("Reshape", {"b", "parted"}, {"y"}).Output("y");
}

std::string AfterTransposedParts(TestModel& model) {
  return After(model, {TransposedParts(), DeadCodeElimination()});
}

// [tokens, batch, heads * size] by way of [tokens, batch * heads, size].
TEST(TransposedParts, HeadsMoveInOneStep) {
  TestModel model = Parted({5, 2, 12}, {5, 6, 4}, {1, 0, 2}, {2, 3, 5, 4}), copy = model;
  EXPECT_EQ(AfterTransposedParts(model), "Reshape Transpose");
  EXPECT_EQ(model.graph().nodes[1].attributes.Ints("perm"), (std::vector<int64_t>{1, 2, 0, 3}));
  ExpectSameResults(copy, {Ramp(Shape{5, 2, 12}, 0.5f)});
}

TEST(TransposedParts, OfSeveralAxes) {
  TestModel model = Parted({24, 35}, {4, 6, 35}, {2, 0, 1}, {5, 7, 1, 4, 2, 3}), copy = model;
  EXPECT_EQ(AfterTransposedParts(model), "Reshape Transpose");
  EXPECT_EQ(ToString(*model.graph().value(model.graph().nodes[0].outputs[0]).type.shape),
            "[1, 4, 2, 3, 5, 7]");
  ExpectSameResults(copy, {Ramp(Shape{24, 35}, 0.5f)});
}

TEST(TransposedParts, OneAxisMayBeOfUnknownParts) {
  const Dimension batch = Dimension::Symbol("batch");
  TestModel model = Parted({5, batch, 12}, {5, -1, 4}, {1, 0, 2}, {-1, 3, 5, 4}), copy = model;
  EXPECT_EQ(AfterTransposedParts(model), "Reshape Transpose");
  ExpectSameResults(copy, {Ramp(Shape{5, 2, 12}, 0.5f)});
}

// As torch.export turns the keys of attention.
TEST(TransposedParts, MatricesOfMergedStacksTurnWhereTheyAre) {
  const Dimension batch = Dimension::Symbol("batch");
  TestModel model = Parted({batch, 3, 6, 8}, {-1, 6, 8}, {0, 2, 1}, {-1, 3, 8, 6}), copy = model;
  EXPECT_EQ(After(model, StandardPasses()), "Transpose");
  EXPECT_EQ(model.graph().nodes[0].attributes.Ints("perm"), (std::vector<int64_t>{0, 1, 3, 2}));
  ExpectSameResults(copy, {Ramp(Shape{2, 3, 6, 8}, 0.5f)});
}

TEST(TransposedParts, LeavesWhatMerges) {
  TestModel merges = Parted({5, 2, 12}, {5, 6, 4}, {1, 0, 2}, {2, 15, 2, 2});
  EXPECT_EQ(AfterTransposedParts(merges), "Reshape Transpose Reshape");
}

TEST(TransposedParts, LeavesTransposesThatOthersRead) {
  TestModel model = Parted({5, 2, 12}, {5, 6, 4}, {1, 0, 2}, {2, 3, 5, 4});
  model.Output("b");
  EXPECT_EQ(AfterTransposedParts(model), "Reshape Transpose Reshape");
}

class TransposedRegrouping : public testing::Test {
 protected:
  // x, turned, reshaped as `sizes` say, turned again.
  static TestModel Turned(SymbolicShape x, std::vector<int64_t> before, std::vector<int64_t> sizes,
                          std::vector<int64_t> after) {
    TestModel model;
    const auto rank = static_cast<int64_t>(sizes.size());
    model.Input("x", DataType::kFloat, std::move(x));
    model.Constant("sizes", Tensor::Of<int64_t>(Shape{rank}, std::span<const int64_t>(sizes)));
    model.Node("Transpose", {"x"}, {"a"}, Order(std::move(before)));
    model.Node("Reshape", {"a", "sizes"}, {"b"});
    model.Node("Transpose", {"b"}, {"y"}, Order(std::move(after))).Output("y");
    return model;
  }

  static void ExpectOneReshape(TestModel model, const Shape& x) {
    TestModel copy = model;
    EXPECT_EQ(After(model, {onnxd::TransposedRegrouping(), DeadCodeElimination()}), "Reshape");
    ExpectSameResults(copy, {Ramp(x, 0.5f)});
  }

  static void ExpectUnchanged(TestModel model) {
    EXPECT_EQ(After(model, {onnxd::TransposedRegrouping(), DeadCodeElimination()}),
              "Transpose Reshape Transpose");
  }
};

TEST_F(TransposedRegrouping, OfTokensToAnImageAndBackIsAReshape) {
  ExpectOneReshape(Turned({2, 12, 5}, {0, 2, 1}, {2, 5, 3, 4}, {0, 2, 3, 1}), {2, 12, 5});
  ExpectOneReshape(Turned({2, 3, 4, 5}, {0, 3, 1, 2}, {2, 5, 12}, {0, 2, 1}), {2, 3, 4, 5});
}

TEST_F(TransposedRegrouping, TakesSizesThatAreKnownWhenItRuns) {
  const Dimension batch = Dimension::Symbol("batch"), length = Dimension::Symbol("length");
  ExpectOneReshape(Turned({batch, 12, 5}, {0, 2, 1}, {0, 5, 3, 4}, {0, 2, 3, 1}), {3, 12, 5});
  ExpectOneReshape(Turned({batch, length, 4, 5}, {0, 3, 1, 2}, {0, 5, -1}, {0, 2, 1}),
                   {3, 2, 4, 5});
  ExpectUnchanged(Turned({2, length, 5}, {0, 2, 1}, {2, 5, 3, -1}, {0, 3, 2, 1}));
}

TEST_F(TransposedRegrouping, TakesAxesOfOneElementForNone) {
  ExpectOneReshape(Turned({2, 1, 1, 5}, {0, 3, 2, 1}, {2, 5}, {0, 1}), {2, 1, 1, 5});
  ExpectOneReshape(Turned({1, 12, 5}, {2, 0, 1}, {5, 1, 3, 1, 4}, {1, 3, 2, 4, 0}), {1, 12, 5});
}

TEST_F(TransposedRegrouping, TakesOtherOperatorsThatKeepElementsInTheirOrder) {
  TestModel model;
  Attributes axis;
  axis.Set("axis", int64_t{1});
  model.Input("x", DataType::kFloat, {3, 4, 2});
  model.Node("Transpose", {"x"}, {"a"}, Order({2, 0, 1})).Node("Flatten", {"a"}, {"b"}, axis);
  model.Node("Transpose", {"b"}, {"y"}, Order({1, 0})).Output("y");
  ExpectOneReshape(model, {3, 4, 2});
}

TEST_F(TransposedRegrouping, LeavesWhatChangesTheOrderOfElements) {
  ExpectUnchanged(Turned({2, 12, 5}, {0, 2, 1}, {2, 5, 3, 4}, {0, 3, 2, 1}));
  ExpectUnchanged(Turned({2, 12, 5}, {0, 2, 1}, {2, 3, 5, 4}, {0, 1, 3, 2}));
  ExpectUnchanged(Turned({2, 6, 4}, {0, 2, 1}, {2, 6, 4}, {0, 2, 1}));
  ExpectUnchanged(Turned({12, 2, 5}, {1, 2, 0}, {10, 3, 4}, {1, 0, 2}));
}

// Sizes whose products no integer holds, as a file may claim them.
TEST_F(TransposedRegrouping, LeavesSizesBeyondAllBounds) {
  constexpr int64_t kHuge = int64_t{1} << 40;
  TestModel model = Turned({kHuge, kHuge, 5}, {1, 2, 0}, {5, kHuge, kHuge}, {1, 2, 0});
  const GraphPass* pass = onnxd::TransposedRegrouping();
  EXPECT_TRUE(pass->Run(model.graph(), PassContext{}).ok());
}

}  // namespace
}  // namespace onnxd
