#include "tools/command.h"

#include <cstdio>
#include <mutex>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/prepared_model_cache.h"
#include "server/config/provider_settings.h"

namespace onnxd {
namespace {

constexpr uint64_t kCommandCacheBytes = uint64_t{64} << 30;

}  // namespace

const std::map<std::string, LogLevel>& LogLevels() {
  static const std::map<std::string, LogLevel> levels = {{"debug", LogLevel::kDebug},
                                                         {"info", LogLevel::kInfo},
                                                         {"warning", LogLevel::kWarning},
                                                         {"error", LogLevel::kError},
                                                         {"off", LogLevel::kOff}};
  return levels;
}

std::shared_ptr<ProgramCache> ProgramCacheIn(const PreparedModelCache& cache) {
  static std::mutex mutex;
  static auto* const caches =
      new std::map<std::shared_ptr<PrivateFolder>, std::shared_ptr<ProgramCache>>();
  std::lock_guard lock(mutex);
  auto& found = (*caches)[cache.folder()];
  if (found == nullptr) found = std::make_shared<ProgramCache>(cache.folder());
  return found;
}

ProviderOptions ProviderOptionsOf(const ProviderDeviceSettings& settings,
                                  const PreparedModelCache* cache,
                                  std::vector<std::shared_ptr<const Plugin>> plugins) {
  ProviderOptions options;
  options.device_id = static_cast<int>(settings.device_id);
  options.gpu_mem_limit = settings.gpu_mem_limit;
  options.stream_priority = static_cast<int>(settings.stream_priority);
  options.use_tf32 = settings.use_tf32;
  options.searches_tactics = settings.cudnn_conv_algo_search == "EXHAUSTIVE";
  options.max_workspace_size = settings.max_workspace_size;
  for (const std::string& layer : SplitList(settings.float_layers, ';')) {
    options.float_layers.insert(layer);
  }
  if (cache != nullptr) options.program_cache = ProgramCacheIn(*cache);
  options.plugins = std::move(plugins);
  options.plugin_options = *ParsePluginOptions(settings.plugin);
  return options;
}

Result<SessionOptions> SessionFlags::ToOptions() const {
  SessionOptions options;
  options.optimization = *OptimizationLevelFromName(optimization);
  if (!cache.empty()) {
    ONNXD_ASSIGN_OR_RETURN(options.cache, PreparedModelCache::Open(cache, kCommandCacheBytes));
  }
  LoadedPlugins loaded = LoadPlugins(SplitList(plugins, ','));
  if (!loaded.failures.empty()) return loaded.failures[0];
  auto settings = ParseProviderOptions(provider_options);
  if (!settings.ok()) return settings.status().WithContext("--provider-options");
  ONNXD_ASSIGN_OR_RETURN(
      options.providers,
      MakeProviders(SplitList(providers, ','),
                    ProviderOptionsOf(*settings, options.cache.get(), loaded.plugins)));
  options.pool = std::make_shared<ThreadPool>(threads);
  options.precision = *PrecisionFromName(precision);
  options.denormals_as_zero = denormals_as_zero;
  return options;
}

int Fail(const Status& status) {
  std::fprintf(stderr, "onnxd: %s\n", EscapeControl(status.ToString()).c_str());
  return kExitFailure;
}

}  // namespace onnxd
