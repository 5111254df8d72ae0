// OneReply: that a request is answered once, whatever becomes of its handler.
#pragma once

#include <atomic>
#include <utility>

#include "runtime/base/exceptions.h"

namespace onnxd {

// Shared by the copies of a handler's callback. When the last one goes without an answer, which a
// refused allocation can cause, it sends Way::Lost(). Any thread.
//
// Way: `Answer`; `void Post(Answer)`, which hands it to the connection and may throw; `Answer
// Lost()`; `void Break()`, which ends the connection and does not throw.
template <typename Way>
class OneReply {
 public:
  using Answer = typename Way::Answer;

  explicit OneReply(Way way) : way_(std::move(way)) {}
  ~OneReply() {
    if (sent_) return;
    (void)CatchExceptions([this] {
      Send(way_.Lost());
      return Status::Ok();
    });
  }
  OneReply(const OneReply&) = delete;
  OneReply& operator=(const OneReply&) = delete;

  // The first one counts.
  void Send(Answer answer) {
    if (sent_.exchange(true)) return;
    // Without memory even for that, the client sees the connection end.
    const Status posted = CatchExceptions([&] {
      way_.Post(std::move(answer));
      return Status::Ok();
    });
    if (!posted.ok()) way_.Break();
  }

 private:
  Way way_;
  std::atomic<bool> sent_{false};
};

}  // namespace onnxd
