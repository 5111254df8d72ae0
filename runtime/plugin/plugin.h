// Plug-ins: shared libraries with operators of their own domain, an execution provider, or both
// (onnxd_plugin.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/kernel/execution_provider.h"
#include "runtime/plugin/plugin_provider.h"

namespace onnxd {

// A library that is open for the life of the process. Immutable; any thread.
struct Plugin {
  std::string name;
  std::shared_ptr<const ExecutionProvider> operators;  // computes its own; null: it has none
  const OnnxdExecutionProvider* provider = nullptr;    // null: it has none
};

// Opens the library and registers its operators with the checker and the inference. A library that
// is open already is the same plug-in. Errors name the file and what is wrong with it: kNotFound,
// kInvalidArgument.
Result<std::shared_ptr<const Plugin>> LoadPlugin(const std::string& path);

struct LoadedPlugins {
  std::vector<std::shared_ptr<const Plugin>> plugins;
  std::vector<Status> failures;  // of those that are left out
};
LoadedPlugins LoadPlugins(const std::vector<std::string>& paths);

}  // namespace onnxd
