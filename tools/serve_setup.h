// What `onnxd serve` does before anything runs: options, logging, the engine's settings.
#pragma once

#include <vector>

#include "runtime/base/status.h"
#include "runtime/session/inference_session.h"
#include "server/config/server_options.h"
#include "server/models/model_loader.h"
#include "server/models/model_repository.h"
#include "tools/command.h"

namespace onnxd {

// The options after each source, in rising priority: "default", "file", "environment", "flag".
using OptionLayers = std::vector<std::pair<const char*, ServerOptions>>;

// kInvalidArgument, kNotFound.
Result<OptionLayers> ReadLayers(const ServeFlags& flags);
// The last of these.
Result<ServerOptions> ReadOptions(const ServeFlags& flags);

void ConfigureLogging(const ServerOptions& options);
void TuneAllocator();

int ExecutorCount(const ServerOptions& options);
// limits.memory_bytes, or what it comes to.
int64_t MemoryLimit(const ServerOptions& options);
Result<SessionOptions> SessionOptionsOf(const ServerOptions& options);

// The providers of a model: those that its settings name, on the device that they name, with the
// server's plug-ins before them. Made on the first call with such settings, and kept; `session` has
// those of models that say nothing.
ModelLoader::FindProviders ProvidersByModel(const ServerOptions& options,
                                            const SessionOptions& session);

// What to load at the start. Decides models.control_mode if that is left open.
Result<std::vector<WantedVersion>> FirstModels(ServerOptions& options);

}  // namespace onnxd
