#include "runtime/base/memory_account.h"

namespace onnxd {
namespace {

thread_local MemoryAccount* current = nullptr;

}  // namespace

MemoryAccount::~MemoryAccount() {
  if (whole_ != nullptr) whole_->Release(Counted(bytes_.load(std::memory_order_relaxed)));
}

bool MemoryAccount::Add(int64_t bytes) {
  const int64_t before = bytes_.fetch_add(bytes, std::memory_order_relaxed);
  const int64_t after = before + bytes;
  const int64_t more = Counted(after) - Counted(before);
  if (after <= limit() && (whole_ == nullptr || more == 0 || whole_->Add(more))) return true;
  bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  refusals_.fetch_add(1, std::memory_order_relaxed);
  if (after > most_refused()) most_refused_.store(after, std::memory_order_relaxed);
  return false;
}

void MemoryAccount::Release(int64_t bytes) {
  const int64_t before = bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  const int64_t less = Counted(before) - Counted(before - bytes);
  if (whole_ != nullptr && less > 0) whole_->Release(less);
}

bool MemoryAccount::Reserve(int64_t bytes) {
  const int64_t used = bytes_.load(std::memory_order_relaxed);
  const int64_t before = Counted(used);
  const int64_t after = bytes > used ? bytes : used;
  if (whole_ != nullptr && after > before && !whole_->Add(after - before)) return false;
  if (whole_ != nullptr && after < before) whole_->Release(before - after);
  reserved_ = bytes;
  return true;
}

ChargeTo::ChargeTo(MemoryAccount* account) : outer_(current) { current = account; }

ChargeTo::~ChargeTo() { current = outer_; }

MemoryAccount* ChargeTo::Current() { return current; }

}  // namespace onnxd
