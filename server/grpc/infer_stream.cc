#include "server/grpc/infer_stream.h"

#include <deque>
#include <mutex>
#include <optional>

#include "server/grpc/infer_response.h"
#include "server/grpc/model_infer.h"

namespace onnxd {
namespace {

// What the stream's answers go through, as long as one is awaited. Any thread.
class OrderedAnswers {
 public:
  OrderedAnswers(std::shared_ptr<GrpcWriter> writer, bool error_as_status)
      : writer_(std::move(writer)), error_as_status_(error_as_status) {}

  // The place of the next request's answer.
  uint64_t Expect() {
    std::lock_guard lock(mutex_);
    waiting_.emplace_back();
    return next_++;
  }

  void Fill(uint64_t place, const Result<std::string>& answer, const std::string& id) {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    if (!answer.ok() && error_as_status_) {
      ended_ = true;
      return writer_->Finish(answer.status());
    }
    waiting_[place - first_] =
        answer.ok() ? WriteStreamAnswer(*answer) : WriteStreamError(answer.status().message(), id);
    while (!waiting_.empty() && waiting_.front()) {
      writer_->Send(*std::move(waiting_.front()));
      waiting_.pop_front();
      ++first_;
    }
    FinishIfDone();
  }

  // One of several answers to a request, in their order.
  void Add(const std::string& answer) {
    std::lock_guard lock(mutex_);
    if (!ended_) writer_->SendPart(WriteStreamPart(answer));
  }

  // No request comes any more.
  void End() {
    std::lock_guard lock(mutex_);
    last_ = true;
    FinishIfDone();
  }

 private:
  void FinishIfDone() {
    if (!last_ || !waiting_.empty() || ended_) return;
    ended_ = true;
    writer_->Finish(Status::Ok());
  }

  const std::shared_ptr<GrpcWriter> writer_;
  const bool error_as_status_;
  std::mutex mutex_;
  std::deque<std::optional<std::string>> waiting_;  // guarded by mutex_
  uint64_t first_ = 0, next_ = 0;                   // guarded by mutex_
  bool last_ = false, ended_ = false;               // guarded by mutex_
};

class InferStream : public GrpcStreamHandler {
 public:
  InferStream(InferenceService& service, const GrpcCall& call, std::shared_ptr<GrpcWriter> writer)
      : service_(service),
        call_(call),
        answers_(std::make_shared<OrderedAnswers>(std::move(writer), call.stream_error_as_status)) {
  }

  void OnMessage(std::string message) override {
    const uint64_t place = answers_->Expect();
    GrpcCall call = call_;
    call.message = std::move(message);
    call.origin.arrived = call.origin.received = std::chrono::steady_clock::now();
    RenewSpan(call.origin.trace);
    ModelInfer(
        service_, call,
        [place, answers = answers_](const Result<std::string>& answer, const std::string& id) {
          answers->Fill(place, answer, id);
        },
        [answers = answers_](const std::string& part) { answers->Add(part); });
  }

  void OnEnd() override { answers_->End(); }

 private:
  InferenceService& service_;
  const GrpcCall call_;
  const std::shared_ptr<OrderedAnswers> answers_;
};

}  // namespace

std::unique_ptr<GrpcStreamHandler> OpenInferStream(InferenceService& service, const GrpcCall& call,
                                                   std::shared_ptr<GrpcWriter> writer) {
  return std::make_unique<InferStream>(service, call, std::move(writer));
}

}  // namespace onnxd
