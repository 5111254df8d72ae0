// HttpStream: the body of an answer that comes in pieces while its client reads.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace onnxd {

// Any thread.
class HttpStream {
 public:
  // Nothing is added behind its end.
  void Send(std::string_view piece) { Change(piece, false); }
  void End() { Change({}, true); }

  // For the connection: `wake` is called when there is more to take, from any thread, until
  // Detach.
  void Attach(std::function<void()> wake) {
    std::lock_guard lock(mutex_);
    wake_ = std::move(wake);
  }
  void Detach() { Attach(nullptr); }
  struct Taken {
    std::string bytes;
    bool ended = false;  // nothing comes behind them
  };
  // What came since the last call.
  Taken Take() {
    std::lock_guard lock(mutex_);
    return {std::exchange(pending_, {}), ended_};
  }

 private:
  void Change(std::string_view piece, bool ends) {
    std::function<void()> wake;
    {
      std::lock_guard lock(mutex_);
      if (ended_) return;
      pending_ += piece;
      ended_ = ends;
      wake = wake_;
    }
    if (wake) wake();
  }

  std::mutex mutex_;
  std::string pending_;         // guarded by mutex_
  bool ended_ = false;          // guarded by mutex_
  std::function<void()> wake_;  // guarded by mutex_
};

}  // namespace onnxd
