// Execution providers from shared libraries: what they compute where, and what their failures do.
#include "runtime/plugin/plugin_provider.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/plugin/plugin.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Providers = std::vector<std::shared_ptr<const ExecutionProvider>>;

Result<Providers> ProvidersWith(const char* path, const std::string& name, PluginOptions given) {
  auto plugin = LoadPlugin(path);
  if (!plugin.ok()) return plugin.status();
  ProviderOptions options;
  options.plugins = {*plugin};
  options.plugin_options = std::move(given);
  return MakeProviders({name, "cpu"}, options);
}

Result<Providers> Offload(PluginOptions options = {}) {
  return ProvidersWith(ONNXD_OFFLOAD_PLUGIN, "offload", std::move(options));
}

// z = Neg(Relu(x times w)), of which the example does not know Neg.
TestModel Layer() {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("batch"), 2});
  model.Constant("w", Floats({2, 2}, {1, 2, 3, 4}));
  model.Node("MatMul", {"x", "w"}, {"product"});
  model.Node("Relu", {"product"}, {"y"});
  model.Node("Neg", {"y"}, {"z"});
  model.Output("z");
  return model;
}

Result<std::unique_ptr<InferenceSession>> Load(TestModel model,
                                               const Result<Providers>& providers) {
  if (!providers.ok()) return providers.status();
  SessionOptions options = DefaultSession(OptimizationLevel::kDisable);
  options.providers = *providers;
  return InferenceSession::FromModel(model.model(), options);
}

std::vector<float> RunWith(const InferenceSession& session, const Tensor& x) {
  const auto outputs = session.Run(std::vector<Value>{x}, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  if (!outputs.ok()) return {};
  const auto elements = (*outputs)[0].tensor().elements<float>();
  return {elements.begin(), elements.end()};
}

// Its addresses are no memory of the host's: whatever followed one would crash.
TEST(PluginProvider, ComputesInItsOwnMemory) {
  const auto session = Load(Layer(), Offload());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const auto& nodes = (*session)->info().nodes_by_provider;
  EXPECT_GE(nodes.at("offload"), 2);
  EXPECT_EQ(RunWith(**session, Floats({1, 2}, {1, 1})), (std::vector<float>{-4, -6}));
  EXPECT_EQ(RunWith(**session, Floats({2, 2}, {1, 0, -1, 0})), (std::vector<float>{-1, -2, 0, 0}));
  EXPECT_EQ(RunWith(**session, Floats({1, 2}, {2, 0})), (std::vector<float>{-2, -4}));
}

TEST(PluginProvider, NodesThatItDeclinesGoToTheNext) {
  TestModel model;
  model.Input("a", DataType::kFloat, {2, 2, 2}).Input("b", DataType::kDouble, {2});
  model.Node("MatMul", {"a", "a"}, {"y"}).Node("Relu", {"b"}, {"z"}).Output("y").Output("z");
  const auto session = Load(std::move(model), Offload());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_FALSE((*session)->info().nodes_by_provider.contains("offload"));
}

TEST(PluginProvider, IsOpenedOnceForEachSetOfOptions) {
  const auto first = Offload(), again = Offload(), other = Offload({{"limit_bytes", "100000"}});
  ASSERT_TRUE(first.ok() && again.ok() && other.ok());
  EXPECT_EQ((*first)[0], (*again)[0]);
  EXPECT_NE((*first)[0], (*other)[0]);
  EXPECT_THAT(Offload({{"limit_bytes", "much"}}).status().ToString(),
              AllOf(HasSubstr("offload"), HasSubstr("limit_bytes is not a number")));
}

TEST(PluginProvider, ItsMemoryHasTheLimitOfItsOptions) {
  const auto session = Load(Layer(), Offload({{"limit_bytes", "100"}}));
  EXPECT_EQ(session.status().code(), StatusCode::kResourceExhausted) << session.status().ToString();
}

TEST(PluginProvider, ANameThatNobodyHasListsThosePresent) {
  EXPECT_THAT(ProvidersWith(ONNXD_OFFLOAD_PLUGIN, "npu", {}).status().ToString(),
              HasSubstr("unknown provider 'npu'; here are: cpu, cuda, fused, opencl, offload"));
}

TEST(PluginProvider, ItsDeviceIsAmongTheUsedOnes) {
  const auto session = Load(Layer(), Offload({{"limit_bytes", "200000"}}));
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  bool used = false;
  for (const auto& device : UsedDevices()) {
    used = used || (device->name() == "offload:0" && device->statistics().used_bytes > 0);
  }
  EXPECT_TRUE(used);
}

Result<Providers> Faulty(const std::string& fault) {
  return ProvidersWith(ONNXD_FAULTY_PROVIDER "0.so", "faulty", {{"fault", fault}});
}

struct Fault {
  const char* name;
  const char* message;
};

class FaultyProviders : public testing::TestWithParam<Fault> {};

// When opened, at load or at run, an error that names the plug-in; never a crash.
TEST_P(FaultyProviders, AnswerWithAnError) {
  const auto session = Load(Layer(), Faulty(GetParam().name));
  Status status = session.status();
  if (session.ok()) {
    status = (*session)->Run(std::vector<Value>{Floats({1, 2}, {1, 1})}, {}).status();
  }
  EXPECT_THAT(status.ToString(),
              AllOf(HasSubstr("faulty_provider"), HasSubstr(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    PluginProvider, FaultyProviders,
    testing::Values(Fault{"open", "threw an exception: no such hardware"},
                    Fault{"create", "create threw an exception: out of luck"},
                    Fault{"make_stream", "make_stream threw an exception"},
                    Fault{"allocate", "allocate"}, Fault{"no_address", "an address that is not"},
                    Fault{"unaligned", "an address that is not aligned to 256 bytes"},
                    Fault{"compute", "compute threw an exception: half way"},
                    Fault{"lost", "it fell off the bus"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(PluginProvider, ALostDeviceStaysLost) {
  const auto providers = Faulty("lost");
  ASSERT_TRUE(providers.ok());
  const auto session = Load(Layer(), providers);
  if (session.ok()) {
    const auto outputs = (*session)->Run(std::vector<Value>{Floats({1, 2}, {1, 1})}, {});
    EXPECT_EQ(outputs.status().code(), StatusCode::kUnavailable);
  }
  EXPECT_TRUE((*providers)[0]->device()->lost());
  EXPECT_THAT((*providers)[0]->device()->loss().ToString(), HasSubstr("it fell off the bus"));
}

TEST(PluginProvider, WhatItDeclinesSaysWhy) {
  const auto session = Load(Layer(), Faulty("decline"));
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_FALSE((*session)->info().nodes_by_provider.contains("faulty"));
}

}  // namespace
}  // namespace onnxd
