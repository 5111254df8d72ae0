#include "server/config/triton_devices.h"

#include <functional>
#include <map>

#include "proto/model_config.pb.h"
#include "server/config/model_settings.h"

namespace onnxd {
namespace {

using Group = inference::ModelInstanceGroup;
using Accelerator = inference::ModelOptimizationPolicy::ExecutionAccelerators::Accelerator;
using Apply = std::function<Status(ModelSettings&, const std::string&)>;

// `text` to the key of this name in `keys`, whose range and words hold.
template <typename Options>
Status SetKey(const std::vector<OptionKey<Options>>& keys, const std::string& name,
              Options& options, const std::string& text) {
  for (const auto& key : keys) {
    if (key.key == name) return key.set(options, text);
  }
  return InvalidArgument(StrCat("no key '", name, "'"));
}

Apply ProviderOption(const std::string& name) {
  return [name](ModelSettings& settings, const std::string& text) {
    return SetKey(ProviderDeviceKeys(), name, settings.provider_options, text);
  };
}

Status SetConvolutionSearch(ModelSettings& settings, const std::string& text) {
  static const std::map<std::string, std::string> kNames = {
      {"0", "EXHAUSTIVE"}, {"1", "HEURISTIC"}, {"2", "DEFAULT"}};
  const auto named = kNames.find(text);
  return ProviderOption("cudnn_conv_algo_search")(settings,
                                                  named == kNames.end() ? text : named->second);
}

Status SetPrecision(ModelSettings& settings, const std::string& text) {
  static const std::map<std::string, std::string> kNames = {{"FP32", "fp32"}, {"FP16", "fp16"}};
  const auto named = kNames.find(text);
  if (named == kNames.end()) {
    return InvalidArgument(
        StrCat("'", text.substr(0, 64), "' is not supported here, FP32 and FP16 are"));
  }
  settings.precision = named->second;
  return Status::Ok();
}

Status SetTf32(ModelSettings& settings, const std::string& text) {
  const std::string word = text == "1" ? "true" : text == "0" ? "false" : text;
  return ProviderOption("use_tf32")(settings, word);
}

// 0 is the backend's choice there, runtime.threads here.
Status SetThreads(ModelSettings& settings, const std::string& text) {
  return SetKey(ModelSettingsKeys(), "threads", settings, text);
}

// An accelerator that has a like here, as providers by priority, and so have these parameters.
struct KnownAccelerator {
  std::string providers;
  std::map<std::string, Apply> parameters;
};

const std::map<std::string, KnownAccelerator>& KnownAccelerators() {
  static const std::map<std::string, Apply> kTensorRt = {
      {"precision_mode", SetPrecision},
      {"max_workspace_size_bytes", ProviderOption("max_workspace_size")}};
  static const std::map<std::string, Apply> kCuda = {
      {"cudnn_conv_algo_search", SetConvolutionSearch},
      {"gpu_mem_limit", ProviderOption("gpu_mem_limit")},
      {"use_tf32", SetTf32}};
  static const std::map<std::string, KnownAccelerator> known = {
      {"tensorrt", {"fused,cuda,cpu", kTensorRt}}, {"cuda", {"cuda,cpu", kCuda}}};
  return known;
}

const std::map<std::string, Apply>& KnownParameters() {
  static const std::map<std::string, Apply> known = {
      {"intra_op_thread_count", SetThreads},
      {"cudnn_conv_algo_search", SetConvolutionSearch},
      {"gpu_mem_limit", ProviderOption("gpu_mem_limit")}};
  return known;
}

// KIND_AUTO with devices means those.
bool OnDevice(const Group& group) {
  return group.kind() == Group::KIND_GPU ||
         (group.kind() == Group::KIND_AUTO && group.gpus_size() > 0);
}

Status ApplyInstanceGroups(const inference::ModelConfig& config, ModelSettings& settings,
                           std::set<std::string>& ignored) {
  bool device = false, cpu = false;
  std::set<int> devices;
  for (const Group& group : config.instance_group()) {
    if (group.passive()) continue;
    device = device || OnDevice(group);
    cpu = cpu || group.kind() == Group::KIND_CPU;
    if (OnDevice(group)) devices.insert(group.gpus().begin(), group.gpus().end());
    if (group.count() > 0) ignored.insert("instance_group.count");
    if (group.has_rate_limiter()) ignored.insert("instance_group.rate_limiter");
    if (group.profile_size() > 0) ignored.insert("instance_group.profile");
  }
  if (device && cpu) ignored.insert("instance_group of KIND_CPU beside one of KIND_GPU");
  if (devices.size() > 1) ignored.insert("instance_group.gpus but the first");
  if (!devices.empty()) {
    const Status set = ProviderOption("device_id")(settings, StrCat(*devices.begin()));
    if (!set.ok()) return set.WithContext("instance_group.gpus");
  }
  if (device) settings.providers = "fused,cuda,cpu";
  if (cpu && !device) settings.providers = "cpu";
  return Status::Ok();
}

Status ApplyAccelerator(const Accelerator& accelerator, ModelSettings& settings,
                        std::set<std::string>& ignored) {
  const std::string field = "optimization.execution_accelerators.gpu_execution_accelerator";
  const auto known = KnownAccelerators().find(accelerator.name());
  if (known == KnownAccelerators().end()) {
    ignored.insert(StrCat(field, " '", accelerator.name().substr(0, 64), "'"));
    return Status::Ok();
  }
  settings.providers = known->second.providers;
  for (const auto& [name, value] : accelerator.parameters()) {
    const auto parameter = known->second.parameters.find(name);
    // Bytes need no precision of their own: a model quantized with QuantizeLinear says where.
    const bool bytes = name == "precision_mode" && value == "INT8";
    if (parameter == known->second.parameters.end() || bytes) {
      ignored.insert(StrCat(accelerator.name(), " ", name.substr(0, 64), bytes ? " INT8" : ""));
      continue;
    }
    const Status set = parameter->second(settings, value);
    if (!set.ok()) return set.WithContext(StrCat(field, " '", accelerator.name(), "' ", name));
  }
  return Status::Ok();
}

// The first that is known here decides, as providers go by priority there.
Status ApplyAccelerators(const inference::ModelConfig& config, ModelSettings& settings,
                         std::set<std::string>& ignored) {
  const auto& optimization = config.optimization();
  const auto& accelerators = optimization.execution_accelerators();
  const bool on_cpu = settings.providers == "cpu";  // as its instance groups say
  bool decided = false;
  for (const Accelerator& accelerator : accelerators.gpu_execution_accelerator()) {
    if (on_cpu || decided) {
      ignored.insert(StrCat("optimization.execution_accelerators.gpu_execution_accelerator '",
                            accelerator.name().substr(0, 64), "'"));
      continue;
    }
    ONNXD_RETURN_IF_ERROR(ApplyAccelerator(accelerator, settings, ignored));
    decided = KnownAccelerators().contains(accelerator.name());
  }
  if (accelerators.cpu_execution_accelerator_size() > 0) {
    ignored.insert("optimization.execution_accelerators.cpu_execution_accelerator");
  }
  if (optimization.has_graph()) ignored.insert("optimization.graph");
  if (optimization.priority() != 0) ignored.insert("optimization.priority");
  if (optimization.has_cuda()) ignored.insert("optimization.cuda");
  if (optimization.has_input_pinned_memory()) ignored.insert("optimization.input_pinned_memory");
  if (optimization.has_output_pinned_memory()) ignored.insert("optimization.output_pinned_memory");
  if (optimization.gather_kernel_buffer_threshold() > 0) {
    ignored.insert("optimization.gather_kernel_buffer_threshold");
  }
  if (optimization.eager_batching()) ignored.insert("optimization.eager_batching");
  return Status::Ok();
}

Status ApplyParameters(const inference::ModelConfig& config, ModelSettings& settings,
                       std::set<std::string>& ignored) {
  for (const auto& [name, parameter] : config.parameters()) {
    const auto known = KnownParameters().find(name);
    if (known == KnownParameters().end()) {
      ignored.insert(StrCat("parameters ", name.substr(0, 64)));
      continue;
    }
    const Status set = known->second(settings, parameter.string_value());
    if (!set.ok()) return set.WithContext(StrCat("parameters ", name));
  }
  return Status::Ok();
}

}  // namespace

Status ApplyTritonDevices(const inference::ModelConfig& config, ModelSettings& settings,
                          std::set<std::string>& ignored) {
  ONNXD_RETURN_IF_ERROR(ApplyInstanceGroups(config, settings, ignored));
  ONNXD_RETURN_IF_ERROR(ApplyAccelerators(config, settings, ignored));
  return ApplyParameters(config, settings, ignored);
}

}  // namespace onnxd
