// narrow_weights: constant matrices that 16 bits hold exactly stay in 16 bits.
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"
#include "runtime/optimizer/passes/passes.h"
#include "runtime/tensor/convert.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

Attributes To(DataType type) {
  Attributes attributes;
  attributes.Set("to", static_cast<int64_t>(type));
  return attributes;
}

// floats -> 16 bits -> products -> floats
class NarrowWeights : public testing::TestWithParam<DataType> {
 protected:
  static Tensor Narrow(const Tensor& floats) {
    return std::move(Converted(floats, GetParam())).value();
  }
  static std::string AfterPasses(TestModel& model) {
    return After(model, {ProviderPass("float_computation"), IdentityElimination(),
                         DeadCodeElimination(), ProviderPass("matmul_epilogue"),
                         ProviderPass("narrow_weights")});
  }
  void SetUp() override {
    if (ProviderPass("narrow_weights") == nullptr) GTEST_SKIP() << "built without oneDNN";
  }
};

TEST_P(NarrowWeights, StayAsTheyAreInModelsOf16Bits) {
  TestModel model(20);
  model.Input("floats", DataType::kFloat, {Dimension::Symbol("rows"), 150});
  model.Node("Cast", {"floats"}, {"x"}, To(GetParam()));
  model.Constant("w", Narrow(Ramp(Shape{150, 200}, 0.0625f)));
  model.Constant("b", Narrow(Ramp(Shape{200}, 0.5f)));
  model.Constant("u", Narrow(Ramp(Shape{150, 200}, 0.03125f)));
  Attributes turned;
  turned.Set("transB", int64_t{1});
  model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"s"});
  model.Node("Relu", {"s"}, {"r"}).Node("Gemm", {"r", "u"}, {"y"}, turned);
  model.Node("Cast", {"y"}, {"result"}, To(DataType::kFloat)).Output("result");
  TestModel copy = model;
  ASSERT_EQ(AfterPasses(model), "MatMulNarrowWeights MatMulNarrowWeights");
  for (const Node& node : model.graph().nodes) {
    EXPECT_EQ(model.graph().initializers.at(node.inputs[1]).type(), GetParam());
  }
  for (const int64_t rows : {1, 7, 100}) {
    SCOPED_TRACE(rows);
    ExpectSameResults(copy, {Ramp(Shape{rows, 150}, 0.125f)}, 2, 0.1f);
  }
}

TEST_P(NarrowWeights, AreFoundWhereFloatsHoldNothingElse) {
  TestModel model(20);
  model.Input("x", DataType::kFloat, {3, 150}).Input("z", DataType::kFloat, {3, 200});
  const Tensor wide =
      std::move(Converted(Narrow(Ramp(Shape{150, 200}, 0.1f)), DataType::kFloat)).value();
  model.Constant("w", wide).Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "z"}, {"y"});
  model.Output("y");
  TestModel copy = model;
  EXPECT_EQ(AfterPasses(model), "MatMulNarrowWeights");
  ExpectSameResults(copy, {Ramp(Shape{3, 150}, 0.1f), Ramp(Shape{3, 200}, 0.3f)});
}

// Sums of whole numbers are exact in any order.
TEST_P(NarrowWeights, GiveWhatFloatsGiveOfAnyNumberOfRows) {
  for (const int64_t n : {193, 256, 320}) {
    TestModel model(20);
    model.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), 260});
    model.Constant("w", Ramp(Shape{260, n}, 1)).Constant("b", Ramp(Shape{n}, 1));
    model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"y"}).Output("y");
    for (const int64_t rows : {1, 12, 13, 64, 300}) {
      SCOPED_TRACE(StrCat(rows, " x ", n));
      ExpectSameResults(model, {Ramp(Shape{rows, 260}, 1)}, 3, 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, NarrowWeights,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16));

TEST(FloatWeights, ThatNeedTheirBitsStay) {
  if (ProviderPass("narrow_weights") == nullptr) GTEST_SKIP() << "built without oneDNN";
  TestModel model(20);
  Tensor weights = Ramp(Shape{150, 200}, 1);
  weights.mutable_data<float>()[29'999] = 1.0f + 1.0f / (1 << 20);
  model.Input("x", DataType::kFloat, {3, 150}).Constant("w", weights);
  model.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  EXPECT_EQ(After(model, ProviderPass("narrow_weights")), "MatMul");
}

}  // namespace
}  // namespace onnxd
