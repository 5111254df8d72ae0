#include "server/tracing/span_exporter.h"

#include <algorithm>

#include "runtime/base/exceptions.h"
#include "runtime/base/log.h"
#include "runtime/base/str_cat.h"
#include "server/tracing/otlp.h"

namespace onnxd {
namespace {

bool MayTryAgain(const Result<int>& answer) {
  return !answer.ok() || *answer == 429 || *answer == 502 || *answer == 503 || *answer == 504;
}

Status StatusOf(const Result<int>& answer) {
  if (!answer.ok()) return answer.status();
  if (*answer >= 200 && *answer < 300) return Status::Ok();
  return Unavailable(StrCat("the collector answers ", *answer));
}

}  // namespace

SpanExporter::SpanExporter(const Options& options, std::map<std::string, std::string> resource,
                           Send send, ServerMetrics& metrics)
    : options_(options),
      resource_(std::move(resource)),
      send_(std::move(send)),
      metrics_(metrics),
      thread_([this] { Work(); }) {}

SpanExporter::~SpanExporter() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void SpanExporter::Add(Span span) {
  bool full = false, enough = false;
  {
    std::lock_guard lock(mutex_);
    full = queue_.size() >= options_.queue;
    if (!full) queue_.push_back(std::move(span));
    enough = queue_.size() == options_.batch;
  }
  if (full) metrics_.CountSpans("dropped", 1);
  if (enough) wake_.notify_one();
}

void SpanExporter::Work() {
  std::unique_lock lock(mutex_);
  while (!stopping_ || !queue_.empty()) {
    wake_.wait_for(lock, options_.delay,
                   [this] { return stopping_ || queue_.size() >= options_.batch; });
    if (queue_.empty()) continue;
    const auto count = static_cast<ptrdiff_t>(std::min(queue_.size(), options_.batch));
    std::vector<Span> batch(std::make_move_iterator(queue_.begin()),
                            std::make_move_iterator(queue_.begin() + count));
    queue_.erase(queue_.begin(), queue_.begin() + count);
    lock.unlock();
    const Status sent = CatchExceptions([&] {
      SendBatch(batch);
      return Status::Ok();
    });
    if (!sent.ok()) metrics_.CountSpans("failed", count);
    lock.lock();
  }
}

void SpanExporter::SendBatch(const std::vector<Span>& batch) {
  const std::string body = OtlpJson(batch, resource_);
  const auto count = static_cast<int64_t>(batch.size());
  auto pause = options_.retry;
  for (int i = 1;; ++i) {
    const Result<int> answer = send_(body);
    const Status sent = StatusOf(answer);
    Report(sent);
    if (sent.ok()) return metrics_.CountSpans("sent", count);
    if (!MayTryAgain(answer) || i == options_.tries || !Pause(pause)) break;
    pause *= 2;
  }
  metrics_.CountSpans("failed", count);
}

bool SpanExporter::Pause(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return !wake_.wait_for(lock, time, [this] { return stopping_; });
}

void SpanExporter::Report(const Status& sent) {
  if (!sent.ok() && !failing_) LogWarning(StrCat("spans are not taken: ", sent.message()));
  if (sent.ok() && failing_) LogInfo("spans are taken again");
  failing_ = !sent.ok();
}

}  // namespace onnxd
