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
  if (name == "PROBIT") return PostTransform::kProbit;
  return InvalidArgument(StrCat("post_transform '", name, "' is unknown"));
}

namespace {

// The inverse of the normal distribution, through Winitzki's approximation of the inverse error
// function, as ONNX's reference computes it.
float Probit(float p) {
  const float x = p * 2 - 1, product = (1 - x) * (1 + x);
  if (product == 0) return 0;
  const float logarithm = std::log(product);
  const float v = 2 / (3.14159265f * 0.147f) + 0.5f * logarithm;
  const float root = std::sqrt(std::sqrt(v * v - logarithm / 0.147f) - v);
  return 1.41421356f * (x < 0 ? -root : root);
}

}  // namespace

void ApplyPostTransform(PostTransform transform, float* scores, int64_t count) {
  if (transform == PostTransform::kNone || count == 0) return;
  if (transform == PostTransform::kLogistic) {
    for (int64_t i = 0; i < count; ++i) scores[i] = 1.0f / (1.0f + std::exp(-scores[i]));
    return;
  }
  if (transform == PostTransform::kProbit) {
    for (int64_t i = 0; i < count; ++i) scores[i] = Probit(scores[i]);
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
