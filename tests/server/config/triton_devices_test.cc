#include "server/config/triton_devices.h"

#include <gtest/gtest.h>

#include "server/config/triton_config.h"

namespace onnxd {
namespace {

Result<ModelSettings> Read(const std::string& text) {
  ModelSettings settings;
  const Status read = ApplyTritonConfig(text, "config.pbtxt", "m", settings);
  if (!read.ok()) return read;
  return settings;
}

std::string ProvidersOf(const std::string& text) {
  const auto settings = Read(text);
  return settings.ok() ? settings->providers : settings.status().ToString();
}

std::string IgnoredOf(const std::string& text) {
  const auto settings = Read(text);
  return settings.ok() ? settings->ignored : settings.status().ToString();
}

std::string Accelerator(const std::string& name, const std::string& parameters = "") {
  return "optimization { execution_accelerators { gpu_execution_accelerator: [ { name: \"" + name +
         "\" " + parameters + " } ] } }";
}

std::string Parameter(const std::string& key, const std::string& value) {
  return "parameters { key: \"" + key + "\" value: \"" + value + "\" }";
}

std::string BackendParameter(const std::string& key, const std::string& value) {
  return "parameters { key: \"" + key + "\" value: { string_value: \"" + value + "\" } }";
}

TEST(TritonDevices, AnInstanceGroupsKindChoosesProviders) {
  EXPECT_EQ(ProvidersOf(""), "");
  EXPECT_EQ(ProvidersOf("instance_group { kind: KIND_AUTO }"), "");
  EXPECT_EQ(ProvidersOf("instance_group { kind: KIND_MODEL }"), "");
  EXPECT_EQ(ProvidersOf("instance_group { kind: KIND_CPU }"), "cpu");
  EXPECT_EQ(ProvidersOf("instance_group { kind: KIND_GPU }"), "fused,cuda,cpu");
  EXPECT_EQ(ProvidersOf("instance_group { gpus: 0 }"), "fused,cuda,cpu");
  EXPECT_EQ(ProvidersOf("instance_group { kind: KIND_GPU passive: true }"), "");
}

TEST(TritonDevices, OneDeviceOfAGroupIsTaken) {
  const std::string text = "instance_group { kind: KIND_GPU gpus: [ 3, 2 ] }";
  EXPECT_EQ(Read(text)->provider_options.device_id, 2);
  EXPECT_EQ(IgnoredOf(text), "instance_group.gpus but the first");
  EXPECT_EQ(IgnoredOf("instance_group { kind: KIND_GPU gpus: 2 }"), "");
  EXPECT_EQ(
      IgnoredOf("instance_group { gpus: -1 }"),
      "INVALID_ARGUMENT: config.pbtxt: instance_group.gpus: '-1' is not a whole number from 0 "
      "to 1023");
}

TEST(TritonDevices, GroupsOfBothKindsRunOnTheDevice) {
  const std::string text = "instance_group [ { kind: KIND_CPU }, { kind: KIND_GPU } ]";
  EXPECT_EQ(ProvidersOf(text), "fused,cuda,cpu");
  EXPECT_EQ(IgnoredOf(text), "instance_group of KIND_CPU beside one of KIND_GPU");
}

TEST(TritonDevices, AcceleratorsAreProviders) {
  EXPECT_EQ(ProvidersOf(Accelerator("tensorrt")), "fused,cuda,cpu");
  EXPECT_EQ(ProvidersOf(Accelerator("cuda")), "cuda,cpu");
  EXPECT_EQ(ProvidersOf("instance_group { kind: KIND_GPU } " + Accelerator("cuda")), "cuda,cpu");
  EXPECT_EQ(ProvidersOf(Accelerator("auto_mixed_precision")), "");
  EXPECT_EQ(IgnoredOf(Accelerator("auto_mixed_precision")),
            "optimization.execution_accelerators.gpu_execution_accelerator 'auto_mixed_precision'");
}

TEST(TritonDevices, AnAcceleratorOfDevicesIsNothingToTheCpu) {
  const std::string text = "instance_group { kind: KIND_CPU } " +
                           Accelerator("tensorrt", Parameter("precision_mode", "FP16"));
  EXPECT_EQ(ProvidersOf(text), "cpu");
  EXPECT_EQ(Read(text)->precision, "");
  EXPECT_EQ(IgnoredOf(text),
            "optimization.execution_accelerators.gpu_execution_accelerator 'tensorrt'");
}

TEST(TritonDevices, TensorRtSaysPrecisionAndWorkspace) {
  const auto settings =
      Read(Accelerator("tensorrt", Parameter("precision_mode", "FP16") +
                                       Parameter("max_workspace_size_bytes", "1073741824") +
                                       Parameter("trt_engine_cache_enable", "true")));
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->precision, "fp16");
  EXPECT_EQ(settings->provider_options.max_workspace_size, 1073741824);
  EXPECT_EQ(settings->ignored, "tensorrt trt_engine_cache_enable");
}

TEST(TritonDevices, BytesAreLeftToTheModelsQuantization) {
  const std::string text = Accelerator("tensorrt", Parameter("precision_mode", "INT8"));
  EXPECT_EQ(Read(text)->precision, "");
  EXPECT_EQ(IgnoredOf(text), "tensorrt precision_mode INT8");
}

TEST(TritonDevices, TheBackendsParametersAreRead) {
  const auto settings = Read(BackendParameter("intra_op_thread_count", "4") +
                             BackendParameter("cudnn_conv_algo_search", "1") +
                             BackendParameter("gpu_mem_limit", "2147483648") +
                             BackendParameter("arena_extend_strategy", "1"));
  ASSERT_TRUE(settings.ok()) << settings.status().ToString();
  EXPECT_EQ(settings->threads, 4);
  EXPECT_EQ(settings->provider_options.cudnn_conv_algo_search, "HEURISTIC");
  EXPECT_EQ(settings->provider_options.gpu_mem_limit, 2147483648);
  EXPECT_EQ(settings->ignored, "parameters arena_extend_strategy");
}

TEST(TritonDevices, AValueThatIsNoneIsRefusedByItsField) {
  EXPECT_EQ(IgnoredOf(Accelerator("tensorrt", Parameter("precision_mode", "FP8"))),
            "INVALID_ARGUMENT: config.pbtxt: "
            "optimization.execution_accelerators.gpu_execution_accelerator 'tensorrt' "
            "precision_mode: 'FP8' is not supported here, FP32 and FP16 are");
  EXPECT_EQ(IgnoredOf(BackendParameter("intra_op_thread_count", "many")),
            "INVALID_ARGUMENT: config.pbtxt: parameters intra_op_thread_count: 'many' is not a "
            "whole number from 0 to 1024");
}

}  // namespace
}  // namespace onnxd
