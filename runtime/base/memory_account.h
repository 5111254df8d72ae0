// MemoryAccount: bytes of buffers, and who answers for them: a model, and the process as a whole.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>

namespace onnxd {

// Any thread, but for Reserve. Made by std::make_shared: buffers keep their account alive.
class MemoryAccount : public std::enable_shared_from_this<MemoryAccount> {
 public:
  // What counts here counts in `whole` as well (null: in nothing else).
  explicit MemoryAccount(std::shared_ptr<MemoryAccount> whole = nullptr)
      : whole_(std::move(whole)) {}
  ~MemoryAccount();
  MemoryAccount(const MemoryAccount&) = delete;
  MemoryAccount& operator=(const MemoryAccount&) = delete;

  // False, and nothing counted, when this account or the whole would pass its limit.
  bool Add(int64_t bytes);
  void Release(int64_t bytes);

  // Until the next call the whole counts this account for so many bytes at least. False, and as it
  // was, when that passes the whole's limit. Not while another thread uses this account.
  bool Reserve(int64_t bytes);

  void SetLimit(int64_t bytes) { limit_.store(bytes, std::memory_order_relaxed); }
  int64_t limit() const { return limit_.load(std::memory_order_relaxed); }
  int64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  // How often Add said no.
  int64_t refusals() const { return refusals_.load(std::memory_order_relaxed); }
  // The most bytes that a refused Add would have come to here.
  int64_t most_refused() const { return most_refused_.load(std::memory_order_relaxed); }

 private:
  // What the whole counts for so many bytes here.
  int64_t Counted(int64_t bytes) const { return bytes > reserved_ ? bytes : reserved_; }

  const std::shared_ptr<MemoryAccount> whole_;
  int64_t reserved_ = 0;
  std::atomic<int64_t> bytes_{0}, refusals_{0}, most_refused_{0};
  std::atomic<int64_t> limit_{std::numeric_limits<int64_t>::max()};
};

// While it lives, tensors and scratch memory that this thread allocates count in the account, until
// they are freed, wherever. The innermost counts; null: as if there were none.
class ChargeTo {
 public:
  explicit ChargeTo(MemoryAccount* account);
  ~ChargeTo();
  ChargeTo(const ChargeTo&) = delete;
  ChargeTo& operator=(const ChargeTo&) = delete;

  // This thread's; null when there is none.
  static MemoryAccount* Current();

 private:
  MemoryAccount* const outer_;
};

}  // namespace onnxd
