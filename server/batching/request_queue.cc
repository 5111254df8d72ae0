#include "server/batching/request_queue.h"

#include <algorithm>
#include <limits>

namespace onnxd {
namespace {

int64_t RowsOf(const BatchRequest& request) { return std::max<int64_t>(request.rows, 1); }

bool MayJoin(const BatchRequest& first, const BatchRequest& other) {
  return first.rows > 0 && other.rows > 0 && first.shape_key == other.shape_key;
}

}  // namespace

void RequestQueue::Push(BatchRequest request, SteadyTime now, std::chrono::nanoseconds patience) {
  // Whatever becomes of `patience`, requests without a deadline keep their order.
  if (!request.deadline) patient_ = std::max(patient_, now + patience);
  const Key key{request.priority, request.deadline.value_or(patient_), sequence_++};
  entries_.emplace(key, Entry{std::move(request), now});
}

std::pair<int64_t, SteadyTime> RequestQueue::Urgency() const {
  const Key& first = entries_.begin()->first;
  return {first.priority, first.due};
}

RequestQueue::Together RequestQueue::Count(int64_t most) const {
  const Entry& first = entries_.begin()->second;
  Together together{RowsOf(first.request), first.queued};
  for (auto it = std::next(entries_.begin()); it != entries_.end() && together.rows < most; ++it) {
    const Entry& entry = it->second;
    if (!MayJoin(first.request, entry.request)) continue;
    together.rows += entry.request.rows;
    together.oldest = std::min(together.oldest, entry.queued);
  }
  return together;
}

std::vector<RequestQueue::Entry> RequestQueue::Take(int64_t rows) {
  std::vector<Entry> taken;
  taken.push_back(std::move(entries_.begin()->second));
  entries_.erase(entries_.begin());
  int64_t left = rows - RowsOf(taken[0].request);
  for (auto it = entries_.begin(); it != entries_.end() && left > 0;) {
    const BatchRequest& request = it->second.request;
    if (!MayJoin(taken[0].request, request) || request.rows > left) {
      ++it;
      continue;
    }
    left -= request.rows;
    taken.push_back(std::move(it->second));
    it = entries_.erase(it);
  }
  return taken;
}

template <typename Wanted>
std::vector<RequestQueue::Entry> RequestQueue::TakeIf(const Wanted& wanted) {
  std::vector<Entry> taken;
  for (auto it = entries_.begin(); it != entries_.end();) {
    if (!wanted(it->second.request)) {
      ++it;
      continue;
    }
    taken.push_back(std::move(it->second));
    it = entries_.erase(it);
  }
  return taken;
}

void RequestQueue::DelayExpired(SteadyTime now) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto deadline = it->second.request.deadline;
    if (!deadline || *deadline >= now) {
      ++it;
      continue;
    }
    auto late = entries_.extract(it++);
    late.mapped().request.deadline.reset();
    late.key().priority = std::numeric_limits<int64_t>::max();
    entries_.insert(std::move(late));
  }
}

std::vector<RequestQueue::Entry> RequestQueue::TakeLost(SteadyTime now) {
  return TakeIf([now](const BatchRequest& request) {
    const bool gone =
        request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed);
    return gone || (request.deadline && *request.deadline < now);
  });
}

std::vector<RequestQueue::Entry> RequestQueue::TakeAll() {
  return TakeIf([](const BatchRequest&) { return true; });
}

std::vector<int64_t> RequestQueue::RowsBefore(int64_t priority, SteadyTime due) const {
  std::vector<int64_t> rows;
  for (const auto& [key, entry] : entries_) {
    if (std::pair(key.priority, key.due) > std::pair(priority, due)) break;
    rows.push_back(RowsOf(entry.request));
  }
  return rows;
}

}  // namespace onnxd
