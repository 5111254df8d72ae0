#include "server/config/provider_settings.h"

#include <algorithm>

#include "runtime/base/split_list.h"

namespace onnxd {
namespace {

using P = ProviderDeviceSettings;

OptionKey<P> PluginKey() {
  OptionKey<P> key = ListKey("plugin", &P::plugin);
  key.set = [](P& settings, const std::string& text) -> Status {
    ONNXD_RETURN_IF_ERROR(ParsePluginOptions(text).status());
    settings.plugin = text;
    return Status::Ok();
  };
  return key;
}

}  // namespace

Result<std::map<std::string, std::string>> ParsePluginOptions(const std::string& text) {
  std::map<std::string, std::string> options;
  for (const std::string& part : SplitList(text, ',')) {
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0) {
      return InvalidArgument(StrCat("'", part.substr(0, 64), "' is not NAME=VALUE"));
    }
    if (!options.emplace(part.substr(0, equals), part.substr(equals + 1)).second) {
      return InvalidArgument(
          StrCat("'", part.substr(0, std::min<size_t>(equals, 64)), "' is given twice"));
    }
  }
  return options;
}

const std::vector<OptionKey<ProviderDeviceSettings>>& ProviderDeviceKeys() {
  static const std::vector<OptionKey<P>> keys = {
      NumberKey("device_id", &P::device_id, 0, 1023),
      NumberKey("gpu_mem_limit", &P::gpu_mem_limit, 0, int64_t{1} << 50, "bytes"),
      NumberKey("stream_priority", &P::stream_priority, -100, 100),
      SwitchKey("use_tf32", &P::use_tf32),
      TextKey("cudnn_conv_algo_search", &P::cudnn_conv_algo_search,
              {"EXHAUSTIVE", "HEURISTIC", "DEFAULT"}),
      NumberKey("max_workspace_size", &P::max_workspace_size, 0, int64_t{1} << 40, "bytes"),
      TextKey("float_layers", &P::float_layers),
      PluginKey(),
  };
  return keys;
}

Result<ProviderDeviceSettings> ParseProviderOptions(const std::string& text) {
  ONNXD_ASSIGN_OR_RETURN(const auto options, ParsePluginOptions(text));
  ProviderDeviceSettings settings;
  for (const auto& [name, value] : options) {
    const auto& keys = ProviderDeviceKeys();
    const auto key = std::find_if(keys.begin(), keys.end(), [&, &wanted = name](const auto& known) {
      return known.key == wanted;
    });
    if (key == keys.end()) {
      settings.plugin += StrCat(settings.plugin.empty() ? "" : ",", name, "=", value);
    } else {
      const Status set = key->set(settings, value);
      if (!set.ok()) return set.WithContext(name);
    }
  }
  return settings;
}

}  // namespace onnxd
