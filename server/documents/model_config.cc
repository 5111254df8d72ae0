#include "server/documents/model_config.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"
#include "server/inference/data_type_name.h"
#include "server/inference/json_writer.h"

namespace onnxd {
namespace {

// "TYPE_FP32"; strings are TYPE_STRING.
std::string TypeName(const ValueType& type) {
  if (!type.is_tensor()) return "TYPE_INVALID";
  if (type.element == DataType::kString) return "TYPE_STRING";
  const auto name = ProtocolTypeName(type.element);
  return name.empty() ? "TYPE_INVALID" : StrCat("TYPE_", name);
}

// Whether a first dimension of any size, or 1, is there to be left out.
bool HasBatch(const TensorSignature& signature) {
  if (!signature.type.is_tensor() || !signature.type.shape || signature.type.shape->empty()) {
    return false;
  }
  const Dimension& first = (*signature.type.shape)[0];
  return !first.known() || first.value == 1;
}

void AppendTensors(std::string& out, const std::vector<TensorSignature>& tensors, bool batched) {
  out += '[';
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (i > 0) out += ',';
    out += "{\"name\":";
    AppendJsonString(out, tensors[i].name);
    out += StrCat(",\"data_type\":\"", TypeName(tensors[i].type), "\",\"dims\":[");
    std::vector<int64_t> dims;
    if (tensors[i].type.shape) {
      for (const Dimension& dimension : *tensors[i].type.shape) dims.push_back(dimension.value);
      if (batched) dims.erase(dims.begin());
    }
    out += StrCat(StrJoin(dims, ","), "]}");
  }
  out += ']';
}

// As Triton has them: "latest": {"num_versions": 1}, "all": {}, "specific": {"versions": [..]}.
std::string VersionPolicyJson(const std::string& text) {
  const auto policy = ParseVersionPolicy(text);
  if (!policy.ok()) return "{}";
  if (!policy->specific.empty()) {
    return StrCat("{\"specific\":{\"versions\":[", StrJoin(policy->specific, ","), "]}}");
  }
  if (policy->latest == 0) return "{\"all\":{}}";
  return StrCat("{\"latest\":{\"num_versions\":", policy->latest, "}}");
}

void AppendDynamicBatching(std::string& out, const BatchingOptions& options,
                           const BatchSettings& batching) {
  out += StrCat(",\"dynamic_batching\":{\"preferred_batch_size\":[",
                StrJoin(batching.preferred_batch_size, ","), "]");
  // Without it the wait follows the measurements.
  if (batching.max_queue_delay >= 0) {
    out +=
        StrCat(",\"max_queue_delay_microseconds\":", std::llround(batching.max_queue_delay * 1e6));
  }
  out += StrCat(",\"priority_levels\":", options.priority_levels,
                ",\"default_priority_level\":", options.default_priority_level,
                ",\"default_queue_policy\":{\"timeout_action\":\"",
                options.timeout_action == "delay" ? "DELAY" : "REJECT",
                "\",\"default_timeout_microseconds\":", options.default_timeout_ms * 1000,
                ",\"allow_timeout_override\":", options.allow_timeout_override,
                ",\"max_queue_size\":", options.queue_requests, "}}");
}

void AppendMap(std::string& out, const std::map<std::string, std::string>& map) {
  out += '{';
  for (const auto& [key, value] : map) {
    if (out.back() != '{') out += ',';
    AppendJsonString(out, key);
    out += ':';
    AppendJsonString(out, value);
  }
  out += '}';
}

void AppendEnsemble(std::string& out, const EnsembleSettings& ensemble) {
  out += ",\"ensemble_scheduling\":{\"step\":[";
  for (const EnsembleStep& step : ensemble.steps) {
    if (out.back() == '}') out += ',';
    out += "{\"model_name\":";
    AppendJsonString(out, step.model);
    // Triton's are numbers; a label stands for the one that it means now.
    const bool is_number =
        !step.version.empty() && step.version.find_first_not_of("0123456789") == std::string::npos;
    out += StrCat(",\"model_version\":", is_number ? step.version : "-1", ",\"input_map\":");
    AppendMap(out, step.inputs);
    out += ",\"output_map\":";
    AppendMap(out, step.outputs);
    out += '}';
  }
  out += "]}";
}

void AppendSequence(std::string& out, const SequenceSettings& sequence) {
  out += StrCat(",\"sequence_batching\":{\"max_sequence_idle_microseconds\":",
                sequence.idle_timeout_ms * 1000, ",\"oldest\":{},\"control_input\":[");
  const std::pair<const std::string&, const char*> controls[] = {{sequence.start_input, "START"},
                                                                 {sequence.end_input, "END"},
                                                                 {sequence.ready_input, "READY"},
                                                                 {sequence.id_input, "CORRID"}};
  for (const auto& [input, kind] : controls) {
    if (input.empty()) continue;
    if (out.back() == '}') out += ',';
    out += "{\"name\":";
    AppendJsonString(out, input);
    out += StrCat(",\"control\":[{\"kind\":\"CONTROL_SEQUENCE_", kind, "\"}]}");
  }
  out += "],\"state\":[";
  for (const SequenceState& state : sequence.states) {
    if (out.back() == '}') out += ',';
    out += "{\"input_name\":";
    AppendJsonString(out, state.input);
    out += ",\"output_name\":";
    AppendJsonString(out, state.output);
    out += StrCat(",\"dims\":[", StrJoin(state.shape, ","), "]}");
  }
  out += "]}";
}

}  // namespace

std::string ModelConfigJson(const ModelVersion& version, const BatchSettings& batching) {
  const bool batched = std::all_of(version.inputs.begin(), version.inputs.end(), HasBatch) &&
                       std::all_of(version.outputs.begin(), version.outputs.end(), HasBatch);
  std::string out = "{\"name\":";
  AppendJsonString(out, version.model);
  const ModelSettings& settings = version.settings;
  const char* platform = settings.ensemble.active() ? "ensemble" : "onnx_onnxv1";
  out +=
      StrCat(",\"platform\":\"", platform,
             "\",\"backend\":\"onnxd\",\"version_policy\":", VersionPolicyJson(settings.versions),
             ",\"max_batch_size\":", batched ? batching.max_batch_size : 0, ",\"input\":");
  AppendTensors(out, version.inputs, batched);
  out += ",\"output\":";
  AppendTensors(out, version.outputs, batched);
  // Triton's may have one of these.
  if (settings.ensemble.active()) {
    AppendEnsemble(out, settings.ensemble);
  } else if (settings.sequence.enabled) {
    AppendSequence(out, settings.sequence);
  } else if (batching.max_batch_size > 1) {
    AppendDynamicBatching(out, settings.batching, batching);
  }
  if (settings.response_cache.enabled) out += ",\"response_cache\":{\"enable\":true}";
  if (const std::string why = version.why_alone(); !why.empty()) {
    out += ",\"parameters\":{\"requests_run_alone\":{\"string_value\":";
    AppendJsonString(out, why);
    out += "}}";
  }
  return out + "}";
}

}  // namespace onnxd
