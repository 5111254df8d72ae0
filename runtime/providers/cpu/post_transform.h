// The post_transform attribute of ai.onnx.ml classifiers and regressors.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/status.h"

namespace onnxd {

enum class PostTransform { kNone, kSoftmax, kLogistic, kSoftmaxZero, kProbit };

// kInvalidArgument for a name that ai.onnx.ml does not have.
Result<PostTransform> PostTransformOf(const std::string& name);

// In place over the scores of one row.
void ApplyPostTransform(PostTransform transform, float* scores, int64_t count);

}  // namespace onnxd
