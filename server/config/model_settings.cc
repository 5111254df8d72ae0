#include "server/config/model_settings.h"

#include <charconv>
#include <cmath>

#include "runtime/base/split_list.h"
#include "server/config/yaml_keys.h"

namespace onnxd {

const std::vector<OptionKey<BatchingOptions>>& BatchingKeys() {
  using B = BatchingOptions;
  static const std::vector<OptionKey<B>> keys = {
      TextKey("mode", &B::mode, {"auto", "off"}),
      NumberKey("max_batch_size", &B::max_batch_size, 1, 65536),
      NumbersKey("preferred_batch_size", &B::preferred_batch_size, 1, 65536),
      NumberKey("max_queue_delay_us", &B::max_queue_delay_us, -1, 10'000'000),
      NumberKey("target_p99_ms", &B::target_p99_ms, 0, 3'600'000),
      NumberKey("priority_levels", &B::priority_levels, 0, 1000),
      NumberKey("default_priority_level", &B::default_priority_level, 1, 1000),
      NumberKey("queue_requests", &B::queue_requests, 0, 10'000'000),
      TextKey("timeout_action", &B::timeout_action, {"reject", "delay"}),
      NumberKey("default_timeout_ms", &B::default_timeout_ms, 0, 3'600'000),
      SwitchKey("allow_timeout_override", &B::allow_timeout_override),
  };
  return keys;
}

namespace {

std::vector<OptionKey<ResponseCacheSettings>> ResponseCacheKeys() {
  using C = ResponseCacheSettings;
  return {SwitchKey("enabled", &C::enabled),
          NumberKey("ttl_s", &C::ttl_s, 0, int64_t{365} * 86400)};
}

std::vector<OptionKey<RateLimitSettings>> RateLimitKeys() {
  using R = RateLimitSettings;
  return {NumberKey("requests_per_second", &R::requests_per_second, 0, 1'000'000'000),
          NumberKey("burst", &R::burst, 0, 1'000'000'000),
          NumberKey("key_requests_per_second", &R::key_requests_per_second, 0, 1'000'000'000),
          NumberKey("key_burst", &R::key_burst, 0, 1'000'000'000)};
}

}  // namespace

const std::vector<OptionKey<ModelSettings>>& ModelSettingsKeys() {
  using M = ModelSettings;
  static const std::vector<OptionKey<M>> keys = [] {
    std::vector<OptionKey<M>> all = {
        TextKey("versions", &M::versions),
        TextKey("update_policy", &M::update_policy, {"availability", "unload_first"}),
        SwitchKey("warm_up", &M::warm_up),
        TextKey("warm_up_failure", &M::warm_up_failure, {"publish", "refuse"}),
        SwitchKey("pinned", &M::pinned),
        SwitchKey("required", &M::required),
        NumberKey("executors", &M::executors, 0, 1024),
        NumberKey("threads", &M::threads, 0, 1024),
        ListKey("providers", &M::providers),
        TextKey("precision", &M::precision, {"", "fp32", "fp16", "bf16", "bf16x3"}),
        NumbersKey("duration_buckets_us", &M::duration_buckets_us, 1, int64_t{3600} * 1000000),
    };
    all[0].is_list = true;
    for (const auto& key : ProviderDeviceKeys()) {
      all.push_back(key.Within(&M::provider_options, "provider_options"));
    }
    for (const auto& key : BatchingKeys()) all.push_back(key.Within(&M::batching, "batching"));
    for (const auto& key : SequenceKeys()) all.push_back(key.Within(&M::sequence, "sequence"));
    for (const auto& key : TextSettingsKeys()) all.push_back(key.Within(&M::texts, "texts"));
    for (const auto& key : GenerationSettingsKeys()) {
      all.push_back(key.Within(&M::generation, "generation"));
    }
    for (const auto& key : ResponseCacheKeys()) {
      all.push_back(key.Within(&M::response_cache, "response_cache"));
    }
    for (const auto& key : RateLimitKeys()) {
      all.push_back(key.Within(&M::rate_limit, "rate_limit"));
    }
    return all;
  }();
  return keys;
}

Status CheckSettings(const BatchingOptions& batching) {
  if (batching.priority_levels > 0 && batching.default_priority_level > batching.priority_levels) {
    return InvalidArgument(StrCat("'batching.default_priority_level' ",
                                  batching.default_priority_level, " is over the ",
                                  batching.priority_levels, " of 'batching.priority_levels'"));
  }
  if (!batching.preferred_batch_size.empty() &&
      batching.preferred_batch_size.back() > batching.max_batch_size) {
    return InvalidArgument(StrCat("'batching.preferred_batch_size' ",
                                  batching.preferred_batch_size.back(), " is over the ",
                                  batching.max_batch_size, " of 'batching.max_batch_size'"));
  }
  return Status::Ok();
}

namespace {

template <typename Options>
void AddKeys(const std::string& section, const std::vector<OptionKey<Options>>& from,
             Options& options, std::vector<YamlKey>& keys) {
  for (const auto& key : from) {
    keys.push_back({section, key.key, key.is_list, key.takes_null,
                    [&](const std::string& value) { return key.set(options, value); }});
  }
}

std::string ValueOf(const YamlRecord& record, const std::string& key) {
  const auto found = record.values.find(key);
  return found == record.values.end() ? "" : found->second;
}

std::map<std::string, std::string> MapOf(const YamlRecord& record, const std::string& key) {
  const auto found = record.maps.find(key);
  return found == record.maps.end() ? std::map<std::string, std::string>() : found->second;
}

Result<double> NumberOf(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(number)) {
    return number;
  }
  return InvalidArgument(StrCat("'", text.substr(0, 64), "' is no number"));
}

Status AddStep(const YamlRecord& record, ModelSettings& settings) {
  settings.ensemble.steps.push_back({ValueOf(record, "model"), ValueOf(record, "version"),
                                     MapOf(record, "inputs"), MapOf(record, "outputs")});
  return Status::Ok();
}

Status AddState(const YamlRecord& record, ModelSettings& settings) {
  SequenceState state{ValueOf(record, "input"), ValueOf(record, "output"), {}};
  if (const std::string shape = ValueOf(record, "shape"); !shape.empty()) {
    for (const std::string& part : SplitList(shape, ',')) {
      ONNXD_ASSIGN_OR_RETURN(state.shape.emplace_back(), ParseNumber(part, 0, int64_t{1} << 40));
    }
  }
  settings.sequence.states.push_back(std::move(state));
  return Status::Ok();
}

Status AddPadding(const YamlRecord& record, ModelSettings& settings) {
  PaddedDimension padded;
  padded.dimension = ValueOf(record, "dimension");
  padded.mask = ValueOf(record, "mask");
  ONNXD_ASSIGN_OR_RETURN(padded.sizes,
                         ParseAscending(ValueOf(record, "sizes"), 1, int64_t{1} << 40));
  for (const auto& [input, text] : MapOf(record, "values")) {
    ONNXD_ASSIGN_OR_RETURN(padded.values[input], NumberOf(text));
  }
  if (const std::string tolerance = ValueOf(record, "tolerance"); !tolerance.empty()) {
    ONNXD_ASSIGN_OR_RETURN(padded.tolerance, NumberOf(tolerance));
  }
  settings.padding.push_back(std::move(padded));
  return Status::Ok();
}

std::vector<YamlRecords> RecordsInto(ModelSettings& settings) {
  const auto into = [&settings](auto add) {
    return [&settings, add](const YamlRecord& record) { return add(record, settings); };
  };
  return {
      {"ensemble", "steps", {"model", "version"}, {}, {"inputs", "outputs"}, into(AddStep)},
      {"sequence", "states", {"input", "output"}, {"shape"}, {}, into(AddState)},
      {"", "padding", {"dimension", "mask", "tolerance"}, {"sizes"}, {"values"}, into(AddPadding)},
  };
}

}  // namespace

std::string DescribeRecords(const ModelSettings& settings) {
  std::string declared;
  for (const DeclaredTensor& tensor : settings.declared) {
    declared += StrCat(tensor.is_input, tensor.name, "\n", tensor.data_type, "\n",
                       StrJoin(tensor.dims, ","), "\n");
  }
  return StrCat(Describe(settings.ensemble), "\n", Describe(settings.sequence.states), "\n",
                Describe(settings.padding), "\n", declared, settings.ignored);
}

Status CheckSettings(const ModelSettings& settings) {
  ONNXD_RETURN_IF_ERROR(CheckRollout(settings.rollout));
  ONNXD_RETURN_IF_ERROR(CheckSettings(settings.batching));
  ONNXD_RETURN_IF_ERROR(CheckSequence(settings.sequence));
  ONNXD_RETURN_IF_ERROR(CheckPadding(settings.padding));
  ONNXD_RETURN_IF_ERROR(CheckTexts(settings.texts));
  ONNXD_RETURN_IF_ERROR(CheckGeneration(settings.generation));
  const bool wants_texts = settings.texts.active() && !settings.texts.finds_files();
  const bool generates = settings.generation.active() && !settings.generation.finds_files();
  if (generates && (wants_texts || settings.sequence.enabled || !settings.padding.empty() ||
                    settings.response_cache.enabled)) {
    return InvalidArgument(
        "'generation' goes with none of 'texts', 'sequence', 'padding' and 'response_cache'");
  }
  if (wants_texts && settings.sequence.enabled) {
    return InvalidArgument("'texts' does not go with 'sequence'");
  }
  if (settings.sequence.enabled && (!settings.padding.empty() || settings.response_cache.enabled)) {
    return InvalidArgument("'sequence' goes neither with 'padding' nor with 'response_cache'");
  }
  if (!settings.ensemble.active()) return Status::Ok();
  ONNXD_RETURN_IF_ERROR(CheckEnsemble(settings.ensemble));
  if (settings.sequence.enabled || wants_texts || generates || !settings.padding.empty()) {
    return InvalidArgument(
        "'sequence', 'texts', 'generation' and 'padding' are for an ensemble's models, not for "
        "itself");
  }
  return Status::Ok();
}

Status ApplyModelSettings(const std::string& text, const std::string& name,
                          ModelSettings& settings) {
  YamlForm form;
  for (const auto& key : ModelSettingsKeys()) {
    form.keys.push_back(
        {key.section, key.key, key.is_list, key.takes_null, [&](const std::string& value) {
           settings.batch_size_given |= key.key == "max_batch_size";
           return key.set(settings, value);
         }});
  }
  // Not of ModelSettingsKeys: a change of them loads nothing.
  AddKeys("shadow", ShadowKeys(), settings.rollout.shadow, form.keys);
  AddKeys("rollback", RollbackKeys(), settings.rollout.rollback, form.keys);
  form.keys.push_back({"ensemble", "outputs", true, false, [&settings](const std::string& value) {
                         settings.ensemble.outputs = SplitList(value, ',');
                         return Status::Ok();
                       }});
  const auto section = [&settings](std::string name_of, auto add) {
    return YamlSection{std::move(name_of), [&settings, add](const auto& key, const auto& value) {
                         return add(key, value, settings.rollout);
                       }};
  };
  form.open = {section("labels", AddLabel), section("split", AddShare)};
  form.records = RecordsInto(settings);
  ONNXD_RETURN_IF_ERROR(ApplyYaml(text, name, form));
  return CheckSettings(settings).WithContext(name);
}

}  // namespace onnxd
