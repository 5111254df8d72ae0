// Plug-ins: shared libraries with operators of their own domain (onnxd_plugin.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// Opens the library, registers its operators with the checker and the inference, and returns the
// provider that computes them, under the plug-in's name. The library stays open for the life of the
// process. Errors name the file and what is wrong with it: kNotFound, kInvalidArgument.
Result<std::shared_ptr<const ExecutionProvider>> LoadPlugin(const std::string& path);

// Loads every plug-in of `paths` and puts their providers before the others. Those that do not load
// are left out; returns why, one entry each.
std::vector<Status> AddPlugins(const std::vector<std::string>& paths,
                               std::vector<std::shared_ptr<const ExecutionProvider>>& providers);

}  // namespace onnxd
