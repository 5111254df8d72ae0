#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/graph/graph_match.h"
#include "runtime/ops/op_schema.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/ops/slice.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

TEST(OpSchema, FindsTheNewestVersionNotAboveTheOpset) {
  EXPECT_EQ(FindOpSchema("", "Relu", 5)->since_version, 1);
  EXPECT_EQ(FindOpSchema("", "Relu", 6)->since_version, 6);
  EXPECT_EQ(FindOpSchema("", "Relu", 12)->since_version, 6);
  EXPECT_EQ(FindOpSchema("", "Relu", 28)->since_version, 14);
  EXPECT_EQ(FindOpSchema("", "Gelu", 19), nullptr);
  EXPECT_EQ(FindOpSchema("nowhere", "Relu", 14), nullptr);
}

// One bad node each, and what the message must name.
TEST(CheckNode, NamesNodeOperandAndExpectation) {
  const auto message = [](TestModel& model) {
    const auto session = model.Output("y").Load();
    return session.ok() ? std::string("OK") : std::string(session.status().message());
  };
  TestModel arity;
  arity.Input("x", DataType::kFloat, {2}).Node("Add", {"x"}, {"y"});
  EXPECT_NE(message(arity).find("node 'Add0' (Add) has 1 inputs"), std::string::npos);
  TestModel types;
  types.Input("x", DataType::kFloat, {2}).Input("i", DataType::kInt32, {2});
  types.Node("Add", {"x", "i"}, {"y"});
  EXPECT_NE(message(types).find("mixes types: 'x' is float[2], 'i' is int32[2]"),
            std::string::npos);
  TestModel attribute;
  Attributes unknown;
  unknown.Set("speed", int64_t{3});
  attribute.Input("x", DataType::kFloat, {2}).Node("Relu", {"x"}, {"y"}, unknown);
  EXPECT_NE(message(attribute).find("attribute 'speed'"), std::string::npos);
  TestModel kind;
  Attributes wrong;
  wrong.Set("axis", 1.0f);
  kind.Input("x", DataType::kFloat, {2}).Node("Concat", {"x"}, {"y"}, wrong);
  EXPECT_NE(message(kind).find("'axis' is FLOAT, expected INT"), std::string::npos);
  TestModel missing;
  missing.Input("x", DataType::kFloat, {2}).Node("Concat", {"x"}, {"y"});
  EXPECT_NE(message(missing).find("lacks the required attribute 'axis'"), std::string::npos);
}

struct InferenceCase {
  const char* op;
  std::vector<SymbolicShape> inputs;
  std::vector<Tensor> known;  // by input; undefined: unknown
  Attributes attributes;
  const char* wanted;  // of output 0, or of the failure
};

std::string Infer(const InferenceCase& c) {
  Node node;
  node.op_type = c.op;
  node.since_version = FindOpSchema("", c.op, 17)->since_version;
  node.attributes = c.attributes;
  node.outputs = {100};
  std::vector<ValueType> types;
  std::vector<const Tensor*> known;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    node.inputs.push_back(static_cast<ValueId>(i));
    const bool has_value = i < c.known.size() && c.known[i].defined();
    types.push_back(
        ValueType::TensorOf(has_value ? c.known[i].type() : DataType::kFloat, c.inputs[i]));
    known.push_back(has_value ? &c.known[i] : nullptr);
  }
  const auto outputs = InferNode(node, types, known);
  return outputs.ok() ? ToString((*outputs)[0]) : std::string(outputs.status().message());
}

Attributes With(std::initializer_list<std::pair<const char*, Attribute>> entries) {
  Attributes attributes;
  for (const auto& [name, value] : entries) attributes.Set(name, value);
  return attributes;
}

TEST(ShapeInference, KnowsWhatComesOut) {
  const Dimension n = Dimension::Symbol("n");
  const Tensor none;
  using I = std::vector<int64_t>;
  const InferenceCase cases[] = {
      {"Add", {{n, 3}, {1}}, {}, {}, "float[n, 3]"},
      {"Add", {{2, 3}, {4}}, {}, {}, "cannot be broadcast"},
      {"MatMul", {{n, 4, 5}, {5, 6}}, {}, {}, "float[n, 4, 6]"},
      {"MatMul", {{4}, {4}}, {}, {}, "float[]"},
      {"MatMul", {{2, 3}, {4, 5}}, {}, {}, "cannot be multiplied"},
      {"Conv",
       {{n, 3, 224, 224}, {64, 3, 7, 7}},
       {},
       With({{"strides", I{2, 2}}, {"pads", I{3, 3, 3, 3}}}),
       "float[n, 64, 112, 112]"},
      {"Conv",
       {{n, 3, Dimension::Symbol("h"), 9}, {8, 3, 3, 1}},
       {},
       With({{"pads", I{1, 0, 1, 0}}}),
       "float[n, 8, h, 9]"},
      {"Conv",
       {{n, 3, 1, Dimension::Symbol("w")}, {8, 3, 1, 3}},
       {},
       With({{"strides", I{1, 2}}}),
       "float[n, 8, 1, ?]"},
      {"ConvTranspose",
       {{n, 3, 4, Dimension::Symbol("w")}, {3, 8, 2, 2}},
       {},
       With({{"strides", I{2, 2}}}),
       "float[n, 8, 8, ?]"},
      {"MaxPool",
       {{n, 3, Dimension(), 8}},
       {},
       With({{"kernel_shape", I{2, 2}}, {"strides", I{1, 2}}}),
       "float[n, 3, ?, 4]"},
      {"Pad",
       {{n, Dimension::Symbol("w")}, {4}},
       {none, Ints(Shape{4}, {0, 1, 0, 0})},
       {},
       "float[n, ?]"},
      {"Conv", {{1, 3, 5, 5}, {8, 4, 3, 3}}, {}, {}, "input has 3 channels, weights take 4"},
      {"Conv", {{1, 3, 2, 2}, {8, 3, 3, 3}}, {}, {}, "larger than the padded input"},
      {"Conv", {{1, 3, 5, 5}, {8, 3, 3, 3}}, {}, With({{"strides", I{0, 1}}}), "'strides' holds 0"},
      {"MaxPool",
       {{1, 2, 7, 7}},
       {},
       With({{"kernel_shape", I{3, 3}}, {"strides", I{2, 2}}, {"ceil_mode", int64_t{1}}}),
       "float[1, 2, 3, 3]"},
      {"Reshape", {{2, 3, 4}, {2}}, {none, Ints(Shape{2}, {-1, 6})}, {}, "float[4, 6]"},
      {"Reshape", {{n, 3, 4}, {2}}, {none, Ints(Shape{2}, {-1, 12})}, {}, "float[n, 12]"},
      {"Reshape", {{2, 3}, {1}}, {none, Ints(Shape{1}, {7})}, {}, "the new shape [7] has 7"},
      {"Reshape",
       {{0, 1, 12, 16}, {3}},
       {none, Ints(Shape{3}, {0, -1, 16})},
       {},
       "float[0, 12, 16]"},
      {"Reshape", {{0, 5}, {3}}, {none, Ints(Shape{3}, {0, -1, 2})}, {}, "does not divide"},
      {"Reshape", {{2, 0}, {2}}, {none, Ints(Shape{2}, {-1, 0})}, {}, "float[2, 0]"},
      {"Reshape",
       {{0, 6}, {2}},
       {none, Ints(Shape{2}, {0, -1})},
       With({{"allowzero", int64_t{1}}}),
       "does not divide"},
      {"Reshape", {{2, 3}, {2}}, {none, Ints(Shape{2}, {-1, -1})}, {}, "more than one -1"},
      {"Transpose", {{2, n, 4}}, {}, With({{"perm", I{2, 0, 1}}}), "float[4, 2, n]"},
      {"Transpose", {{2, 3}}, {}, With({{"perm", I{0, 0}}}), "does not permute"},
      {"Concat", {{2, 3}, {2, n}}, {}, With({{"axis", int64_t{1}}}), "float[2, ?]"},
      {"Slice",
       {{10, 4}, {1}, {1}, {1}, {1}},
       {none, Ints(Shape{1}, {8}), Ints(Shape{1}, {-100}), Ints(Shape{1}, {0}),
        Ints(Shape{1}, {-3})},
       {},
       "float[3, 4]"},
      {"Gather",
       {{5, 6}, {2, 3}},
       {none, Ints(Shape{2, 3}, {0, 1, 2, 3, 4, 0})},
       {},
       "float[2, 3, 6]"},
      {"Gemm", {{2, 3}, {4, 3}}, {}, With({{"transB", int64_t{1}}}), "float[2, 4]"},
      {"Gemm", {{2, 3}, {3, 5}, {4}}, {}, {}, "cannot be broadcast"},
      {"Resize",
       {{n, 3, n, 8}, {0}, {4}},
       {none, none, Tensor::Of<float>(Shape{4}, {1, 1, 2, 2})},
       {},
       "float[n, 3, ?, ?]"},
      {"Squeeze", {{1, 3, 1}, {1}}, {none, Ints(Shape{1}, {1})}, {}, "has 3 elements, not 1"},
      {"ReduceMean",
       {{2, 3, n}},
       {},
       With({{"axes", I{-1}}, {"keepdims", int64_t{0}}}),
       "float[2, 3]"},
      {"Expand", {{1, 3}, {3}}, {none, Ints(Shape{3}, {2, 4, 1})}, {}, "float[2, 4, 3]"},
      {"Tile",
       {{2, 3}, {2}},
       {none, Ints(Shape{2}, {int64_t{1} << 40, 2})},
       {},
       "float[2199023255552, 6]"},
      {"Pad", {{2, 3}, {4}}, {none, Ints(Shape{4}, {1, 0, -9, 0})}, {}, "remove more"},
      {"Split", {{7, 2}, {2}}, {none, Ints(Shape{2}, {3, 3})}, {}, "split lists 2 sizes for 1"},
  };
  for (const InferenceCase& c : cases) {
    const std::string got = Infer(c);
    EXPECT_NE(got.find(c.wanted), std::string::npos)
        << c.op << ": got " << got << ", wanted " << c.wanted;
  }
}

// Of x[1, 3, w], halved: a and its copies are known to be equal, another half is not.
// As in detectors, whose regions' number and rank only runs know.
TEST(ShapeInference, TakesARankFromWhatItIsBoundTo) {
  TestModel model(18);
  Attributes seven;
  seven.Set("output_height", int64_t{7});
  seven.Set("output_width", int64_t{7});
  const Dimension some = Dimension::Symbol("some");
  model.Input("sizes", DataType::kInt64, {some}).Input("flat", DataType::kFloat, {some});
  model.Input("x", DataType::kFloat, {1, 4, 20, 20}).Input("batch", DataType::kInt64, {some});
  model.Constant("w", *Tensor::Create(DataType::kFloat, Shape{5, 4, 3, 3}));
  model.Node("Reshape", {"flat", "sizes"}, {"regions"});
  model.Node("RoiAlign", {"x", "regions", "batch"}, {"a"}, seven);
  model.Node("Reshape", {"flat", "sizes"}, {"data"}).Node("Cast", {"a"}, {"i"}, [] {
    Attributes to;
    to.Set("to", static_cast<int64_t>(DataType::kInt64));
    return to;
  }());
  model.Node("ScatterElements", {"data", "i", "a"}, {"s"}).Node("Conv", {"s", "w"}, {"y"});
  model.Node("Reshape", {"flat", "sizes"}, {"u"}).Node("Conv", {"u", "w"}, {"z"});
  ASSERT_TRUE(InferGraph(model.graph()).ok());
  const auto shape = [&](const char* name) {
    const Graph& graph = model.graph();
    const auto& known = graph.value(graph.FindValue(name)).type.shape;
    return known ? ToString(*known) : std::string("unknown");
  };
  EXPECT_EQ(shape("regions"), "unknown");
  EXPECT_EQ(shape("a"), "[?, 4, 7, 7]");
  EXPECT_EQ(shape("s"), "[?, ?, ?, ?]");
  EXPECT_EQ(shape("y"), "[?, 5, ?, ?]");
  EXPECT_EQ(shape("z"), "[?, 5, ?, ?]");
}

TEST(ShapeInference, NamesExtentsThatOnlyRunsKnow) {
  TestModel model;
  model.Input("x", DataType::kFloat, {1, 3, Dimension::Symbol("w")});
  model.Constant("k", Tensor::Of<float>(Shape{3, 3, 2}, std::vector<float>(18, 1)));
  model.Constant("s", Tensor::Of<float>(Shape{3, 3, 3}, std::vector<float>(27, 1)));
  model.Node("Conv", {"x", "k"}, {"a"}, With({{"strides", std::vector<int64_t>{2}}}));
  model.Node("Conv", {"x", "k"}, {"b"}, With({{"strides", std::vector<int64_t>{2}}}));
  model.Node("Relu", {"a"}, {"r"});
  model.Node("Conv", {"r", "s"}, {"c"}, With({{"pads", std::vector<int64_t>{1, 1}}}));
  model.Node("Add", {"a", "c"}, {"y"}).Output("y");
  Graph& graph = model.graph();
  ASSERT_TRUE(InferGraph(graph).ok());
  const auto id = [&](const char* name) { return graph.FindValue(name); };
  const auto shape = [&](const char* name) { return *graph.value(id(name)).type.shape; };
  EXPECT_TRUE(SameKnownShape(graph, id("a"), id("c")));
  EXPECT_TRUE(SameKnownShape(graph, id("a"), id("y")));
  EXPECT_FALSE(SameKnownShape(graph, id("a"), id("b")));
  EXPECT_EQ(ToString(shape("y")), "[1, 3, ?]");
  const SymbolicShape before = shape("a");
  ASSERT_TRUE(InferGraph(graph).ok());
  EXPECT_EQ(shape("a"), before);
}

TEST(NormalizeSlice, FollowsPythonForEverySmallCase) {
  for (int64_t dim = 0; dim < 5; ++dim) {
    for (int64_t start = -7; start <= 7; ++start) {
      for (int64_t end = -7; end <= 7; ++end) {
        for (const int64_t step : {1, 2, 3, -1, -2, -3}) {
          // Python's rule, walked one by one.
          int64_t from = start < 0 ? start + dim : start, to = end < 0 ? end + dim : end;
          from =
              step > 0 ? std::clamp<int64_t>(from, 0, dim) : std::clamp<int64_t>(from, -1, dim - 1);
          to = step > 0 ? std::clamp<int64_t>(to, 0, dim) : std::clamp<int64_t>(to, -1, dim - 1);
          int64_t count = 0;
          for (int64_t i = from; step > 0 ? i < to : i > to; i += step) ++count;
          const SliceRange range = NormalizeSlice(start, end, step, dim);
          ASSERT_EQ(range.count, count) << dim << " " << start << ":" << end << ":" << step;
          if (count > 0) {
            ASSERT_EQ(range.start, from);
          }
        }
      }
    }
  }
  constexpr int64_t kMin = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(NormalizeSlice(kMin, kMin, kMin, 5).count, 0);
  EXPECT_EQ(NormalizeSlice(4, kMin, kMin, 5).count, 1);
}

}  // namespace
}  // namespace onnxd
