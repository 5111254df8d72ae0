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

std::shared_ptr<ProgramCache> ProgramCacheIn(const PreparedModelCache& cache) {
  static std::mutex mutex;
  static auto* const caches =
      new std::map<std::shared_ptr<PrivateFolder>, std::shared_ptr<ProgramCache>>();
  std::lock_guard lock(mutex);
  auto& found = (*caches)[cache.folder()];
  if (found == nullptr) found = std::make_shared<ProgramCache>(cache.folder());
  return found;
}

Result<SessionOptions> SessionFlags::ToOptions() const {
  SessionOptions options;
  options.optimization = *OptimizationLevelFromName(optimization);
  ProviderOptions provider_options;
  provider_options.device_id = device_id;
  if (!cache.empty()) {
    ONNXD_ASSIGN_OR_RETURN(options.cache, PreparedModelCache::Open(cache, kCommandCacheBytes));
    provider_options.program_cache = ProgramCacheIn(*options.cache);
  }
  LoadedPlugins loaded = LoadPlugins(SplitList(plugins, ','));
  if (!loaded.failures.empty()) return loaded.failures[0];
  provider_options.plugins = std::move(loaded.plugins);
  ONNXD_ASSIGN_OR_RETURN(provider_options.plugin_options, ParsePluginOptions(plugin_options));
  ONNXD_ASSIGN_OR_RETURN(options.providers,
                         MakeProviders(SplitList(providers, ','), provider_options));
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
