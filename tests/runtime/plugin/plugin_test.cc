// Operators from shared libraries: those that work, and those that must not hurt.
#include "runtime/plugin/plugin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::shared_ptr<const Plugin> Loaded(const char* path) {
  auto plugin = LoadPlugin(path);
  EXPECT_TRUE(plugin.ok()) << plugin.status().ToString();
  return plugin.ok() ? *plugin : nullptr;
}

Result<std::unique_ptr<InferenceSession>> LoadWith(const char* plugin, TestModel& model) {
  SessionOptions options = DefaultSession();
  ProviderOptions provider_options;
  provider_options.plugins = {Loaded(plugin)};
  options.providers = *MakeProviders({}, provider_options);
  return InferenceSession::FromModel(model.model(), options);
}

Attributes Clamp(float low, float high) {
  Attributes attributes;
  attributes.Set("low", low);
  attributes.Set("high", high);
  return attributes;
}

TestModel ClampedAffine(Attributes attributes, SymbolicShape shape) {
  Loaded(ONNXD_EXAMPLE_PLUGIN);  // before the node asks for its schema
  TestModel model;
  model.Input("x", DataType::kFloat, std::move(shape));
  model.Node("ClampedAffine", {"x"}, {"y"}, std::move(attributes), "com.example");
  model.Node("Neg", {"y"}, {"z"});
  model.Output("z");
  return model;
}

TEST(Plugin, ComputesBesideTheOtherProviders) {
  Attributes attributes = Clamp(-1, 2);
  attributes.Set("scale", 2.0f);
  TestModel model = ClampedAffine(attributes, {Dimension::Symbol("batch"), 3});
  const auto session = LoadWith(ONNXD_EXAMPLE_PLUGIN, model);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_EQ((*session)->info().nodes_by_provider.at("clamped_affine"), 1);
  EXPECT_EQ(ToString((*session)->outputs()[0].type), "float[?, 3]");
  for (const int64_t batch : {1, 2}) {
    const Shape shape{batch, 3};
    const Tensor x =
        batch == 1 ? Floats(shape, {-4, 0.5, 3}) : Floats(shape, {-4, 0.5, 3, 0, 1, 9});
    const auto outputs = (*session)->Run(std::vector<Value>{x}, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    const auto z = (*outputs)[0].tensor().elements<float>();
    EXPECT_EQ((*outputs)[0].tensor().shape(), shape);
    EXPECT_EQ(z[0], 1);
    EXPECT_EQ(z[1], -1);
    EXPECT_EQ(z[2], -2);
  }
}

TEST(Plugin, ChecksItsAttributes) {
  TestModel missing = ClampedAffine({}, {3});
  EXPECT_THAT(LoadWith(ONNXD_EXAMPLE_PLUGIN, missing).status().ToString(),
              AllOf(HasSubstr("ClampedAffine"), HasSubstr("required attribute 'low'")));
  Attributes unknown = Clamp(0, 1);
  unknown.Set("slope", 1.0f);
  TestModel with_unknown = ClampedAffine(unknown, {3});
  EXPECT_THAT(LoadWith(ONNXD_EXAMPLE_PLUGIN, with_unknown).status().ToString(),
              HasSubstr("attribute 'slope'"));
  TestModel crossed = ClampedAffine(Clamp(2, 1), {3});
  EXPECT_THAT(LoadWith(ONNXD_EXAMPLE_PLUGIN, crossed).status().ToString(),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("low must not be above high")));
}

TEST(Plugin, IsLoadedOnce) {
  EXPECT_EQ(Loaded(ONNXD_EXAMPLE_PLUGIN), Loaded(ONNXD_EXAMPLE_PLUGIN));
  const std::filesystem::path copy = testing::TempDir() + "another_clamped_affine.so";
  std::filesystem::copy_file(ONNXD_EXAMPLE_PLUGIN, copy,
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(LoadPlugin(copy).status().ToString(),
              HasSubstr("com.example::ClampedAffine version 1 is there already"));
}

TEST(Plugin, OfTheInterfacesFirstVersionWorks) {
  const auto plugin = Loaded(ONNXD_FAULTY_PLUGIN "7.so");
  EXPECT_NE(plugin->operators, nullptr);
  EXPECT_EQ(plugin->provider, nullptr);
}

// What onnxd says of an operator of onnxruntime-extensions that is not there: that a plug-in may
// have it.
TEST(Plugin, MayBringOperatorsThatOnnxruntimeHasAndOnnxdHasNot) {
  Loaded(ONNXD_FAULTY_PLUGIN "8.so");
  TestModel model;
  model.Input("x", DataType::kFloat, {3});
  model.Node("GaussianBlur", {"x"}, {"y"}, {}, "ai.onnx.contrib");
  model.Output("y");
  const auto session = LoadWith(ONNXD_FAULTY_PLUGIN "8.so", model);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const auto outputs = (*session)->Run(std::vector<Value>{Floats({3}, {1, 2, 3})}, {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[0].tensor().elements<float>()[2], 3);
  EXPECT_THAT(LoadPlugin(ONNXD_FAULTY_PLUGIN "9.so").status().ToString(),
              HasSubstr("ai.onnx.contrib::NegPos version 1 is there already"));
}

struct FaultyLibrary {
  const char* path;
  const char* message;
};

class FaultyLibraries : public testing::TestWithParam<FaultyLibrary> {};

TEST_P(FaultyLibraries, AreRefusedByName) {
  EXPECT_THAT(LoadPlugin(GetParam().path).status().ToString(),
              AllOf(HasSubstr(GetParam().path), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Plugin, FaultyLibraries,
    testing::Values(FaultyLibrary{ONNXD_FAULTY_PLUGIN "1.so", "threw an exception: not today"},
                    FaultyLibrary{ONNXD_FAULTY_PLUGIN "2.so", "does not work with this onnxd"},
                    FaultyLibrary{ONNXD_FAULTY_PLUGIN "3.so", "needs version 99"},
                    FaultyLibrary{ONNXD_FAULTY_PLUGIN "4.so", "domain ai.onnx.ml"},
                    FaultyLibrary{ONNXD_FAULTY_PLUGIN "5.so", "no operators"},
                    FaultyLibrary{ONNXD_FAULTY_PLUGIN "6.so", "infer and compute are required"},
                    FaultyLibrary{ONNXD_FAULTY_PROVIDER "1.so", "its provider lacks"},
                    FaultyLibrary{ONNXD_FAULTY_PROVIDER "2.so", "its device lacks functions"},
                    FaultyLibrary{"/nonexistent/plugin.so", "cannot open shared object file"},
                    FaultyLibrary{"/etc/passwd", "/etc/passwd"}),
    [](const auto& info) { return "Library" + std::to_string(info.index); });

TEST(Plugin, OthersStayWhenOneDoesNotLoad) {
  const auto loaded = LoadPlugins({"/nonexistent/plugin.so", ONNXD_EXAMPLE_PLUGIN});
  EXPECT_EQ(loaded.failures.size(), 1u);
  EXPECT_EQ(loaded.plugins.size(), 1u);
}

struct Misbehaviour {
  const char* op;
  const char* message;
};

class MisbehavingOperators : public testing::TestWithParam<Misbehaviour> {};

// At load or at run, an error that names the plug-in; never a crash.
TEST_P(MisbehavingOperators, AnswerWithAnError) {
  Loaded(ONNXD_FAULTY_PLUGIN "0.so");
  TestModel model;
  model.Input("x", DataType::kFloat, {2});
  model.Node(GetParam().op, {"x"}, {"y"}, {}, "com.example.faulty").Output("y");
  const auto session = LoadWith(ONNXD_FAULTY_PLUGIN "0.so", model);
  Status status = session.status();
  if (session.ok()) status = (*session)->Run(std::vector<Value>{Floats({2}, {1, 2})}, {}).status();
  EXPECT_THAT(status.ToString(), AllOf(HasSubstr(GetParam().message), HasSubstr(GetParam().op)));
}

INSTANTIATE_TEST_SUITE_P(
    Plugin, MisbehavingOperators,
    testing::Values(Misbehaviour{"Throws", "threw an exception: out of luck"},
                    Misbehaviour{"ThrowsInCreate", "create threw an exception"},
                    Misbehaviour{"UnknownStatus", "status 4711"},
                    Misbehaviour{"NegativeDimension", "dimension -5"},
                    Misbehaviour{"UnknownType", "element type 99"},
                    Misbehaviour{"NoSuchOutput", "output 9 of 1"},
                    Misbehaviour{"HugeRank", "rank 1000000"}, Misbehaviour{"HugeOutput", "y"},
                    Misbehaviour{"Undecided", "leaves output 0 open"}),
    [](const auto& info) { return std::string(info.param.op); });

}  // namespace
}  // namespace onnxd
