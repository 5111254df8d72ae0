// How fast a connection is read that resets its calls before they are answered (rapid reset,
// CVE-2023-44487). Clients whose deadlines expire do that as well, and are not slowed down.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace onnxd {

// One connection's; one thread.
class ResetPace {
 public:
  using Clock = std::chrono::steady_clock;

  void CallAnswered() { ++ended_; }

  // A call has ended unanswered; `timeout`: what it had from `opened` on, zero without a deadline.
  void CallReset(Clock::time_point opened, Clock::duration timeout, Clock::time_point now) {
    const bool expired = timeout > Clock::duration::zero() && now - opened >= timeout / 2;
    ++ended_;
    if (!expired) ++reset_;
  }

  // After each read: the wait before the next.
  std::chrono::milliseconds NextPause(Clock::time_point now) {
    has_read_ = true;
    const int64_t ended = ended_ - ended_before_, reset = reset_ - reset_before_;
    if (ended == 0 && pause_ > kNoPause) return pause_;  // part of a call
    const bool mostly = IsMost(reset, ended);
    const bool known = reset >= kFewResets || pause_ > kNoPause;
    if (!std::exchange(doubtful_, mostly && !known)) since_ = now;
    if (doubtful_ && now - since_ < kDoubt) return kNoPause;
    doubtful_ = false;
    ended_before_ = ended_;
    reset_before_ = reset_;
    pause_ = mostly && known ? std::clamp(2 * pause_, kFirstPause, kLongestPause) : kNoPause;
    return pause_;
  }

  // How much may be read at once of `most`; less where nothing is known yet, or nothing good.
  size_t ReadBytes(size_t most) const {
    const bool trusted = has_read_ && !doubtful_ && pause_ == kNoPause;
    return trusted ? most : std::min(most, kFewBytes);
  }

  // It has done little else: it may go.
  bool IsHopeless() const { return ended_ >= kManyCalls && IsMost(reset_, ended_); }

 private:
  using Pause = std::chrono::milliseconds;
  static constexpr Pause kNoPause{0}, kFirstPause{10}, kLongestPause{200};
  static constexpr int64_t kFewResets = 50, kManyCalls = 10'000;
  static constexpr size_t kFewBytes = 1024;
  // Few resets count together with those of the next reads for so long.
  static constexpr std::chrono::milliseconds kDoubt{100};

  static bool IsMost(int64_t part, int64_t whole) { return 10 * part > 9 * whole; }

  int64_t ended_ = 0, reset_ = 0, ended_before_ = 0, reset_before_ = 0;
  Pause pause_ = kNoPause;
  Clock::time_point since_;
  bool has_read_ = false, doubtful_ = false;
};

}  // namespace onnxd
