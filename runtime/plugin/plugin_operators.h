// The operators of a plug-in: known to the checker and the inference, and a provider for them.
#pragma once

#include <memory>

#include "runtime/kernel/execution_provider.h"
#include "runtime/plugin/onnxd_plugin.h"

namespace onnxd {

// For the life of the process, as `plugin`. The provider has the plug-in's name. kInvalidArgument
// says what is wrong with a description, or which operator is there already.
Result<std::shared_ptr<const ExecutionProvider>> RegisterPluginOperators(const OnnxdPlugin& plugin);

}  // namespace onnxd
