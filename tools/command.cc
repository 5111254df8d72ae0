#include "tools/command.h"

#include <cstdio>

#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/plugin/plugin.h"
#include "runtime/providers/default_providers.h"
#include "runtime/session/prepared_model_cache.h"

namespace onnxd {
namespace {

constexpr uint64_t kCommandCacheBytes = uint64_t{64} << 30;

}  // namespace

Result<SessionOptions> SessionFlags::ToOptions() const {
  SessionOptions options;
  options.optimization = *OptimizationLevelFromName(optimization);
  ONNXD_ASSIGN_OR_RETURN(options.providers, MakeProviders(SplitList(providers, ',')));
  const auto failures = AddPlugins(SplitList(plugins, ','), options.providers);
  if (!failures.empty()) return failures[0];
  options.pool = std::make_shared<ThreadPool>(threads);
  options.precision = *PrecisionFromName(precision);
  options.denormals_as_zero = denormals_as_zero;
  if (!cache.empty()) {
    ONNXD_ASSIGN_OR_RETURN(options.cache, PreparedModelCache::Open(cache, kCommandCacheBytes));
  }
  return options;
}

int Fail(const Status& status) {
  std::fprintf(stderr, "onnxd: %s\n", EscapeControl(status.ToString()).c_str());
  return kExitFailure;
}

}  // namespace onnxd
