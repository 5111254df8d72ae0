#include "tools/serve_setup.h"

#include <malloc.h>
#include <unistd.h>

#include <map>
#include <mutex>

#include "runtime/base/log.h"
#include "runtime/base/machine.h"
#include "runtime/base/split_list.h"
#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/prepared_model_cache.h"
#include "server/config/platform.h"
#include "server/models/loaded_list.h"
#include "server/models/quarantine.h"
#include "server/net/trusted_proxies.h"
#include "tools/collector.h"
#include "tools/command.h"

extern char** environ;

namespace onnxd {
namespace {

std::map<std::string, std::string> Environment() {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text(*entry);
    const size_t cut = text.find('=');
    if (cut != std::string::npos) variables[text.substr(0, cut)] = text.substr(cut + 1);
  }
  return variables;
}

}  // namespace

Result<OptionLayers> ReadLayers(const ServeFlags& flags) {
  OptionLayers layers = {{"default", ServerOptions()}};
  const auto add = [&layers](const char* name) -> ServerOptions& {
    layers.emplace_back(name, ServerOptions(layers.back().second));
    return layers.back().second;
  };
  const auto variables = Environment();
  ONNXD_RETURN_IF_ERROR(ApplyPlatform(variables, add("platform")));
  ServerOptions& of_file = add("file");
  if (!flags.config.empty()) ONNXD_RETURN_IF_ERROR(ApplyConfigFile(flags.config, of_file));
  ONNXD_RETURN_IF_ERROR(ApplyEnvironment(variables, add("environment")));
  ServerOptions& options = add("flag");
  for (const auto& [section_key, value] : flags.overrides) {
    for (const auto& key : OptionKeys()) {
      if (StrCat(key.section, ".", key.key) == section_key) {
        ONNXD_RETURN_IF_ERROR(key.set(options, value).WithContext(section_key));
      }
    }
  }
  ONNXD_RETURN_IF_ERROR(CheckOptions(options));
  ONNXD_RETURN_IF_ERROR(TrustedProxies::Parse(options.server.trusted_proxies).status());
  if (!options.tracing.endpoint.empty()) {
    ONNXD_RETURN_IF_ERROR(CollectorOf(options.tracing).status());
  }
  return layers;
}

Result<ServerOptions> ReadOptions(const ServeFlags& flags) {
  ONNXD_ASSIGN_OR_RETURN(OptionLayers layers, ReadLayers(flags));
  return std::move(layers.back().second);
}

void ConfigureLogging(const ServerOptions& options) {
  const bool text = options.log.format == "text" ||
                    (options.log.format == "auto" && isatty(STDERR_FILENO) == 1);
  ConfigureLog(LogLevels().at(options.log.level), text ? LogFormat::kText : LogFormat::kJson);
}

int ThreadCount(const ServerOptions& options) {
  if (options.runtime.threads > 0) return static_cast<int>(options.runtime.threads);
  return AvailableCores();
}

int ExecutorCount(const ServerOptions& options) {
  if (options.runtime.executors > 0) return static_cast<int>(options.runtime.executors);
  return AvailableProcessors();
}

int64_t MemoryLimit(const ServerOptions& options) {
  if (options.limits.memory_bytes > 0) return options.limits.memory_bytes;
  return AvailableMemory() / 5 * 4;
}

namespace {

std::string KeyOf(const std::string& names, const ProviderDeviceSettings& settings) {
  std::string key = names;
  for (const auto& option : ProviderDeviceKeys()) {
    key += StrCat(" ", option.key, "=", option.get(settings));
  }
  return key;
}

}  // namespace

ModelLoader::FindProviders ProvidersByModel(const ServerOptions& options,
                                            const SessionOptions& session) {
  using Providers = std::vector<std::shared_ptr<const ExecutionProvider>>;
  struct Found {
    std::mutex mutex;
    std::map<std::string, Providers> by_names_and_options;  // guarded by mutex
  };
  const auto found = std::make_shared<Found>();
  found->by_names_and_options[KeyOf(options.runtime.providers, options.provider_options)] =
      session.providers;
  const auto plugins = LoadPlugins(SplitList(options.runtime.plugins, ',')).plugins;
  return [found, session, plugins, listed = options.runtime.providers](
             const ModelSettings& settings) -> Result<Providers> {
    const std::string& names = settings.providers.empty() ? listed : settings.providers;
    const std::string key = KeyOf(names, settings.provider_options);
    std::lock_guard lock(found->mutex);
    const auto known = found->by_names_and_options.find(key);
    if (known != found->by_names_and_options.end()) return known->second;
    ONNXD_ASSIGN_OR_RETURN(
        Providers providers,
        MakeProviders(SplitList(names, ','),
                      ProviderOptionsOf(settings.provider_options, session.cache.get(), plugins)));
    return found->by_names_and_options.emplace(key, std::move(providers)).first->second;
  };
}

Result<SessionOptions> SessionOptionsOf(const ServerOptions& options) {
  SessionOptions session;
  session.optimization = *OptimizationLevelFromName(options.runtime.optimization);
  if (!options.runtime.cache_dir.empty()) {
    auto cache = PreparedModelCache::Open(options.runtime.cache_dir,
                                          static_cast<uint64_t>(options.runtime.cache_bytes));
    if (cache.ok()) {
      session.cache = std::move(*cache);
    } else {
      LogWarning(StrCat(cache.status().ToString(), "; models are prepared anew at each start"));
    }
  }
  LoadedPlugins loaded = LoadPlugins(SplitList(options.runtime.plugins, ','));
  // Models that need the missing operators say so; the others are served.
  for (const Status& failure : loaded.failures) LogError(failure.ToString());
  ONNXD_ASSIGN_OR_RETURN(
      session.providers,
      MakeProviders(SplitList(options.runtime.providers, ','),
                    ProviderOptionsOf(options.provider_options, session.cache.get(), loaded.plugins)));
  session.pool = std::make_shared<ThreadPool>(ThreadCount(options));
  session.max_run_bytes = options.runtime.max_run_bytes;
  session.precision = *PrecisionFromName(options.runtime.precision);
  session.denormals_as_zero = options.runtime.denormals_as_zero;
  return session;
}

// Bodies of requests keep their pages from one to the next: a refused image of 600 KB costs 0.4 ms
// of processor time instead of 0.7. What is free beyond 32 MB goes back to the system.
void TuneAllocator() {
#ifdef __GLIBC__
  mallopt(M_MMAP_THRESHOLD, 4 << 20);
  mallopt(M_TRIM_THRESHOLD, 32 << 20);
#endif
}

namespace {

// What a newer onnxd remembers, and this one cannot read, must not be taken for nothing: a version
// that was rolled back would serve again. Damage is said, and no reason not to serve.
Status LookForNewerState(const std::string& state_dir) {
  for (const Status& read :
       {ReadRollouts(state_dir).status(), ReadQuarantine(state_dir).status(),
        ReadLoadedList(state_dir).status()}) {
    if (read.code() == StatusCode::kFailedPrecondition) return read;
  }
  return Status::Ok();
}

// Of those in the repository, what was loaded by request before the restart.
std::vector<WantedVersion> LoadedBefore(const std::string& state_dir,
                                        std::vector<WantedVersion> wanted) {
  if (state_dir.empty()) return {};
  const auto loaded = ReadLoadedList(state_dir);
  if (!loaded.ok()) {
    LogWarning(loaded.status().ToString());
    return {};
  }
  std::erase_if(wanted, [&](const WantedVersion& v) { return !loaded->contains(v.model); });
  return wanted;
}

}  // namespace

Result<std::vector<WantedVersion>> FirstModels(ServerOptions& options) {
  ServerOptions::Models& models = options.models;
  if (models.repository.empty()) {
    return InvalidArgument("no model: name a MODEL.onnx, a repository folder, or --config");
  }
  RepositoryOptions repository = RepositoryOptionsOf(options);
  const Status newer = LookForNewerState(models.state_dir);
  if (!newer.ok()) return newer.WithContext("models.state_dir");
  auto rollouts = ReadRollouts(models.state_dir);
  if (rollouts.ok()) {
    repository.rollouts = *std::move(rollouts);
  } else {
    LogWarning(rollouts.status().ToString());
  }
  auto quarantine = ReadQuarantine(models.state_dir);
  if (!quarantine.ok()) {
    LogWarning(StrCat(quarantine.status().message(), ": what was rolled back may serve again"));
    quarantine = Quarantine();
  }
  repository.is_withheld = [&](const WantedVersion& v) { return quarantine->Holds(v).has_value(); };
  ONNXD_ASSIGN_OR_RETURN(auto wanted, ScanRepository(repository));
  if (models.control_mode == "explicit") return LoadedBefore(models.state_dir, std::move(wanted));
  if (wanted.empty() && models.control_mode != "poll") {
    return InvalidArgument(StrCat("no models in ", models.repository, ": expected ",
                                  models.repository, "/NAME/VERSION/model.onnx"));
  }
  if (models.control_mode == "auto") {
    models.control_mode = wanted[0].path == models.repository ? "fixed" : "poll";
  }
  return wanted;
}

}  // namespace onnxd
