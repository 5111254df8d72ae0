// A plug-in's operator as a Kernel, and as an inference rule.
#pragma once

#include <memory>
#include <string>

#include "runtime/kernel/kernel.h"
#include "runtime/ops/shape_inference.h"
#include "runtime/plugin/onnxd_plugin.h"

namespace onnxd {

// The plug-in is named in every error. Both serve from any thread; `op` stays for the process.
Result<std::unique_ptr<Kernel>> MakePluginKernel(const std::string& plugin, const OnnxdOperator& op,
                                                 const KernelInfo& info);
Status InferWithPlugin(const std::string& plugin, const OnnxdOperator& op,
                       InferenceContext& context);

}  // namespace onnxd
