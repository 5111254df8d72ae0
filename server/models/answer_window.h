// AnswerWindow: how many of the last answers had a property, over a short and a long stretch: the
// short one shows a change at once, the long one small rates.
#pragma once

#include <bitset>
#include <cstdint>

namespace onnxd {

struct AnswerCount {
  int64_t with = 0, all = 0;
  double rate() const {
    return all == 0 ? 0 : static_cast<double>(with) / static_cast<double>(all);
  }
};

// The lowest rate behind such a count, which is looked at after each answer, that chance leaves
// credible: one time in two thousand it is lower. 0 for none.
// Source: E. B. Wilson, Probable inference, the law of succession, and statistical inference, 1927.
double LeastRate(AnswerCount count);

// One thread at a time.
class AnswerWindow {
 public:
  static constexpr size_t kShort = 200, kLong = 2000;

  void Add(bool with);
  AnswerCount recent() const { return recent_; }  // of the last kShort
  AnswerCount all() const { return all_; }        // of the last kLong

 private:
  std::bitset<kLong> answers_;  // a ring
  size_t next_ = 0;
  AnswerCount recent_, all_;
};

}  // namespace onnxd
