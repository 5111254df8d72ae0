// Products of stacks of matrices, and regroupings that others take back.
#include <gtest/gtest.h>

#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

Tensor Sizes(std::vector<int64_t> sizes) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(sizes.size())},
                             std::span<const int64_t>(sizes));
}

// Products of four rows with the rows of another tensor, in each head, as tf2onnx writes an einsum.
class StackedProductsTest : public testing::Test {
 protected:
  void Reshape(const std::string& x, std::vector<int64_t> sizes, const std::string& y) {
    model_.Constant(y + "_sizes", Sizes(std::move(sizes))).Node("Reshape", {x, y + "_sizes"}, {y});
  }

  // To [first, *others].
  void ReshapeFrom(const std::string& x, const std::string& first, std::vector<int64_t> others,
                   const std::string& y) {
    Attributes axis;
    axis.Set("axis", int64_t{0});
    model_.Constant(y + "_others", Sizes(std::move(others)));
    model_.Node("Concat", {first, y + "_others"}, {y + "_sizes"}, axis);
    model_.Node("Reshape", {x, y + "_sizes"}, {y});
  }

  void Inputs(Dimension batch) {
    model_.Input("a", DataType::kFloat, {batch, 3, 4, 1, 5});
    model_.Input("b", DataType::kFloat, {batch, 3, 1, 6, 5});
  }

  std::string AfterPass() {
    TestModel copy = model_;
    const std::string ops =
        After(model_, {StackedProducts(), RegroupingElimination(), TransposeElimination(),
                       IdentityElimination(), DeadCodeElimination()});
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 4, 1, 5}, 0.1f), Ramp(Shape{2, 3, 1, 6, 5}, 0.2f)});
    return ops;
  }

  std::string ShapeOf(int node) {
    const ValueId out = model_.graph().nodes[static_cast<size_t>(node)].outputs[0];
    return ToString(*model_.graph().value(out).type.shape);
  }

  TestModel model_{13};
};

TEST_F(StackedProductsTest, MultiplyWithTheirAxesApart) {
  Inputs(Dimension::Symbol("batch"));
  model_.Constant("first", Ints({1}, {0})).Constant("heads", Ints({1}, {3}));
  model_.Node("Shape", {"a"}, {"shape"}).Node("Gather", {"shape", "first"}, {"batch"});
  model_.Node("Mul", {"batch", "heads"}, {"all"});
  ReshapeFrom("a", "all", {4, 5}, "merged_a");
  ReshapeFrom("b", "all", {6, 5}, "merged_b");
  model_.Node("Transpose", {"merged_b"}, {"turned"}, Order({0, 2, 1}));
  model_.Node("MatMul", {"merged_a", "turned"}, {"merged"});
  ReshapeFrom("merged", "batch", {3, 4, 6, 1}, "y");
  model_.Output("y");
  EXPECT_EQ(AfterPass(), "Reshape Reshape Transpose MatMul Reshape");
  EXPECT_EQ(ShapeOf(0), "[batch, 3, 4, 5]");
  EXPECT_EQ(ShapeOf(3), "[batch, 3, 4, 6]");
}

TEST_F(StackedProductsTest, LeavesExtentsWithoutNames) {
  Inputs(Dimension());
  Reshape("a", {-1, 4, 5}, "merged_a");
  Reshape("b", {-1, 6, 5}, "merged_b");
  model_.Node("Transpose", {"merged_b"}, {"turned"}, Order({0, 2, 1}));
  model_.Node("MatMul", {"merged_a", "turned"}, {"merged"});
  Reshape("merged", {-1, 3, 4, 6, 1}, "y");
  model_.Output("y");
  EXPECT_EQ(AfterPass(), "Reshape Reshape Transpose MatMul Reshape");
  EXPECT_EQ(ShapeOf(3), "[?, 4, 6]");
}

TEST_F(StackedProductsTest, DropsAxesOfOneElement) {
  Inputs(Dimension(2));
  Reshape("a", {6, 4, 5}, "merged_a");
  Reshape("b", {6, 6, 5}, "merged_b");
  model_.Node("Transpose", {"merged_b"}, {"turned"}, Order({0, 2, 1}));
  model_.Node("MatMul", {"merged_a", "turned"}, {"merged"});
  Reshape("merged", {2, 3, 4, 1, 6}, "parted");
  model_.Constant("axis", Ints({1}, {3})).Node("Squeeze", {"parted", "axis"}, {"y"}).Output("y");
  EXPECT_EQ(AfterPass(), "Reshape Reshape Transpose MatMul");
  EXPECT_EQ(ShapeOf(0), "[2, 3, 4, 5]");
  EXPECT_EQ(ShapeOf(3), "[2, 3, 4, 6]");
}

TEST_F(StackedProductsTest, LeavesOtherGroups) {
  Inputs(Dimension(2));
  Reshape("a", {6, 4, 5}, "merged_a");
  Reshape("b", {6, 5, 6}, "merged_b");  // other rows than b has
  model_.Node("MatMul", {"merged_a", "merged_b"}, {"merged"});
  Reshape("merged", {2, 3, 4, 6}, "y");
  model_.Output("y");
  EXPECT_EQ(AfterPass(), "Reshape Reshape MatMul Reshape");
}

TEST_F(StackedProductsTest, LeavesBatchesInAnotherOrder) {
  Inputs(Dimension(2));
  Reshape("a", {6, 4, 5}, "merged_a");
  Reshape("b", {6, 6, 5}, "merged_b");
  model_.Node("Transpose", {"merged_b"}, {"turned"}, Order({0, 2, 1}));
  model_.Node("MatMul", {"merged_a", "turned"}, {"merged"});
  Reshape("merged", {3, 2, 4, 6}, "y");
  model_.Output("y");
  EXPECT_EQ(AfterPass(), "Reshape Reshape Transpose MatMul Reshape");
}

TEST_F(StackedProductsTest, LeavesProductsThatOthersReadMerged) {
  Inputs(Dimension(2));
  Reshape("a", {6, 4, 5}, "merged_a");
  Reshape("b", {6, 6, 5}, "merged_b");
  model_.Node("Transpose", {"merged_b"}, {"turned"}, Order({0, 2, 1}));
  model_.Node("MatMul", {"merged_a", "turned"}, {"merged"}).Output("merged");
  Reshape("merged", {2, 3, 4, 6}, "y");
  model_.Output("y");
  EXPECT_EQ(AfterPass(), "Reshape Reshape Transpose MatMul Reshape");
}

// x: [batch, 3, 4] as rows.
class FlattenedProductsTest : public StackedProductsTest {
 protected:
  FlattenedProductsTest() {
    model_.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 3, 4});
    model_.Constant("w", Ramp(Shape{4, 5}, 0.1f)).Constant("first", Ints({1}, {0}));
    model_.Node("Shape", {"x"}, {"shape"}).Node("Gather", {"shape", "first"}, {"batch"});
    Reshape("x", {-1, 4}, "rows");
    model_.Node("MatMul", {"rows", "w"}, {"product"});
  }

  std::string After() {
    TestModel copy = model_;
    const std::string ops = onnxd::After(model_, {FlattenedProducts(), DeadCodeElimination()});
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 4}, 0.1f)});
    return ops;
  }
};

TEST_F(FlattenedProductsTest, MultiplyWithoutReshapes) {
  ReshapeFrom("product", "batch", {3, 5}, "y");
  model_.Output("y");
  EXPECT_EQ(After(), "MatMul");
}

TEST_F(FlattenedProductsTest, LeaveProductsThatOthersRead) {
  ReshapeFrom("product", "batch", {3, 5}, "y");
  model_.Output("y").Output("product");
  EXPECT_EQ(After(), "Shape Gather Reshape MatMul Concat Reshape");
}

TEST_F(FlattenedProductsTest, LeaveOtherParts) {
  Reshape("product", {3, -1, 5}, "y");
  model_.Output("y");
  EXPECT_EQ(After(), "Reshape MatMul Reshape");
}

// x: [2, 3, 1, 5] where an axis came and went.
class RegroupingEliminationTest : public testing::Test {
 protected:
  void SetUp() override {
    model_.Input("x", DataType::kFloat, {2, 3, 1, 5});
    model_.Constant("axis", Ints({1}, {1})).Node("Unsqueeze", {"x", "axis"}, {"longer"});
  }

  void Reshape(const std::string& x, std::vector<int64_t> sizes) {
    model_.Constant("sizes", Sizes(std::move(sizes)));
    model_.Node("Reshape", {x, "sizes"}, {"y"}).Output("y");
  }

  std::string AfterPass() {
    TestModel copy = model_;
    const std::string ops =
        After(model_, {RegroupingElimination(), IdentityElimination(), DeadCodeElimination()});
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 1, 5}, 0.5f)});
    return ops;
  }

  std::vector<int64_t> OrderOfFirst() { return model_.graph().nodes[0].attributes.Ints("perm"); }

  TestModel model_{13};
};

TEST_F(RegroupingEliminationTest, ShapesThatComeBack) {
  Reshape("longer", {2, 3, 1, 5});
  EXPECT_EQ(AfterPass(), "Identity");  // an output of the graph
}

TEST_F(RegroupingEliminationTest, OrdersOfTheAxesThatStay) {
  model_.Node("Transpose", {"longer"}, {"turned"}, Order({4, 1, 3, 2, 0}));  // [5, 1, 1, 3, 2]
  Reshape("turned", {1, 5, 3, 2});
  EXPECT_EQ(AfterPass(), "Transpose");
  EXPECT_EQ(OrderOfFirst(), (std::vector<int64_t>{2, 3, 1, 0}));
}

TEST_F(RegroupingEliminationTest, LeavesAxesThatAreMerged) {
  model_.Node("Transpose", {"longer"}, {"turned"}, Order({4, 1, 3, 2, 0}));
  Reshape("turned", {1, 5, 6, 1});
  EXPECT_EQ(AfterPass(), "Unsqueeze Transpose Reshape");
}

TEST_F(RegroupingEliminationTest, LeavesTransposesThatOthersRead) {
  model_.Node("Transpose", {"longer"}, {"turned"}, Order({4, 1, 3, 2, 0})).Output("turned");
  Reshape("turned", {5, 3, 1, 2});
  EXPECT_EQ(AfterPass(), "Unsqueeze Transpose Reshape");
}

}  // namespace
}  // namespace onnxd
