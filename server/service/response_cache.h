// ResponseCache: answers of models that want it (`response_cache` of NAME/model.yaml), for equal
// requests to come.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/content_hash.h"
#include "runtime/base/memory_account.h"
#include "server/metrics/server_metrics.h"
#include "server/models/model_version.h"

namespace onnxd {

// Any thread. Requests are equal when all of their inputs are, byte for byte, of the same load of a
// version, and ask for the same outputs. Those that come while an equal one is computed wait for
// its answer. Failures are not kept.
class ResponseCache {
 public:
  using Time = std::chrono::steady_clock::time_point;

  ResponseCache(ServerMetrics& metrics, std::shared_ptr<MemoryAccount> memory);
  ~ResponseCache();
  ResponseCache(const ResponseCache&) = delete;
  ResponseCache& operator=(const ResponseCache&) = delete;

  // Of all requests and answers that it keeps; 0: it keeps none, and nobody waits for others.
  void SetLimit(int64_t bytes);

  // The outputs that were asked for, in that order.
  using Answer = std::function<void(const Result<std::vector<Value>>&)>;
  struct Question {
    std::shared_ptr<const ModelVersion> version;
    std::vector<Value> inputs;     // as the signature has them
    std::vector<size_t> selected;  // outputs
    std::optional<Time> deadline;
  };
  // A question that is computed for all who ask it meanwhile. Whoever waits for one that is gone
  // without an answer, or whose answer only says that its client or the server gave up, is told
  // kAborted, and computes for itself.
  class Computation {
   public:
    Computation(ResponseCache& cache, uint64_t number) : cache_(cache), number_(number) {}
    ~Computation() { Settle(Aborted("it was lost")); }
    Computation(const Computation&) = delete;
    Computation& operator=(const Computation&) = delete;
    void Settle(const Result<std::vector<Value>>& outputs) {
      cache_.Settle(std::exchange(number_, 0), outputs);
    }

   private:
    ResponseCache& cache_;
    uint64_t number_;  // 0: settled
  };
  struct Decision {
    bool computes = true;                      // false: `answer` was called, or will be
    std::shared_ptr<Computation> computation;  // null: nothing is kept of it
  };
  Decision Ask(const Question& question, Answer answer);

 private:
  struct Entry;
  using Entries = std::list<Entry>;

  // With mutex_ held.
  Entries::iterator Find(uint64_t hash, const Question& question);
  void Drop(Entries::iterator entry);
  bool MakeRoom(int64_t bytes, Entries::iterator keep);

  void Settle(uint64_t number, const Result<std::vector<Value>>& outputs);

  ServerMetrics& metrics_;
  const std::shared_ptr<MemoryAccount> memory_;
  const HashSecret secret_;
  mutable std::mutex mutex_;
  int64_t limit_ = 0, bytes_ = 0;                                 // guarded by mutex_
  uint64_t next_number_ = 1;                                      // guarded by mutex_
  Entries entries_;                                               // the last used first; guarded
  std::unordered_multimap<uint64_t, Entries::iterator> by_hash_;  // guarded by mutex_
  std::unordered_map<uint64_t, Entries::iterator> by_number_;     // computed now; guarded
};

}  // namespace onnxd
