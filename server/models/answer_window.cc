#include "server/models/answer_window.h"

#include <cmath>

namespace onnxd {

double LeastRate(AnswerCount count) {
  if (count.all == 0) return 0;
  constexpr double kZ = 3.29;  // of the normal distribution, both tails 0.001
  const auto n = static_cast<double>(count.all);
  const double rate = count.rate(), spread = kZ * kZ / n;
  const double middle = rate + spread / 2;
  const double half = std::sqrt(spread * (rate * (1 - rate) + spread / 4));
  return (middle - half) / (1 + spread);
}

void AnswerWindow::Add(bool with) {
  const auto forget = [this](AnswerCount& count, size_t length) {
    if (count.all < static_cast<int64_t>(length)) return void(++count.all);
    count.with -= answers_[(next_ + kLong - length) % kLong];
  };
  forget(recent_, kShort);
  forget(all_, kLong);
  answers_[next_] = with;
  next_ = (next_ + 1) % kLong;
  recent_.with += with;
  all_.with += with;
}

}  // namespace onnxd
