// ScatterElements and TensorScatter; what ONNX's cases do not show.
#include "runtime/optimizer/passes/passes.h"
#include "tests/support/operator_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {

using Strings = std::vector<std::string>;

Tensor Texts(const Shape& shape, const Strings& texts) {
  Tensor tensor = *Tensor::Create(DataType::kString, shape);
  std::copy(texts.begin(), texts.end(), tensor.mutable_data<std::string>());
  return tensor;
}

StatusCode CodeOf(const std::string& op, const std::vector<Tensor>& inputs,
                  Attributes attributes = {}) {
  return RunOp(op, inputs, std::move(attributes), {.opset = 24}).status().code();
}

TEST(ScatterElements, TheLastOfEqualPlacesWins) {
  const Tensor data = Numbers(Shape{2, 3}, 0);
  const Tensor places = Ints(Shape{2, 3}, {2, -1, 0, 1, 1, 1});
  const Tensor updates = Floats(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(
      Elements(RunOp("ScatterElements", {data, places, updates}, With({{"axis", int64_t{1}}}))),
      (std::vector<float>{3, 0, 2, 0, 6, 0}));
}

TEST(ScatterElements, TakesFewerRowsThanTheDataHasAndIndicesOf32Bits) {
  const Tensor data = Numbers(Shape{3, 2}, 0);
  const Tensor places = Tensor::Of<int32_t>(Shape{4, 1}, {2, 0, -3, 1});
  const Tensor updates = Floats(Shape{4, 1}, {1, 2, 3, 4});
  EXPECT_EQ(Elements(RunOp("ScatterElements", {data, places, updates},
                           With({{"reduction", std::string("add")}}))),
            (std::vector<float>{5, 0, 4, 0, 1, 0}));
}

TEST(ScatterElements, WritesOverWhatNothingElseReadsAndCopiesWhatSomethingDoes) {
  for (const bool read_later : {false, true}) {
    TestModel model(18);
    model.Input("x", DataType::kFloat, {4}).Constant("places", Ints(Shape{2}, {3, 0}));
    model.Constant("updates", Floats(Shape{2}, {8, 9})).Node("Neg", {"x"}, {"n"});
    model.Node("ScatterElements", {"n", "places", "updates"}, {"y"}).Output("y");
    if (read_later) model.Node("Abs", {"n"}, {"z"}).Output("z");
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const Tensor x = Floats(Shape{4}, {1, 2, 3, 4});
    const auto outputs = (*session)->Run(std::vector<Value>{x}, {});
    EXPECT_EQ(Elements(outputs), (std::vector<float>{9, -2, -3, 8}));
    if (read_later) {
      EXPECT_EQ(Elements(outputs, 1), (std::vector<float>{1, 2, 3, 4}));
    }
    EXPECT_EQ(x.data<float>()[0], 1);
  }
}

TEST(ScatterElements, PlacesOutsideTheAxisAreRefused) {
  const Tensor data = Numbers(Shape{3}), updates = Numbers(Shape{1});
  for (const int64_t place : {3, -4}) {
    const auto ran = RunOp("ScatterElements", {data, Ints(Shape{1}, {place}), updates});
    EXPECT_EQ(ran.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(ran.status().message().find(StrCat("index ", place, " is outside an axis of 3")),
              std::string::npos)
        << ran.status().ToString();
  }
}

TEST(ScatterElements, MovesTexts) {
  const Tensor data = Texts(Shape{3}, {"a", "b", "c"}), updates = Texts(Shape{1}, {"new"});
  EXPECT_EQ(Elements<std::string>(RunOp("ScatterElements", {data, Ints(Shape{1}, {1}), updates})),
            (Strings{"a", "new", "c"}));
}

// A cache of two sequences with three rows of two numbers.
const Shape kCache{2, 3, 2};

TEST(TensorScatter, WritesEachSequencesRowsFromItsPlaceOn) {
  const Tensor cache = Numbers(kCache, 0), update = Floats(Shape{2, 1, 2}, {1, 2, 3, 4});
  EXPECT_EQ(
      Elements(RunOp("TensorScatter", {cache, update, Ints(Shape{2}, {2, 0})}, {}, {.opset = 24})),
      (std::vector<float>{0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0}));
  EXPECT_EQ(Elements(RunOp("TensorScatter", {cache, update}, {}, {.opset = 24})),
            (std::vector<float>{1, 2, 0, 0, 0, 0, 3, 4, 0, 0, 0, 0}));
}

TEST(TensorScatter, GoesAroundWhereTheCacheIsCircular) {
  const Tensor cache = Numbers(kCache, 0);
  const Tensor update = Floats(Shape{2, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  const auto circular = With({{"mode", std::string("circular")}});
  EXPECT_EQ(Elements(RunOp("TensorScatter", {cache, update, Ints(Shape{2}, {2, INT64_MAX})},
                           circular, {.opset = 24})),
            (std::vector<float>{3, 4, 0, 0, 1, 2, 0, 0, 5, 6, 7, 8}));
}

TEST(TensorScatter, RowsOutsideTheCacheAreRefused) {
  const Tensor cache = Numbers(kCache), update = Numbers(Shape{2, 2, 2});
  for (const int64_t begin : {int64_t{-1}, int64_t{2}, int64_t{INT64_MAX}}) {
    EXPECT_EQ(CodeOf("TensorScatter", {cache, update, Ints(Shape{2}, {0, begin})}),
              StatusCode::kInvalidArgument)
        << begin;
  }
}

TEST(TensorScatter, ACacheOfNoRowsTakesNone) {
  const Tensor cache = Numbers(Shape{2, 0, 2}), update = Numbers(Shape{2, 1, 2});
  const auto circular = With({{"mode", std::string("circular")}});
  EXPECT_EQ(CodeOf("TensorScatter", {cache, update}, circular), StatusCode::kInvalidArgument);
}

TEST(TensorScatter, MovesTexts) {
  const Tensor cache = Texts(Shape{1, 2, 1}, {"a", "b"}), update = Texts(Shape{1, 1, 1}, {"new"});
  EXPECT_EQ(Elements<std::string>(
                RunOp("TensorScatter", {cache, update, Ints(Shape{1}, {1})}, {}, {.opset = 24})),
            (Strings{"a", "new"}));
}

// Places that an Expand makes as large as the updates, as exporters write sums over a graph's
// edges.
class ExpandedPlaces : public testing::Test {
 protected:
  static TestModel Scattered(const Tensor& places, const Shape& data, const Shape& updates,
                             int64_t axis, const std::string& reduction) {
    TestModel model(18);
    model.Input("data", DataType::kFloat, ToSymbolic(data));
    model.Input("updates", DataType::kFloat, ToSymbolic(updates)).Constant("places", places);
    model.Node("Shape", {"updates"}, {"sizes"}).Node("Expand", {"places", "sizes"}, {"expanded"});
    model.Node("ScatterElements", {"data", "expanded", "updates"}, {"y"},
               With({{"axis", axis}, {"reduction", reduction}}));
    return std::move(model.Output("y"));
  }
};

TEST_F(ExpandedPlaces, GiveTheSameResultUnexpanded) {
  const Tensor rows = Ints(Shape{4, 1}, {2, 0, -3, 2}), columns = Ints(Shape{3}, {1, -1, 0});
  const Tensor narrow = Tensor::Of<int32_t>(Shape{4, 1}, {2, 0, -1, 0});
  const struct {
    const Tensor& places;
    Shape data, updates;
    int64_t axis;
  } cases[] = {{rows, {5, 9}, {4, 9}, 0},           {rows, {3, 9}, {4, 7}, -2},
               {narrow, {3, 20000}, {4, 20000}, 0}, {rows, {2, 3, 9}, {2, 4, 9}, 1},
               {columns, {4, 6}, {4, 3}, 1},        {columns, {2, 4, 6}, {2, 4, 3}, -1}};
  for (const auto& c : cases) {
    for (const char* reduction : {"none", "add", "mul", "max", "min"}) {
      TestModel model = Scattered(c.places, c.data, c.updates, c.axis, reduction);
      TestModel copy = model;
      for (const int threads : {1, 3}) {
        ExpectSameResults(copy, {Ramp(c.data, 0.5f), Ramp(c.updates, 0.7f)}, threads);
      }
      EXPECT_EQ(After(model, {ProviderPass("expanded_indices"), DeadCodeElimination()}),
                "ScatterElementsBroadcast");
    }
  }
}

TEST_F(ExpandedPlaces, OutsideTheAxisAreRefused) {
  for (const int64_t place : {5, -6}) {
    const TestModel model =
        Scattered(Ints(Shape{2, 1}, {0, place}), Shape{5, 9}, Shape{2, 9}, 0, "none");
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const auto run =
        (*session)->Run(std::vector<Value>{Ramp(Shape{5, 9}, 1), Ramp(Shape{2, 9}, 1)}, {});
    EXPECT_EQ(run.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(run.status().message().find("is outside an axis of 5"), std::string::npos);
  }
}

TEST_F(ExpandedPlaces, ThatDoNotFitTheUpdatesAreRefused) {
  TestModel model(18);
  model.Input("data", DataType::kFloat, {Dimension(), 9})
      .Input("places", DataType::kInt64, {Dimension(), 1});
  model.Input("updates", DataType::kFloat, {Dimension(), 9})
      .Constant("sizes", Ints(Shape{2}, {1, 9}));
  model.Node("Expand", {"places", "sizes"}, {"expanded"});
  model.Node("ScatterElements", {"data", "expanded", "updates"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const Tensor data = Ramp(Shape{5, 9}, 1), places = Ints(Shape{3, 1}, {0, 1, 2});
  EXPECT_TRUE((*session)->Run(std::vector<Value>{data, places, Ramp(Shape{3, 9}, 1)}, {}).ok());
  const auto run = (*session)->Run(std::vector<Value>{data, places, Ramp(Shape{2, 9}, 1)}, {});
  EXPECT_EQ(run.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace onnxd
