// Constants in the layout of channels last.
#pragma once

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// [batch, channels, height, width], of which leading axes may be missing, as [batch, height, width,
// channels]. kUnimplemented for elements that have neither 16 nor 32 bits.
Result<Tensor> InChannelsLast(const Tensor& plain);

// Of [..., channels] with so many zeros behind each row of channels. Elements of whole bytes.
Result<Tensor> WithZeroChannels(const Tensor& tensor, int64_t count);

}  // namespace onnxd
