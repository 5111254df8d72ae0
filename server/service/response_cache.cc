#include "server/service/response_cache.h"

#include <algorithm>
#include <cstring>

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kEntryBytes = 512;  // besides elements

bool AreTensors(const std::vector<Value>& values) {
  return std::all_of(values.begin(), values.end(), [](const Value& v) { return v.is_tensor(); });
}

int64_t BytesOf(const std::vector<Value>& values) {
  int64_t bytes = 0;
  for (const Value& value : values) {
    const Tensor& tensor = value.tensor();
    bytes += static_cast<int64_t>(tensor.bytes());
    if (tensor.type() != DataType::kString) continue;
    for (const std::string& text : tensor.elements<std::string>()) {
      bytes += static_cast<int64_t>(sizeof(std::string) + text.size());
    }
  }
  return bytes;
}

// Bytes of their own: an input may be memory that its client still writes, and an output a part of
// a batch.
Result<std::vector<Value>> Copied(const std::vector<Value>& values) {
  std::vector<Value> copies;
  for (const Value& value : values) {
    const Tensor& tensor = value.tensor();
    ONNXD_ASSIGN_OR_RETURN(Tensor copy, Tensor::Create(tensor.type(), tensor.shape()));
    if (tensor.type() == DataType::kString) {
      const auto texts = tensor.elements<std::string>();
      std::copy(texts.begin(), texts.end(), copy.mutable_data<std::string>());
    } else if (tensor.bytes() > 0) {
      std::memcpy(copy.mutable_raw(), tensor.raw(), tensor.bytes());
    }
    copies.emplace_back(std::move(copy));
  }
  return copies;
}

bool AreEqual(const Tensor& a, const Tensor& b) {
  if (a.type() != b.type() || a.shape() != b.shape()) return false;
  if (a.type() == DataType::kString) {
    const auto x = a.elements<std::string>(), y = b.elements<std::string>();
    return std::equal(x.begin(), x.end(), y.begin());
  }
  return a.bytes() == 0 || std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

bool AreEqual(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Value& x, const Value& y) {
    return AreEqual(x.tensor(), y.tensor());
  });
}

void Mix(uint64_t& hash, std::string_view bytes, const HashSecret& secret) {
  hash = hash * 0x9e3779b97f4a7c15u + HashBytes(bytes, secret).low;
}

}  // namespace

struct ResponseCache::Entry {
  // Of the version; `loaded` tells its loads apart.
  std::string model, number;
  Time loaded;
  std::vector<size_t> selected;
  std::vector<Value> inputs, outputs;
  uint64_t hash = 0;
  uint64_t computed_as = 0;  // 0: the outputs are there
  std::optional<Time> deadline, expires;
  int64_t ttl_s = 0, bytes = 0;
  std::vector<Answer> waiting;
};

ResponseCache::ResponseCache(ServerMetrics& metrics, std::shared_ptr<MemoryAccount> memory)
    : metrics_(metrics), memory_(std::move(memory)), secret_(NewHashSecret()) {}

ResponseCache::~ResponseCache() { memory_->Release(bytes_); }

void ResponseCache::SetLimit(int64_t bytes) {
  std::lock_guard lock(mutex_);
  limit_ = bytes;
  (void)MakeRoom(0, entries_.end());
}

ResponseCache::Decision ResponseCache::Ask(const Question& question, Answer answer) {
  const ModelVersion& version = *question.version;
  if (!AreTensors(question.inputs)) return {};
  uint64_t hash = 0;
  Mix(hash, version.model, secret_);
  for (const Value& value : question.inputs) {
    const Tensor& tensor = value.tensor();
    Mix(hash, tensor.shape().ToString(), secret_);
    if (tensor.type() != DataType::kString) {
      Mix(hash, {static_cast<const char*>(tensor.raw()), tensor.bytes()}, secret_);
      continue;
    }
    for (const std::string& text : tensor.elements<std::string>()) Mix(hash, text, secret_);
  }
  std::unique_lock lock(mutex_);
  const int64_t bytes = kEntryBytes + BytesOf(question.inputs);
  if (bytes > limit_) return {};
  const auto now = Clock::now();
  auto found = Find(hash, question);
  if (found != entries_.end() && found->expires && *found->expires <= now) {
    Drop(found);
    found = entries_.end();
  }
  if (found != entries_.end() && found->computed_as == 0) {
    entries_.splice(entries_.begin(), entries_, found);
    const std::vector<Value> outputs = found->outputs;
    lock.unlock();
    metrics_.CountResponseCache(version.model, "hit");
    answer(outputs);
    return {false, nullptr};
  }
  if (found != entries_.end()) {
    // Who computes must not keep others beyond their time.
    if (question.deadline && (!found->deadline || *found->deadline > *question.deadline)) return {};
    found->waiting.push_back(std::move(answer));
    lock.unlock();
    metrics_.CountResponseCache(version.model, "joined");
    return {false, nullptr};
  }
  auto inputs = Copied(question.inputs);
  if (!inputs.ok() || !MakeRoom(bytes, entries_.end())) return {};
  Entry entry;
  entry.model = version.model;
  entry.number = version.version;
  entry.loaded = version.loaded;
  entry.selected = question.selected;
  entry.inputs = *std::move(inputs);
  entry.hash = hash;
  entry.computed_as = next_number_++;
  entry.deadline = question.deadline;
  entry.ttl_s = version.settings.response_cache.ttl_s;
  entry.bytes = bytes;
  entries_.push_front(std::move(entry));
  by_hash_.emplace(hash, entries_.begin());
  by_number_.emplace(entries_.front().computed_as, entries_.begin());
  const uint64_t number = entries_.front().computed_as;
  lock.unlock();
  metrics_.CountResponseCache(version.model, "miss");
  return {true, std::make_shared<Computation>(*this, number)};
}

void ResponseCache::Settle(uint64_t number, const Result<std::vector<Value>>& outputs) {
  if (number == 0) return;
  Result<std::vector<Value>> kept = Aborted("not kept");
  if (outputs.ok() && AreTensors(*outputs)) kept = Copied(*outputs);
  std::vector<Answer> waiting;
  {
    std::lock_guard lock(mutex_);
    const auto found = by_number_.find(number);
    if (found == by_number_.end()) return;
    const auto entry = found->second;
    by_number_.erase(found);
    waiting.swap(entry->waiting);
    entry->computed_as = 0;
    const int64_t bytes = kept.ok() ? BytesOf(*kept) : 0;
    entries_.splice(entries_.begin(), entries_, entry);
    if (kept.ok() && MakeRoom(bytes, entry)) {
      entry->bytes += bytes;
      entry->outputs = *std::move(kept);
      if (entry->ttl_s > 0) entry->expires = Clock::now() + std::chrono::seconds(entry->ttl_s);
    } else {
      Drop(entry);
    }
  }
  const StatusCode code = outputs.status().code();
  const bool is_lost = code == StatusCode::kCancelled || code == StatusCode::kDeadlineExceeded ||
                       code == StatusCode::kUnavailable || code == StatusCode::kAborted;
  const Result<std::vector<Value>> lost = Aborted("who computed it did not come to an end");
  for (const Answer& answer : waiting) answer(is_lost ? lost : outputs);
}

ResponseCache::Entries::iterator ResponseCache::Find(uint64_t hash, const Question& question) {
  const ModelVersion& version = *question.version;
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it) {
    const Entry& entry = *it->second;
    if (entry.model == version.model && entry.number == version.version &&
        entry.loaded == version.loaded && entry.selected == question.selected &&
        AreEqual(entry.inputs, question.inputs)) {
      return it->second;
    }
  }
  return entries_.end();
}

void ResponseCache::Drop(Entries::iterator entry) {
  const auto [begin, end] = by_hash_.equal_range(entry->hash);
  by_hash_.erase(std::find_if(begin, end, [&](const auto& e) { return e.second == entry; }));
  bytes_ -= entry->bytes;
  memory_->Release(entry->bytes);
  metrics_.SetResponseCacheBytes(bytes_);
  entries_.erase(entry);
}

// Drops what was used longest ago, but nothing that is computed, nor `keep`.
bool ResponseCache::MakeRoom(int64_t bytes, Entries::iterator keep) {
  for (auto it = entries_.end(); bytes_ + bytes > limit_ && it != entries_.begin();) {
    --it;
    if (it->computed_as != 0 || it == keep) continue;
    const auto next = std::next(it);
    Drop(it);
    metrics_.CountResponseCacheEviction();
    it = next;
  }
  if (bytes_ + bytes > limit_ || !memory_->Add(bytes)) return false;
  bytes_ += bytes;
  metrics_.SetResponseCacheBytes(bytes_);
  return true;
}

}  // namespace onnxd
