// The provider that computes neighbouring operators in one kernel of a GPU.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "runtime/device/gpu_device.h"
#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// "fused". What it does not fuse it computes as MakeGpuProvider does. The device lives as long as
// the provider. Products that make one of the values `float_layers` compute in float whatever the
// session's precision is.
std::shared_ptr<const ExecutionProvider> MakeFusedProvider(std::shared_ptr<GpuDevice> device,
                                                           std::set<std::string> float_layers = {});

}  // namespace onnxd
