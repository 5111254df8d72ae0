// The provider that computes operators one by one on a GPU, attention among them.
#pragma once

#include <memory>
#include <set>
#include <string>

#include "runtime/device/gpu_device.h"
#include "runtime/fusion/channels_last.h"
#include "runtime/fusion/quantized_operators.h"
#include "runtime/kernel/execution_provider.h"

namespace onnxd {

// What kernels here compute of bytes; what makes one of `float_layers` stays as it is.
QuantizedForms QuantizedFormsOnDevice(std::set<std::string> float_layers = {});

// Convolutions of half precision, and of floats by TF32, whose images' neighbouring channels matrix
// units read at once.
ChannelsLastRules ChannelsLastOnDevice(const GpuDevice& device);

// `name` as users call it: "cuda" or "opencl". The device lives as long as the provider.
std::shared_ptr<const ExecutionProvider> MakeGpuProvider(std::string name,
                                                         std::shared_ptr<GpuDevice> device);

}  // namespace onnxd
