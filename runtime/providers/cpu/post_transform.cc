#include "runtime/providers/cpu/post_transform.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/str_cat.h"

namespace onnxd {

Result<PostTransform> PostTransformOf(const std::string& name) {
  if (name == "NONE" || name.empty()) return PostTransform::kNone;
  if (name == "SOFTMAX") return PostTransform::kSoftmax;
  if (name == "LOGISTIC") return PostTransform::kLogistic;
  if (name == "SOFTMAX_ZERO") return PostTransform::kSoftmaxZero;
  return Unimplemented(StrCat("post_transform '", name, "' is not supported"));
}

void ApplyPostTransform(PostTransform transform, float* scores, int64_t count) {
  if (transform == PostTransform::kNone || count == 0) return;
  if (transform == PostTransform::kLogistic) {
    for (int64_t i = 0; i < count; ++i) scores[i] = 1.0f / (1.0f + std::exp(-scores[i]));
    return;
  }
  // SOFTMAX_ZERO leaves scores that are exactly 0 at 0.
  const bool keep_zero = transform == PostTransform::kSoftmaxZero;
  const float largest = *std::max_element(scores, scores + count);
  float total = 0;
  for (int64_t i = 0; i < count; ++i) {
    if (keep_zero && scores[i] == 0.0f) continue;
    scores[i] = std::exp(scores[i] - largest);
    total += scores[i];
  }
  for (int64_t i = 0; i < count; ++i) scores[i] /= total;
}

}  // namespace onnxd
