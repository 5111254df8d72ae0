// Tensors between the host and a device.
#pragma once

#include "runtime/tensor/tensor.h"

namespace onnxd {

// Enqueues the copy; `host` may be let go at once. Errors as Device::Allocate and Stream::CopyIn.
Result<Tensor> CopyToDevice(const Tensor& host, Device& device, Stream& stream);

// Waits for the stream.
Result<Tensor> CopyToHost(const Tensor& on_device, Stream& stream);

// As CopyToDevice, for constants of 64 KB and more: equal ones are on the device once, while
// someone has them. Waits for the stream.
Result<Tensor> ShareOnDevice(const Tensor& host, Device& device, Stream& stream);

}  // namespace onnxd
