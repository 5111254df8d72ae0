// What a config.pbtxt declares of a model, compared with the model.
#pragma once

#include <vector>

#include "runtime/session/inference_session.h"
#include "server/config/model_settings.h"

namespace onnxd {

// kInvalidArgument names the input or output that the model does not have, or has of another type
// or shape, and what it has instead.
Status CheckDeclared(const std::vector<DeclaredTensor>& declared,
                     const std::vector<TensorSignature>& inputs,
                     const std::vector<TensorSignature>& outputs);

}  // namespace onnxd
