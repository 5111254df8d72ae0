#include "server/service/sequences.h"

#include <algorithm>
#include <utility>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kExpiryRound = std::chrono::milliseconds(200);

std::string NameOf(const SequenceControl::Id& id) {
  return id.text.empty() ? StrCat(id.number) : StrCat("'", id.text, "'");
}

Status NotBegun(const std::string& model, const SequenceControl::Id& id) {
  return InvalidArgument(StrCat("sequence ", NameOf(id), " of model '", model,
                                "' has not begun, or is over: its first request says "
                                "sequence_start"));
}

}  // namespace

Sequences::~Sequences() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (expiry_.joinable()) expiry_.join();
}

void Sequences::Enter(std::shared_ptr<const ModelVersion> version, const SequenceControl& control,
                      Begin begin) {
  const Key key(version->model, control.id);
  Waiting waiting{std::move(version), control, std::move(begin)};
  Status refusal;
  {
    std::lock_guard lock(mutex_);
    refusal = Admit(key, waiting);
    if (refusal.ok()) {
      Sequence& sequence = entries_[key];
      sequence.counted = true;
      sequence.waiting.push_back(std::move(waiting));
    }
  }
  if (!refusal.ok()) return waiting.begin(std::move(refusal));
  Advance(key);
}

Status Sequences::Admit(const Key& key, const Waiting& waiting) {
  const SequenceSettings& settings = waiting.version->settings.sequence;
  const SequenceControl& control = waiting.control;
  if (!control.id.given()) {
    return InvalidArgument(
        StrCat("model '", key.first, "' keeps state: a request needs a sequence_id"));
  }
  if (control.id.text.size() > SequenceControl::kMostIdBytes) {
    return InvalidArgument(
        StrCat("the sequence_id is longer than ", SequenceControl::kMostIdBytes, " bytes"));
  }
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second.counted) {
    if (static_cast<int64_t>(found->second.waiting.size()) < settings.queue_requests) {
      return Status::Ok();
    }
    return Unavailable(StrCat("sequence ", NameOf(key.second), " of model '", key.first,
                              "' has its ", settings.queue_requests, " waiting requests"));
  }
  if (!control.starts) return NotBegun(key.first, key.second);
  if (!expiry_.joinable()) expiry_ = std::thread([this] { Expire(); });
  if (count_[key.first] >= settings.max_sequences) DropIdle(Clock::now());
  int64_t& count = count_[key.first];
  if (count >= settings.max_sequences) {
    return Unavailable(
        StrCat("model '", key.first, "' has its ", settings.max_sequences, " sequences"));
  }
  ++count;
  wake_.notify_all();
  return Status::Ok();
}

void Sequences::DropIdle(Time now) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    const Sequence& sequence = it->second;
    const bool idle = !sequence.busy && !sequence.advancing && sequence.waiting.empty();
    const bool over =
        idle &&
        (sequence.version == nullptr ||
         now - sequence.last_used >=
             std::chrono::milliseconds(sequence.version->settings.sequence.idle_timeout_ms));
    if (over) Uncount(it);
    it = over ? entries_.erase(it) : std::next(it);
  }
}

void Sequences::Expire() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (entries_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, kExpiryRound, [this] { return stopping_; });
    }
    DropIdle(Clock::now());
  }
}

void Sequences::Advance(const Key& key) {
  std::unique_lock lock(mutex_);
  const auto found = entries_.find(key);
  if (found == entries_.end() || found->second.advancing) return;
  Sequence& sequence = found->second;  // it stays while it is advancing
  sequence.advancing = true;
  while (!sequence.busy && !sequence.waiting.empty()) {
    Waiting next = std::move(sequence.waiting.front());
    sequence.waiting.pop_front();
    Result<std::unique_ptr<Turn>> turn = NotBegun(key.first, key.second);
    if (next.control.starts) {
      turn = std::unique_ptr<Turn>(new Turn(*this, key, next.control, next.version, {}));
    } else if (sequence.version != nullptr) {
      turn = std::unique_ptr<Turn>(
          new Turn(*this, key, next.control, sequence.version, sequence.states));
    }
    sequence.busy = turn.ok();
    lock.unlock();
    next.begin(std::move(turn));
    lock.lock();
  }
  sequence.advancing = false;
  DropIfOver(found);
}

void Sequences::DropIfOver(Entries::iterator entry) {
  const Sequence& sequence = entry->second;
  if (sequence.version != nullptr || sequence.busy || !sequence.waiting.empty()) return;
  Uncount(entry);
  if (!sequence.advancing) entries_.erase(entry);
}

void Sequences::Uncount(Entries::iterator entry) {
  if (!std::exchange(entry->second.counted, false)) return;
  if (--count_[entry->first.first] == 0) count_.erase(entry->first.first);
}

void Sequences::Turn::End() {
  if (std::exchange(ended_, true)) return;
  std::lock_guard lock(owner_.mutex_);
  const auto entry = owner_.entries_.find(key_);
  Sequence& sequence = entry->second;
  sequence.busy = false;
  sequence.last_used = Clock::now();
  if (control_.ends) {
    sequence.version = nullptr;
    sequence.states.clear();
  } else if (succeeded_) {
    sequence.version = std::move(version_);
    sequence.states = std::move(states_);
  }
  owner_.DropIfOver(entry);
}

Sequences::Turn::~Turn() {
  End();
  owner_.Advance(key_);
}

int64_t Sequences::Count(const std::string& model) const {
  std::lock_guard lock(mutex_);
  const auto found = count_.find(model);
  return found == count_.end() ? 0 : found->second;
}

}  // namespace onnxd
