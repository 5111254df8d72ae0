#include "server/config/model_settings.h"

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
        NumbersKey("duration_buckets_us", &M::duration_buckets_us, 1, int64_t{3600} * 1000000),
    };
    all[0].is_list = true;
    for (const auto& key : BatchingKeys()) all.push_back(key.Within(&M::batching, "batching"));
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

}  // namespace

Status ApplyModelSettings(const std::string& text, const std::string& name,
                          ModelSettings& settings) {
  std::vector<YamlKey> keys;
  for (const auto& key : ModelSettingsKeys()) {
    keys.push_back(
        {key.section, key.key, key.is_list, key.takes_null, [&](const std::string& value) {
           settings.batch_size_given |= key.key == "max_batch_size";
           return key.set(settings, value);
         }});
  }
  // Not of ModelSettingsKeys: a change of them loads nothing.
  AddKeys("shadow", ShadowKeys(), settings.rollout.shadow, keys);
  AddKeys("rollback", RollbackKeys(), settings.rollout.rollback, keys);
  const auto section = [&settings](std::string name, auto add) {
    return YamlSection{std::move(name), [&settings, add](const auto& key, const auto& value) {
                         return add(key, value, settings.rollout);
                       }};
  };
  ONNXD_RETURN_IF_ERROR(
      ApplyYaml(text, name, keys, {section("labels", AddLabel), section("split", AddShare)}));
  ONNXD_RETURN_IF_ERROR(CheckRollout(settings.rollout).WithContext(name));
  return CheckSettings(settings.batching).WithContext(name);
}

}  // namespace onnxd
