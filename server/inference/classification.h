// The classification extension: an output's largest values as text.
// Source: https://github.com/triton-inference-server/server,
// docs/protocol/extension_classification.md
#pragma once

#include <string>

#include "runtime/base/status.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {

// For each entry of the first dimension of [batch, ...] (a tensor of lower rank is one entry) its
// `classes` largest values, or all where it has fewer, as "value:index", largest first, of equal
// ones the first: BYTES [batch, classes], or [classes] without a batch. kInvalidArgument names
// `output` for strings and for numbers of classes that are not from 1 to 65536.
Result<Tensor> Classify(const Tensor& values, int64_t classes, const std::string& output);

}  // namespace onnxd
