#include "server/service/shadow_traffic.h"

#include <sched.h>

#include <algorithm>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "runtime/base/thread_pool.h"
#include "server/inference/compare_values.h"
#include "server/texts/text_plan.h"

namespace onnxd {
namespace {

constexpr size_t kMostWaiting = 256, kMostBytes = 64 << 20;
// Times a run's time, after one beside requests: those that it disturbs stay beyond the 99th
// percentile.
constexpr int kRest = 249;
constexpr auto kMostTime = std::chrono::seconds(60);  // of one run

size_t BytesOf(const std::vector<Value>& values) {
  size_t bytes = 0;
  for (const Value& value : values) bytes += value.is_tensor() ? value.tensor().bytes() : 1024;
  return bytes;
}

// Where the value stands that has this name; none: SIZE_MAX.
size_t PlaceOf(const std::string& name, const std::vector<TensorSignature>& signature) {
  const auto found = std::find_if(signature.begin(), signature.end(),
                                  [&](const auto& other) { return other.name == name; });
  return found == signature.end() ? SIZE_MAX : static_cast<size_t>(found - signature.begin());
}

Result<std::vector<Value>> InputsOf(const ShadowTraffic::Copy& copy) {
  std::vector<Value> inputs;
  for (const TensorSignature& input : copy.shadow->inputs) {
    const size_t place = PlaceOf(input.name, copy.answering->inputs);
    if (place >= copy.inputs.size()) {
      return InvalidArgument(StrCat("it also needs input '", input.name, "'"));
    }
    inputs.push_back(copy.inputs[place]);
  }
  return inputs;
}

// Of the whole version, texts and all.
Result<std::vector<Value>> Run(const ModelVersion& version, std::vector<Value> inputs,
                               const RunOptions& options) {
  if (version.texts == nullptr) return version.session->Run(inputs, options);
  ONNXD_ASSIGN_OR_RETURN(inputs, TokensOf(*version.texts, inputs, options));
  const Tensor mask = inputs.back().tensor();
  inputs.pop_back();
  ONNXD_ASSIGN_OR_RETURN(auto outputs, version.session->Run(inputs, options));
  ONNXD_RETURN_IF_ERROR(Pool(*version.texts, mask, outputs));
  return outputs;
}

Status CompareOutputs(const ShadowTraffic::Copy& copy, const std::vector<Value>& outputs) {
  for (size_t i = 0; i < copy.outputs.size(); ++i) {
    const std::string& name = copy.answering->outputs[i].name;
    const size_t place = PlaceOf(name, copy.shadow->outputs);
    if (place >= outputs.size()) return InvalidArgument(StrCat("it has no output '", name, "'"));
    ONNXD_RETURN_IF_ERROR(
        CompareValues(outputs[place], copy.outputs[i], copy.tolerance, copy.tolerance)
            .WithContext(StrCat("output '", name, "'")));
  }
  return Status::Ok();
}

// Only when no other thread wants the processor.
void YieldAlways() {
  const sched_param none{};
  sched_setscheduler(0, SCHED_IDLE, &none);
}

}  // namespace

ShadowTraffic::~ShadowTraffic() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ShadowTraffic::Offer(Copy copy) {
  const size_t bytes = BytesOf(copy.inputs) + BytesOf(copy.outputs);
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostWaiting || bytes_ + bytes > kMostBytes) {
      return metrics_.CountShadow(copy.shadow->model, copy.shadow->version, "dropped");
    }
    waiting_.push_back(std::move(copy));
    bytes_ += bytes;
    if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
  }
  wake_.notify_one();
}

std::optional<ShadowTraffic::Copy> ShadowTraffic::Next() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
  if (stopping_) return std::nullopt;
  Copy copy = std::move(waiting_.front());
  waiting_.pop_front();
  bytes_ -= BytesOf(copy.inputs) + BytesOf(copy.outputs);
  return copy;
}

void ShadowTraffic::Rest(std::chrono::nanoseconds time) {
  std::unique_lock lock(mutex_);
  wake_.wait_for(lock, time, [this] { return stopping_.load(); });
}

void ShadowTraffic::Work() {
  YieldAlways();
  const ThreadPool::OnCaller alone;
  while (const auto copy = Next()) {
    const Activity before = activity_();
    const auto begin = std::chrono::steady_clock::now();
    const Status compared = CatchExceptions([&] {
      Compare(*copy);
      return Status::Ok();
    });
    if (!compared.ok()) LogWarning(StrCat("a copy of a request was lost: ", compared.ToString()));
    const bool beside = before.in_flight > 0 || activity_().begun != before.begun;
    if (beside) Rest(kRest * (std::chrono::steady_clock::now() - begin));
  }
}

void ShadowTraffic::Compare(const Copy& copy) {
  const ModelVersion& shadow = *copy.shadow;
  RunOptions options;
  options.cancelled = &stopping_;
  options.deadline = std::chrono::steady_clock::now() + kMostTime;
  auto inputs = InputsOf(copy);
  const auto outputs = inputs.ok() ? Run(shadow, *std::move(inputs), options) : std::move(inputs);
  if (stopping_) return;
  const Status same = outputs.ok() ? CompareOutputs(copy, *outputs) : outputs.status();
  metrics_.CountShadow(shadow.model, shadow.version,
                       !outputs.ok() ? "failed" : (same.ok() ? "same" : "different"));
  shadow.rollout->analysis.NoteComparison(shadow.version, same.ok());
  if (same.ok()) return;
  std::lock_guard lock(mutex_);
  auto& examples = examples_[shadow.model];
  examples.push_back(
      {copy.request_id, copy.answering->version, shadow.version, std::string(same.message())});
  if (examples.size() > kMostExamples) examples.pop_front();
}

std::vector<ShadowTraffic::Example> ShadowTraffic::Examples(const std::string& model) const {
  std::lock_guard lock(mutex_);
  const auto found = examples_.find(model);
  if (found == examples_.end()) return {};
  return {found->second.begin(), found->second.end()};
}

}  // namespace onnxd
