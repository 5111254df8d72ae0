// CanaryAnalysis: finds the versions of a model's split that answer worse than its baseline.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "server/config/rollout_settings.h"
#include "server/models/answer_window.h"

namespace onnxd {

enum class RollbackCause { kErrors, kLatency, kMismatch, kRequest };
const char* RollbackCauseName(RollbackCause cause);

// How a request ended, as far as it says something of the version.
enum class AnswerKind {
  kAnswered,
  kFailed,   // was computed, or waited for it, and failed
  kRefused,  // does not fit the version's inputs and outputs
};

// Of one model. Any thread.
class CanaryAnalysis {
 public:
  struct Plan {
    std::string baseline;            // empty: there is nothing to compare with
    std::set<std::string> canaries;  // other versions of the split
    // Of them, those whose inputs and outputs are not the baseline's: what they refuse counts as
    // failed. Of others it is the clients' fault.
    std::set<std::string> differing;
    std::string shadow;  // the version that gets copies; may be empty, or one of the others
    RollbackSettings settings;
    bool operator==(const Plan&) const = default;
  };
  struct Verdict {
    std::string version;
    RollbackCause cause;
    std::string reason;  // with the counts that tell
  };
  // Called once for a version, until a plan is without it, by the thread of the answer that
  // decided.
  using OnVerdict = std::function<void(const Verdict&)>;

  explicit CanaryAnalysis(OnVerdict on_verdict) : on_verdict_(std::move(on_verdict)) {}

  // From now on. What is known of versions that stay is kept.
  void Follow(Plan plan);
  // It has other files now: what is known of the version says nothing any more.
  void Forget(const std::string& version);

  // Whether answers are worth noting.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  // `duration`: of what was computed.
  void Note(const std::string& version, AnswerKind kind, std::chrono::nanoseconds duration);
  // What the shadow version computed of a copy.
  void NoteComparison(const std::string& version, bool same);

 private:
  // Durations of the last answers, and what 95% of them keep.
  class Pace {
   public:
    void Add(std::chrono::nanoseconds duration);
    // None before there are enough.
    std::optional<std::chrono::nanoseconds> most() const { return most_; }

   private:
    static constexpr size_t kKept = 512, kEnough = 64;
    std::array<std::chrono::nanoseconds, kKept> last_{};
    size_t count_ = 0;
    std::optional<std::chrono::nanoseconds> most_;
  };
  struct Record {
    AnswerWindow failed, failed_or_refused, slow, different;
    bool condemned = false;
  };

  // With mutex_ held.
  std::optional<Verdict> Judge(const std::string& version, const Record& record) const;
  std::optional<Verdict> JudgeShadow(const std::string& version, const Record& record) const;
  bool IsEnough(AnswerCount count) const { return count.all >= plan_.settings.min_requests; }

  const OnVerdict on_verdict_;
  std::atomic<bool> active_{false};
  std::mutex mutex_;
  Plan plan_;                              // guarded by mutex_
  std::map<std::string, Record> records_;  // by version; guarded by mutex_
  Pace pace_;                              // of the baseline; guarded by mutex_
};

}  // namespace onnxd
