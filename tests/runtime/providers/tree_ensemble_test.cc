// The three TreeEnsemble operators of ai.onnx.ml: what is read of their attributes, and what
// becomes of scores.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/str_cat.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using I = std::vector<int64_t>;
using F = std::vector<float>;
using S = std::vector<std::string>;

Attributes With(const Attributes& attributes,
                std::initializer_list<std::pair<const char*, Attribute>> entries) {
  Attributes all = attributes;
  for (const auto& [name, value] : entries) all.Set(name, value);
  return all;
}

// x[0] <= split ? 1 : 2, for the classes 0 and 1 or the only target.
Attributes Stump(const std::string& prefix, float split, const I& ids) {
  return With({}, {{"nodes_treeids", I{0, 0, 0}},
                   {"nodes_nodeids", I{0, 1, 2}},
                   {"nodes_featureids", I{0, 0, 0}},
                   {"nodes_modes", S{"BRANCH_LEQ", "LEAF", "LEAF"}},
                   {"nodes_values", F{split, 0, 0}},
                   {"nodes_truenodeids", I{1, 0, 0}},
                   {"nodes_falsenodeids", I{2, 0, 0}},
                   {(prefix + "_treeids").c_str(), I{0, 0}},
                   {(prefix + "_nodeids").c_str(), I{1, 2}},
                   {(prefix + "_ids").c_str(), ids},
                   {(prefix + "_weights").c_str(), F{1, 2}}});
}

Attributes Classifier() {
  return With(Stump("class", 0.5f, {0, 1}), {{"classlabels_int64s", I{7, 8}}});
}
Attributes Regressor(float split) { return Stump("target", split, {0, 0}); }

Result<std::vector<Value>> RunTrees(const std::string& op, const Tensor& x, Attributes attributes,
                                    size_t outputs = 1, int threads = 1) {
  TestModel model(17);
  model.Input("x", x.type(), ToSymbolic(x.shape()));
  S names;
  for (size_t i = 0; i < outputs; ++i) names.push_back(StrCat("y", i));
  model.Node(op, {"x"}, names, std::move(attributes), "ai.onnx.ml");
  for (const auto& name : names) model.Output(name);
  SessionOptions options = DefaultSession();
  options.pool = std::make_shared<ThreadPool>(threads);
  ONNXD_ASSIGN_OR_RETURN(const auto session, InferenceSession::FromModel(model.model(), options));
  return session->Run(std::vector<Value>{x}, {});
}

template <typename T>
Tensor Column(const std::vector<T>& values) {
  Tensor column = *Tensor::Create(kDataTypeOf<T>, Shape{std::ssize(values), 1});
  std::copy(values.begin(), values.end(), column.mutable_data<T>());
  return column;
}

template <typename T>
std::vector<T> ElementsOf(const Result<std::vector<Value>>& outputs, size_t i = 0) {
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (!outputs.ok()) return {};
  const auto elements = (*outputs)[i].tensor().elements<T>();
  return {elements.begin(), elements.end()};
}

TEST(TreeEnsemble, RefusesTreesThatAreNone) {
  const Tensor x = Column(F{0, 1, NAN});
  const auto run = [&](const I& yes, const I& no) {
    return RunTrees("TreeEnsembleClassifier", x,
                    With(Classifier(), {{"nodes_truenodeids", yes}, {"nodes_falsenodeids", no}}),
                    2);
  };
  EXPECT_EQ(ElementsOf<int64_t>(run({1, 0, 0}, {2, 0, 0})), (I{7, 8, 8}));
  for (const auto& [yes, no] : std::vector<std::pair<I, I>>{{{0, 0, 0}, {2, 0, 0}},
                                                            {{9, 0, 0}, {2, 0, 0}},
                                                            {{1, 0, 0}, {1, 0, 0}},
                                                            {{1, 0}, {2, 0}}}) {
    EXPECT_FALSE(run(yes, no).ok());
  }
}

TEST(TreeEnsemble, RefusesListsOfDifferentLengths) {
  const Tensor x = Column(F{0});
  for (const char* name : {"nodes_treeids", "nodes_nodeids", "nodes_featureids",
                           "nodes_truenodeids", "class_treeids", "class_nodeids", "class_ids"}) {
    for (const I& values : {I{}, I{0}, I{0, 1, 2, 3}}) {
      const auto outputs =
          RunTrees("TreeEnsembleClassifier", x, With(Classifier(), {{name, values}}), 2);
      EXPECT_FALSE(outputs.ok()) << name << " of " << values.size();
    }
  }
}

TEST(TreeEnsemble, RefusesAClassifierWithoutLabels) {
  const Tensor x = Column(F{0});
  const auto outputs =
      RunTrees("TreeEnsembleClassifier", x, With(Classifier(), {{"classlabels_int64s", I{}}}), 2);
  ASSERT_FALSE(outputs.ok());
  EXPECT_NE(outputs.status().message().find("class labels"), std::string::npos)
      << outputs.status().ToString();
}

TEST(TreeEnsemble, RefusesRowsThatAreTooShort) {
  const Tensor x = Floats(Shape{2, 0}, {});
  EXPECT_FALSE(RunTrees("TreeEnsembleRegressor", x, Regressor(0)).ok());
}

TEST(TreeEnsemble, LabelsWithNumbersOrStrings) {
  const Tensor x = Column(F{0, 1});
  const auto numbers = RunTrees("TreeEnsembleClassifier", x, Classifier(), 2);
  EXPECT_EQ(ElementsOf<int64_t>(numbers), (I{7, 8}));
  EXPECT_EQ(ElementsOf<float>(numbers, 1), (F{1, 0, 0, 2}));
  Attributes named = Stump("class", 0.5f, {0, 1});
  named.Set("classlabels_strings", S{"low", "high"});
  EXPECT_EQ(ElementsOf<std::string>(RunTrees("TreeEnsembleClassifier", x, named, 2)),
            (S{"low", "high"}));
}

// Of two classes one has weights, none negative: what it lacks to 1 is the other's.
TEST(TreeEnsemble, FindsTheScoreOfTheOtherClass) {
  const Tensor x = Column(F{0, 1});
  for (const int64_t with_weights : {0, 1}) {
    const auto attributes = With(Classifier(), {{"class_ids", I{with_weights, with_weights}},
                                                {"class_weights", F{0.25f, 0.75f}}});
    const auto outputs = RunTrees("TreeEnsembleClassifier", x, attributes, 2);
    EXPECT_EQ(ElementsOf<int64_t>(outputs), (I{7, 8}));
    EXPECT_EQ(ElementsOf<float>(outputs, 1), (F{0.75f, 0.25f, 0.25f, 0.75f}));
  }
}

// 0.1 lies below the float nearest to it.
TEST(TreeEnsemble, ComparesDoublesAsDoubles) {
  const double tenth = 0.1f;
  const Tensor x = Column(std::vector<double>{tenth, tenth + 1e-12, tenth - 1e-12});
  EXPECT_EQ(ElementsOf<float>(RunTrees("TreeEnsembleRegressor", x, Regressor(0.1f))), (F{1, 2, 1}));
}

TEST(TreeEnsemble, ComparesIntegersAsFloats) {
  const Tensor x = Column(I{-1, 0, 1});
  EXPECT_EQ(ElementsOf<float>(RunTrees("TreeEnsembleRegressor", x, Regressor(0.5f))), (F{1, 1, 2}));
}

// Enough rows for each of the threads.
TEST(TreeEnsemble, GivesThreadsTheirRows) {
  F values, wanted;
  for (int i = 0; i < 20000; ++i) {
    values.push_back(static_cast<float>(i % 7));
    wanted.push_back(i % 7 <= 3 ? 1 : 2);
  }
  const Tensor x = Column(values);
  for (const int threads : {1, 3}) {
    EXPECT_EQ(ElementsOf<float>(RunTrees("TreeEnsembleRegressor", x, Regressor(3), 1, threads)),
              wanted);
  }
}

}  // namespace
}  // namespace onnxd
