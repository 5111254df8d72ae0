#include "server/config/triton_config.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <map>
#include <set>

#include "proto/model_config.pb.h"
#include "runtime/base/str_cat.h"
#include "server/config/triton_devices.h"

namespace onnxd {
namespace {

namespace pb = google::protobuf;
using inference::ModelConfig;

constexpr int kMostDepth = 32;

class FirstError final : public pb::io::ErrorCollector {
 public:
  void AddError(int line, pb::io::ColumnNumber column, const std::string& message) override {
    if (!text_.empty()) return;
    text_ = line < 0 ? message : StrCat(line + 1, ":", column + 1, ": ", message);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

Result<ModelConfig> Parse(const std::string& text) {
  FirstError error;
  pb::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  parser.SetRecursionLimit(kMostDepth);
  pb::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
  ModelConfig config;
  if (parser.Parse(&stream, &config)) return config;
  return InvalidArgument(error.text());
}

// "FP32", of TYPE_FP32; of a valid one: numbers that are none may stand in a file, too.
std::string TypeName(inference::DataType type) {
  if (type == inference::TYPE_INVALID) return "";
  if (type == inference::TYPE_STRING) return "BYTES";
  return inference::DataType_Name(type).substr(5);
}

int64_t Milliseconds(uint64_t microseconds) {
  constexpr uint64_t kMost = 3'600'000'000;
  return static_cast<int64_t>((std::min(microseconds, kMost) + 999) / 1000);
}

class TritonConfig {
 public:
  TritonConfig(const ModelConfig& config, const std::string& model, ModelSettings& settings)
      : config_(config), model_(model), settings_(settings) {}

  Status Apply() {
    ONNXD_RETURN_IF_ERROR(CheckSupported());
    ApplyVersions();
    ApplyBatching();
    if (config_.has_sequence_batching()) ONNXD_RETURN_IF_ERROR(ApplySequence());
    if (config_.has_ensemble_scheduling()) ONNXD_RETURN_IF_ERROR(ApplyEnsemble());
    for (const auto& input : config_.input()) {
      ONNXD_RETURN_IF_ERROR(Declare(true, input.name(), input.data_type(), input.dims()));
    }
    for (const auto& output : config_.output()) {
      ONNXD_RETURN_IF_ERROR(Declare(false, output.name(), output.data_type(), output.dims()));
    }
    settings_.response_cache.enabled = config_.response_cache().enable();
    std::set<std::string> ignored;
    ONNXD_RETURN_IF_ERROR(ApplyTritonDevices(config_, settings_, ignored));
    NoteIgnored(std::move(ignored));
    return Status::Ok();
  }

 private:
  static Status Unsupported(const std::string& field, const std::string& why = "") {
    return InvalidArgument(
        StrCat("'", field, "' is not supported here", why.empty() ? "" : ": ", why));
  }

  // What would change the answers.
  Status CheckSupported() const {
    if (!config_.name().empty() && config_.name() != model_) {
      return InvalidArgument(
          StrCat("'name' is '", config_.name(), "', but the folder is '", model_, "'"));
    }
    static const std::set<std::string> kPlatforms = {"", "onnxruntime_onnx", "onnx_onnxv1",
                                                     "ensemble"};
    static const std::set<std::string> kBackends = {"", "onnxruntime", "onnxd"};
    if (!kPlatforms.contains(config_.platform())) {
      return Unsupported("platform",
                         StrCat("'", config_.platform(), "', only ONNX models are served"));
    }
    if (!kBackends.contains(config_.backend())) {
      return Unsupported("backend",
                         StrCat("'", config_.backend(), "', only ONNX models are served"));
    }
    const std::string& file = config_.default_model_filename();
    if (!file.empty() && file != "model.onnx") {
      return Unsupported("default_model_filename", StrCat("'", file, "', only model.onnx"));
    }
    if (!config_.cc_model_filenames().empty()) return Unsupported("cc_model_filenames");
    if (config_.model_operations().op_library_filename_size() > 0) {
      return Unsupported("model_operations", "runtime.plugins loads operators");
    }
    if (config_.model_transaction_policy().decoupled()) {
      return Unsupported("model_transaction_policy", "a request has one answer");
    }
    if (config_.model_repository_agents().agents_size() > 0) {
      return Unsupported("model_repository_agents");
    }
    if (config_.batch_input_size() > 0) return Unsupported("batch_input");
    if (config_.batch_output_size() > 0) return Unsupported("batch_output");
    for (const auto& input : config_.input()) {
      const std::string name = StrCat("input '", input.name(), "' ");
      if (input.has_reshape()) return Unsupported(name + "reshape");
      if (input.allow_ragged_batch()) return Unsupported(name + "allow_ragged_batch");
      if (input.is_shape_tensor()) return Unsupported(name + "is_shape_tensor");
    }
    for (const auto& output : config_.output()) {
      const std::string name = StrCat("output '", output.name(), "' ");
      if (output.has_reshape()) return Unsupported(name + "reshape");
      if (output.is_shape_tensor()) return Unsupported(name + "is_shape_tensor");
    }
    return Status::Ok();
  }

  void ApplyVersions() {
    const auto& policy = config_.version_policy();
    if (policy.has_all()) settings_.versions = "all";
    if (policy.has_latest() && policy.latest().num_versions() > 0) {
      settings_.versions = StrCat("latest:", policy.latest().num_versions());
    }
    if (policy.has_specific()) settings_.versions = StrJoin(policy.specific().versions(), ",");
  }

  void ApplyBatching() {
    BatchingOptions& batching = settings_.batching;
    // Of a file that says nothing of inputs, Triton finds out, and so do we.
    if (config_.max_batch_size() > 0) {
      batching.max_batch_size = std::min(config_.max_batch_size(), 65536);
    } else if (config_.input_size() > 0) {
      batching.max_batch_size = 1;
    }
    if (!config_.has_dynamic_batching()) return;
    const auto& dynamic = config_.dynamic_batching();
    const auto& preferred = dynamic.preferred_batch_size();
    std::set<int64_t> sizes(preferred.begin(), preferred.end());
    batching.preferred_batch_size.assign(sizes.begin(), sizes.end());
    if (dynamic.max_queue_delay_microseconds() > 0) {
      batching.max_queue_delay_us = static_cast<int64_t>(
          std::min<uint64_t>(dynamic.max_queue_delay_microseconds(), 10'000'000));
    }
    batching.priority_levels =
        static_cast<int64_t>(std::min<uint64_t>(dynamic.priority_levels(), 1000));
    if (dynamic.default_priority_level() > 0) {
      batching.default_priority_level =
          static_cast<int64_t>(std::min<uint64_t>(dynamic.default_priority_level(), 1000));
    }
    if (!dynamic.has_default_queue_policy()) return;
    const auto& policy = dynamic.default_queue_policy();
    batching.timeout_action =
        policy.timeout_action() == inference::ModelQueuePolicy::DELAY ? "delay" : "reject";
    batching.default_timeout_ms = Milliseconds(policy.default_timeout_microseconds());
    batching.allow_timeout_override = policy.allow_timeout_override();
    batching.queue_requests = policy.max_queue_size();
  }

  Status ApplySequence() {
    const auto& from = config_.sequence_batching();
    SequenceSettings& sequence = settings_.sequence;
    sequence.enabled = true;
    sequence.idle_timeout_ms = from.max_sequence_idle_microseconds() == 0
                                   ? 1000  // Triton's
                                   : Milliseconds(from.max_sequence_idle_microseconds());
    if (from.iterative_sequence()) return Unsupported("iterative_sequence");
    for (const auto& input : from.control_input()) {
      for (const auto& control : input.control()) {
        ONNXD_RETURN_IF_ERROR(ApplyControl(input.name(), control));
      }
    }
    for (const auto& state : from.state()) {
      SequenceState& to = sequence.states.emplace_back();
      to.input = state.input_name();
      to.output = state.output_name();
      const auto& initial = state.initial_state();
      for (const auto& begin : initial) {
        if (begin.has_data_file()) return Unsupported("initial_state.data_file");
      }
      const auto& dims = initial.empty() ? state.dims() : initial[0].dims();
      const bool whole = std::all_of(dims.begin(), dims.end(), [](int64_t d) { return d >= 0; });
      if (!whole || dims.empty()) continue;
      if (config_.max_batch_size() > 0) to.shape.push_back(1);
      to.shape.insert(to.shape.end(), dims.begin(), dims.end());
    }
    return Status::Ok();
  }

  Status ApplyControl(const std::string& name,
                      const inference::ModelSequenceBatching::Control& control) {
    using Control = inference::ModelSequenceBatching::Control;
    const auto differs = [](const auto& values) {
      return !values.empty() && (values.size() != 2 || values[0] != 0 || values[1] != 1);
    };
    if (differs(control.int32_false_true()) || differs(control.fp32_false_true()) ||
        differs(control.bool_false_true())) {
      return Unsupported(StrCat("control_input '", name, "'"), "false is 0 and true is 1");
    }
    SequenceSettings& sequence = settings_.sequence;
    std::string& input = control.kind() == Control::CONTROL_SEQUENCE_START   ? sequence.start_input
                         : control.kind() == Control::CONTROL_SEQUENCE_END   ? sequence.end_input
                         : control.kind() == Control::CONTROL_SEQUENCE_READY ? sequence.ready_input
                                                                             : sequence.id_input;
    input = name;
    return Status::Ok();
  }

  Status ApplyEnsemble() {
    for (const auto& step : config_.ensemble_scheduling().step()) {
      if (!step.model_namespace().empty()) return Unsupported("model_namespace");
      const auto& in = step.input_map();
      const auto& out = step.output_map();
      settings_.ensemble.steps.push_back(
          {step.model_name(),
           step.model_version() > 0 ? StrCat(step.model_version()) : "",
           {in.begin(), in.end()},
           {out.begin(), out.end()}});
    }
    for (const auto& output : config_.output()) {
      settings_.ensemble.outputs.push_back(output.name());
    }
    return Status::Ok();
  }

  Status Declare(bool is_input, const std::string& name, inference::DataType type,
                 const pb::RepeatedField<int64_t>& dims) {
    if (name.empty()) return InvalidArgument("an input or output has no name");
    if (!inference::DataType_IsValid(type)) {
      return InvalidArgument(
          StrCat("'", name, "' has data_type ", static_cast<int>(type), ", which is none"));
    }
    DeclaredTensor declared{is_input, name, TypeName(type), {}};
    if (config_.max_batch_size() > 0) declared.dims.push_back(-1);
    declared.dims.insert(declared.dims.end(), dims.begin(), dims.end());
    settings_.declared.push_back(std::move(declared));
    return Status::Ok();
  }

  // The fields that were set, but for those that were applied; besides what is in `ignored`.
  void NoteIgnored(std::set<std::string> ignored) {
    static const std::set<std::string> kApplied = {"name",
                                                   "platform",
                                                   "backend",
                                                   "version_policy",
                                                   "max_batch_size",
                                                   "input",
                                                   "output",
                                                   "dynamic_batching",
                                                   "sequence_batching",
                                                   "ensemble_scheduling",
                                                   "response_cache",
                                                   "instance_group",
                                                   "optimization",
                                                   "parameters",
                                                   "default_model_filename",
                                                   "model_transaction_policy"};
    std::vector<const pb::FieldDescriptor*> fields;
    ModelConfig::GetReflection()->ListFields(config_, &fields);
    for (const auto* field : fields) {
      const std::string name(field->name());
      if (!kApplied.contains(name)) ignored.insert(name);
    }
    const auto& dynamic = config_.dynamic_batching();
    if (dynamic.preserve_ordering()) ignored.insert("dynamic_batching.preserve_ordering");
    if (!dynamic.priority_queue_policy().empty()) {
      ignored.insert("dynamic_batching.priority_queue_policy");
    }
    const auto& sequence = config_.sequence_batching();
    if (sequence.has_direct()) ignored.insert("sequence_batching.direct");
    if (sequence.has_oldest()) ignored.insert("sequence_batching.oldest");
    for (const auto& input : config_.input()) {
      if (input.format() != inference::ModelInput::FORMAT_NONE) ignored.insert("input.format");
      if (input.optional()) ignored.insert("input.optional");
    }
    for (const auto& output : config_.output()) {
      if (!output.label_filename().empty()) ignored.insert("output.label_filename");
    }
    settings_.ignored = StrJoin(ignored, ", ");
  }

  const ModelConfig& config_;
  const std::string& model_;
  ModelSettings& settings_;
};

}  // namespace

Status ApplyTritonConfig(const std::string& text, const std::string& name, const std::string& model,
                         ModelSettings& settings) {
  const auto config = Parse(text);
  if (!config.ok()) return InvalidArgument(StrCat(name, ":", config.status().message()));
  ONNXD_RETURN_IF_ERROR(TritonConfig(*config, model, settings).Apply().WithContext(name));
  return CheckSettings(settings).WithContext(name);
}

Status ApplyTritonConfigJson(const std::string& json, const std::string& model,
                             ModelSettings& settings) {
  ModelConfig config;
  const auto read = pb::util::JsonStringToMessage(json, &config);
  if (!read.ok()) return InvalidArgument(StrCat("config: ", std::string(read.message())));
  ONNXD_RETURN_IF_ERROR(TritonConfig(config, model, settings).Apply().WithContext("config"));
  return CheckSettings(settings).WithContext("config");
}

}  // namespace onnxd
