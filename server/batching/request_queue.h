// RequestQueue: what waits for one model, the most urgent first.
#pragma once

#include <atomic>
#include <chrono>
#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/value.h"

namespace onnxd {

using SteadyTime = std::chrono::steady_clock::time_point;

// What came of a request.
struct BatchResult {
  Result<std::vector<Value>> outputs;
  std::chrono::nanoseconds queue_time{0}, compute_time{0};
};

class ScheduledModel;

// Models that one request of a client asks one after another; only compared.
using ModelSteps = std::vector<const ScheduledModel*>;

struct BatchRequest {
  std::vector<Value> inputs;  // one per input of the model
  int64_t rows = 0;           // 0: must run alone
  std::string shape_key;      // requests of equal keys may share a batch
  int64_t priority = 0;       // the least first
  std::optional<SteadyTime> deadline;
  std::shared_ptr<std::atomic<bool>> cancelled;  // may be null
  std::function<void(BatchResult)> done;         // called once, from any thread; must not throw
  // Its model is one of these; null: the only one.
  std::shared_ptr<const ModelSteps> steps = nullptr;
  std::vector<Tensor> outputs_into = {};  // as of RunOptions; only where it must run alone
};

// Earliest deadline first within a priority; a request without a deadline counts as due
// `patience` after it came. Guarded by its owner.
class RequestQueue {
 public:
  struct Entry {
    BatchRequest request;
    SteadyTime queued;
  };

  void Push(BatchRequest request, SteadyTime now, std::chrono::nanoseconds patience);
  bool empty() const { return entries_.empty(); }
  size_t size() const { return entries_.size(); }

  // When the most urgent one is due, its priority first. Requires entries.
  std::pair<int64_t, SteadyTime> Urgency() const;

  // Rows that could run together with the most urgent request, itself included (1 if it must run
  // alone), up to `most`, and when the first of them came. Requires entries.
  struct Together {
    int64_t rows;
    SteadyTime oldest;
  };
  Together Count(int64_t most) const;

  // Takes the most urgent request, and others that fit until there are `rows`. Requires entries.
  std::vector<Entry> Take(int64_t rows);

  // Puts those whose deadline is before `now` behind all others, without a deadline.
  void DelayExpired(SteadyTime now);

  // Takes those whose client is gone, or whose deadline is before `now`.
  std::vector<Entry> TakeLost(SteadyTime now);
  std::vector<Entry> TakeAll();

  // The rows of each request before one that is due at `due`; 1 for those that run alone.
  std::vector<int64_t> RowsBefore(int64_t priority, SteadyTime due) const;

 private:
  struct Key {
    int64_t priority;
    SteadyTime due;
    uint64_t sequence;
    auto operator<=>(const Key&) const = default;
  };
  template <typename Wanted>
  std::vector<Entry> TakeIf(const Wanted& wanted);

  std::map<Key, Entry> entries_;
  uint64_t sequence_ = 0;
  SteadyTime patient_{};  // when the last request without a deadline is due
};

}  // namespace onnxd
