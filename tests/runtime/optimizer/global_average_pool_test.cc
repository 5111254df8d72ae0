// Means of images: GlobalAveragePool.
#include <gtest/gtest.h>

#include "runtime/optimizer/passes/passes.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

TestModel MeanModel(const std::vector<int64_t>& axes, bool keeps_axes, bool as_input,
                    DataType type = DataType::kFloat) {
  TestModel model(as_input ? 18 : 13);
  Attributes attributes;
  attributes.Set("keepdims", int64_t{keeps_axes});
  std::vector<std::string> inputs = {"x"};
  if (as_input) {
    model.Constant("axes", Tensor::Of<int64_t>(Shape{static_cast<int64_t>(axes.size())}, axes));
    inputs.emplace_back("axes");
  } else {
    attributes.Set("axes", axes);
  }
  model.Input("x", type, {2, 3, Dimension::Symbol("height"), 7});
  return std::move(model.Node("ReduceMean", inputs, {"y"}, attributes).Output("y"));
}

TEST(GlobalAveragePoolFusion, TakesMeansOverAllAxesOfImages) {
  for (const bool as_input : {false, true}) {
    for (const auto& axes : {std::vector<int64_t>{2, 3}, {3, 2}, {-1, -2}, {2, -1}}) {
      TestModel model = MeanModel(axes, true, as_input), copy = model;
      EXPECT_EQ(After(model, GlobalAveragePoolFusion()), "GlobalAveragePool");
      ExpectSameResults(copy, {Ramp(Shape{2, 3, 5, 7}, 0.3f)});
    }
  }
}

TEST(GlobalAveragePoolFusion, LeavesOtherMeans) {
  for (const auto& axes : {std::vector<int64_t>{3}, {1, 2}, {1, 2, 3}, {2, 2}, {}}) {
    TestModel model = MeanModel(axes, true, false);
    EXPECT_EQ(After(model, GlobalAveragePoolFusion()), "ReduceMean");
  }
  TestModel squeezed = MeanModel({2, 3}, false, true);
  EXPECT_EQ(After(squeezed, GlobalAveragePoolFusion()), "ReduceMean");
  TestModel integers = MeanModel({2, 3}, true, true, DataType::kInt32);
  EXPECT_EQ(After(integers, GlobalAveragePoolFusion()), "ReduceMean");
}

}  // namespace
}  // namespace onnxd
