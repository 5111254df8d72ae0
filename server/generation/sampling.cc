#include "server/generation/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"

namespace onnxd {
namespace {

using Likely = std::vector<std::pair<float, int64_t>>;

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr size_t kFirstSorted = 256;

int64_t Largest(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

Status CheckRange(const char* name, double value, double low, double high) {
  if (value >= low && value <= high) return Status::Ok();
  return InvalidArgument(StrCat(name, " is ", value, ", expected ", low, " to ", high));
}

// The first `count` become the largest, in order.
void SortLargest(Likely& likely, size_t count) {
  const auto more = [](const auto& a, const auto& b) {
    return a.first > b.first || (a.first == b.first && a.second < b.second);
  };
  if (count < likely.size()) {
    std::nth_element(likely.begin(), likely.begin() + static_cast<std::ptrdiff_t>(count),
                     likely.end(), more);
  }
  std::sort(likely.begin(), likely.begin() + static_cast<std::ptrdiff_t>(count), more);
}

// How many of the largest come to that share of all probabilities; these are in order then.
// `likely`: exponentials.
size_t ReachShare(Likely& likely, double share) {
  double all = 0;
  for (const auto& [weight, token] : likely) all += weight;
  double sum = 0;
  size_t sorted = 0;
  for (size_t count = 0; count < likely.size(); ++count) {
    if (count == sorted) {
      sorted = std::min(likely.size(), std::max(kFirstSorted, sorted * 8));
      SortLargest(likely, sorted);
    }
    sum += likely[count].first;
    if (sum >= share * all) return count + 1;
  }
  return likely.size();
}

}  // namespace

Status CheckSampling(const SamplingParameters& parameters) {
  const SamplingParameters& p = parameters;
  ONNXD_RETURN_IF_ERROR(CheckRange("temperature", p.temperature, 0, 100));
  ONNXD_RETURN_IF_ERROR(CheckRange("top_p", p.top_p, 0, 1));
  ONNXD_RETURN_IF_ERROR(CheckRange("min_p", p.min_p, 0, 1));
  ONNXD_RETURN_IF_ERROR(CheckRange("top_k", static_cast<double>(p.top_k), 0, 1e9));
  ONNXD_RETURN_IF_ERROR(CheckRange("repetition_penalty", p.repetition_penalty, 1e-3, 1e3));
  ONNXD_RETURN_IF_ERROR(CheckRange("presence_penalty", p.presence_penalty, -2, 2));
  ONNXD_RETURN_IF_ERROR(CheckRange("frequency_penalty", p.frequency_penalty, -2, 2));
  for (const auto& [token, bias] : p.logit_bias) {
    ONNXD_RETURN_IF_ERROR(CheckRange("a logit_bias", bias, -100, 100));
  }
  return Status::Ok();
}

Sampler::Sampler(SamplingParameters parameters, std::span<const int64_t> prompt)
    : parameters_(std::move(parameters)),
      random_(parameters_.seed ? *parameters_.seed : std::random_device{}()),
      there_(penalizes_repetition() ? prompt.begin() : prompt.end(), prompt.end()) {}

void Sampler::Penalize(std::span<float> logits) const {
  const auto count = static_cast<int64_t>(logits.size());
  const auto change = [&](int64_t token, const auto& changed) {
    if (token < 0 || token >= count) return;
    float& logit = logits[static_cast<size_t>(token)];
    logit = static_cast<float>(changed(double{logit}));
  };
  if (penalizes_repetition()) {
    const double penalty = parameters_.repetition_penalty;
    for (const int64_t token : there_) {
      change(token, [=](double logit) { return logit > 0 ? logit / penalty : logit * penalty; });
    }
  }
  if (parameters_.presence_penalty != 0 || parameters_.frequency_penalty != 0) {
    for (const auto& [token, times] : written_) {
      const double less =
          parameters_.presence_penalty + parameters_.frequency_penalty * static_cast<double>(times);
      change(token, [=](double logit) { return logit - less; });
    }
  }
  for (const auto& [token, bias] : parameters_.logit_bias) {
    change(token, [more = bias](double logit) { return logit + more; });
  }
}

int64_t Sampler::Next(std::span<float> logits) {
  for (float& logit : logits) logit = std::isnan(logit) ? kNever : logit;
  Penalize(logits);
  const int64_t token = parameters_.temperature == 0 ? Largest(logits) : Choose(logits);
  if (penalizes_repetition()) there_.insert(token);
  ++written_[token];
  return token;
}

int64_t Sampler::Choose(std::span<const float> logits) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  if (!std::isfinite(largest)) return Largest(logits);
  const auto scale = static_cast<float>(1 / std::max(parameters_.temperature, 1e-6));
  weights_.resize(logits.size());
  math::CurrentSimd().exp_sum(logits.data(), weights_.data(), static_cast<int64_t>(logits.size()),
                              largest, scale);
  likely_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    const bool may_come = weights_[i] > 0 && logits[i] > kNever;
    if (may_come) likely_.emplace_back(weights_[i], static_cast<int64_t>(i));
  }
  if (parameters_.top_k > 0 && static_cast<size_t>(parameters_.top_k) < likely_.size()) {
    const auto most = static_cast<size_t>(parameters_.top_k);
    SortLargest(likely_, most);
    likely_.resize(most);
  }
  if (parameters_.top_p < 1) likely_.resize(ReachShare(likely_, parameters_.top_p));
  if (parameters_.min_p > 0) {
    std::erase_if(likely_, [&](const auto& one) { return one.first < parameters_.min_p; });
  }
  double all = 0;
  for (const auto& [weight, token] : likely_) all += weight;
  // 53 bits of a number below 1: the same on every machine, as std's distributions need not be.
  double left = static_cast<double>(random_() >> 11) * 0x1p-53 * all;
  for (const auto& [weight, token] : likely_) {
    left -= weight;
    if (left < 0) return token;
  }
  return likely_.back().second;
}

}  // namespace onnxd
