// A plug-in's execution provider.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/kernel/execution_provider.h"
#include "runtime/plugin/onnxd_plugin.h"

namespace onnxd {

// By name, as a plug-in's execution provider understands them.
using PluginOptions = std::map<std::string, std::string>;

// kInvalidArgument when the description lacks something.
Status CheckPluginProvider(const OnnxdExecutionProvider& described);

// Opens it with these options; an error when the plug-in refuses them. `plugin`, its name, is in
// every error; `described` stays for the process.
Result<std::shared_ptr<const ExecutionProvider>> OpenPluginProvider(
    const std::string& plugin, const OnnxdExecutionProvider& described,
    const PluginOptions& options);

}  // namespace onnxd
