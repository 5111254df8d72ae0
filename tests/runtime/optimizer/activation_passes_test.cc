// Activations that exporters write as arithmetic: Gelu, HardSigmoid and HardSwish.
#include <gtest/gtest.h>

#include "runtime/optimizer/passes/passes.h"
#include "runtime/tensor/convert.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

TEST(Gelu, SeesTheOrdersThatExportersWrite) {
  for (const int order : {0, 1, 2}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 8}).Constant("root", Floats(Shape{}, {1.41421354f}));
    model.Constant("one", Floats(Shape{}, {1})).Constant("half", Floats(Shape{}, {0.5}));
    model.Node("Div", {"x", "root"}, {"d"}).Node("Erf", {"d"}, {"e"});
    model.Node("Add", {"e", "one"}, {"f"});
    if (order == 0) model.Node("Mul", {"x", "f"}, {"g"}).Node("Mul", {"g", "half"}, {"y"});
    if (order == 1) model.Node("Mul", {"f", "half"}, {"g"}).Node("Mul", {"x", "g"}, {"y"});
    if (order == 2) model.Node("Mul", {"x", "half"}, {"g"}).Node("Mul", {"g", "f"}, {"y"});
    model.Output("y");
    TestModel copy = model;
    EXPECT_TRUE(After(model, GeluFusion()).ends_with(" Gelu")) << order;
    ExpectSameResults(copy, {Ramp(Shape{2, 8}, 0.5f)});
  }
}

TEST(Gelu, SeesItsTanhApproximation) {
  for (const bool power : {true, false}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 8}).Constant("three", Floats(Shape{}, {3}));
    model.Constant("cubic", Floats(Shape{}, {0.044715f}));
    model.Constant("root", Floats(Shape{}, {0.797884583f})).Constant("one", Floats(Shape{}, {1}));
    model.Constant("half", Floats(Shape{}, {0.5}));
    if (power) {
      model.Node("Pow", {"x", "three"}, {"p"});
    } else {
      model.Node("Mul", {"x", "x"}, {"s"}).Node("Mul", {"x", "s"}, {"p"});
    }
    model.Node("Mul", {"cubic", "p"}, {"c"}).Node("Add", {"x", "c"}, {"a"});
    model.Node("Mul", {"root", "a"}, {"r"}).Node("Tanh", {"r"}, {"t"});
    model.Node("Add", {"one", "t"}, {"o"}).Node("Mul", {"half", "x"}, {"h"});
    model.Node("Mul", {"h", "o"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_TRUE(After(model, GeluFusion()).ends_with(" FastGelu"));
    ExpectSameResults(copy, {Ramp(Shape{2, 8}, 0.5f)});
  }
}

// x * Clip(x + 3, 0, 6) / 6, and how exporters write its parts.
TestModel HardSwishModel(const std::string& clip, const std::string& order, float top = 6) {
  TestModel model{13};
  model.Input("x", DataType::kFloat, {2, 9}).Constant("three", Floats(Shape{}, {3}));
  model.Constant("zero", Floats(Shape{}, {0})).Constant("top", Floats(Shape{}, {top}));
  model.Constant("six", Floats(Shape{1}, {6})).Constant("sixth", Floats(Shape{}, {1.0f / 6}));
  model.Node("Add", {"three", "x"}, {"a"});
  if (clip == "clip") model.Node("Clip", {"a", "zero", "top"}, {"c"});
  if (clip == "relu") model.Node("Relu", {"a"}, {"r"}).Node("Min", {"r", "top"}, {"c"});
  if (clip == "min") model.Node("Min", {"a", "top"}, {"r"}).Node("Max", {"zero", "r"}, {"c"});
  if (order == "last") model.Node("Mul", {"x", "c"}, {"m"}).Node("Div", {"m", "six"}, {"y"});
  if (order == "times") model.Node("Mul", {"c", "x"}, {"m"}).Node("Mul", {"sixth", "m"}, {"y"});
  if (order == "gate") model.Node("Div", {"c", "six"}, {"m"}).Node("Mul", {"x", "m"}, {"y"});
  if (order == "first") model.Node("Mul", {"x", "sixth"}, {"m"}).Node("Mul", {"m", "c"}, {"y"});
  model.Output("y");
  return model;
}

TEST(HardSigmoid, SeesTheOrdersThatExportersWrite) {
  for (const char* clip : {"clip", "relu", "min"}) {
    for (const char* order : {"last", "times", "gate", "first"}) {
      TestModel model = HardSwishModel(clip, order);
      TestModel copy = model;
      EXPECT_EQ(After(model, {HardSigmoidFusion(), DeadCodeElimination()}), "HardSigmoid Mul")
          << clip << " " << order;
      ExpectSameResults(copy, {Ramp(Shape{2, 9}, 0.9f)});
    }
  }
}

TEST(HardSigmoid, IsSeenAlone) {
  TestModel model{13};
  model.Input("x", DataType::kFloat, {2, 9}).Constant("two", Floats(Shape{}, {2}));
  model.Constant("zero", Floats(Shape{}, {0})).Constant("four", Floats(Shape{}, {4}));
  model.Node("Add", {"x", "two"}, {"a"}).Node("Clip", {"a", "zero", "four"}, {"c"});
  model.Node("Div", {"c", "four"}, {"y"}).Output("y").Output("c");
  TestModel copy = model;
  EXPECT_EQ(After(model, HardSigmoidFusion()), "Add Clip HardSigmoid");
  ExpectSameResults(copy, {Ramp(Shape{2, 9}, 0.9f)});
}

TEST(HardSigmoid, LeavesOtherNumbers) {
  TestModel model = HardSwishModel("clip", "last", 5);
  EXPECT_EQ(After(model, HardSigmoidFusion()), "Add Clip Mul Div");
}

TEST(PReluAsLeakyRelu, TakesOneSlopeOfAnyRankThatFits) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{1, 1, 1}}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 3, 5}).Constant("slope", Ramp(shape, 0.1f));
    model.Node("PRelu", {"x", "slope"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, PReluAsLeakyRelu()), "LeakyRelu");
    ExpectSameResults(copy, {Ramp(Shape{2, 3, 5}, 0.9f)});
  }
}

TEST(PReluAsLeakyRelu, LeavesOtherSlopes) {
  const auto after = [](const Tensor& slope, DataType type = DataType::kFloat) {
    TestModel model;
    model.Input("x", type, {2, 3, 5}).Constant("slope", slope);
    model.Node("PRelu", {"x", "slope"}, {"y"}).Output("y");
    return After(model, PReluAsLeakyRelu());
  };
  EXPECT_EQ(after(Ramp(Shape{3, 1}, 0.1f)), "PRelu");
  EXPECT_EQ(after(Ramp(Shape{1, 1, 1, 1}, 0.1f)), "PRelu");
  EXPECT_EQ(after(Tensor::Of<double>(Shape{1}, {0.1}), DataType::kDouble), "PRelu");
  TestModel computed;
  computed.Input("x", DataType::kFloat, {2, 3}).Input("slope", DataType::kFloat, {1});
  computed.Node("PRelu", {"x", "slope"}, {"y"}).Output("y");
  EXPECT_EQ(After(computed, PReluAsLeakyRelu()), "PRelu");
}

TEST(PRelu, HasSlopesForAllForEachAndForSome) {
  for (const Shape& slope : {Shape{5}, Shape{3, 1}, Shape{2, 3, 5}, Shape{1}}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 3, 5})
        .Input("slope", DataType::kFloat, ToSymbolic(slope));
    model.Node("PRelu", {"x", "slope"}, {"y"}).Output("y");
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const Tensor x = Ramp(Shape{2, 3, 5}, 0.9f), s = Ramp(slope, 0.25f);
    const auto run = (*session)->Run(std::vector<Value>{x, s}, {});
    ASSERT_TRUE(run.ok()) << run.status().ToString();
    for (int64_t i = 0; i < 30; ++i) {
      const int64_t at = slope == Shape{5}         ? i % 5
                         : slope == Shape{3, 1}    ? i / 5 % 3
                         : slope == Shape{2, 3, 5} ? i
                                                   : 0;
      const float in = x.data<float>()[i];
      EXPECT_EQ((*run)[0].tensor().data<float>()[i], in < 0 ? in * s.data<float>()[at] : in) << i;
    }
  }
}

// As JAX writes x * (x * (0.044715 * x)).
TEST(Gelu, SeesItsCubeInAnyOrder) {
  for (const float cubic : {0.044715f, 0.05f}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {2, 8}).Constant("cubic", Floats(Shape{}, {cubic}));
    model.Constant("root", Floats(Shape{}, {0.797884583f})).Constant("one", Floats(Shape{}, {1}));
    model.Constant("half", Floats(Shape{}, {0.5})).Node("Mul", {"cubic", "x"}, {"p"});
    model.Node("Mul", {"x", "p"}, {"q"}).Node("Mul", {"x", "q"}, {"c"});
    model.Node("Add", {"x", "c"}, {"a"}).Node("Mul", {"root", "a"}, {"r"});
    model.Node("Tanh", {"r"}, {"t"}).Node("Add", {"one", "t"}, {"o"});
    model.Node("Mul", {"half", "o"}, {"h"}).Node("Mul", {"x", "h"}, {"y"}).Output("y");
    TestModel copy = model;
    EXPECT_EQ(After(model, GeluFusion()).ends_with(" FastGelu"), cubic == 0.044715f);
    ExpectSameResults(copy, {Ramp(Shape{2, 8}, 0.5f)});
  }
}

// Whose numbers are those of the type.
TEST(Gelu, IsSeenOf16Bits) {
  for (const DataType type : {DataType::kFloat16, DataType::kBfloat16}) {
    TestModel model;
    model.Input("x", type, {2, 8});
    for (const auto& [name, number] :
         {std::pair("root", 1.41421354f), {"one", 1.0f}, {"half", 0.5f}}) {
      model.Constant(name, *Converted(Floats(Shape{}, {number}), type));
    }
    model.Node("Div", {"x", "root"}, {"d"}).Node("Erf", {"d"}, {"e"});
    model.Node("Add", {"e", "one"}, {"f"}).Node("Mul", {"x", "f"}, {"g"});
    model.Node("Mul", {"g", "half"}, {"y"}).Output("y");
    EXPECT_TRUE(After(model, GeluFusion()).ends_with(" Gelu"));
  }
}

TEST(Gelu, LeavesOtherNumbers) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 8}).Constant("root", Floats(Shape{}, {1.5f}));
  model.Constant("one", Floats(Shape{}, {1})).Constant("half", Floats(Shape{}, {0.5}));
  model.Node("Div", {"x", "root"}, {"d"}).Node("Erf", {"d"}, {"e"});
  model.Node("Add", {"e", "one"}, {"f"}).Node("Mul", {"x", "f"}, {"g"});
  model.Node("Mul", {"g", "half"}, {"y"}).Output("y");
  EXPECT_EQ(After(model, GeluFusion()), "Div Erf Add Mul Mul");
}

}  // namespace
}  // namespace onnxd
