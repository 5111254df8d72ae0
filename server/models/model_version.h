// ModelVersion: a loaded model under a name and a version. A request that found one holds it, so it
// stays until its last request has finished.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/base/log.h"
#include "runtime/base/memory_account.h"
#include "runtime/base/str_cat.h"
#include "runtime/session/inference_session.h"
#include "server/batching/scheduler.h"
#include "server/config/model_settings.h"
#include "server/metrics/server_metrics.h"
#include "server/models/model_rollout.h"

namespace onnxd {

class Generator;
struct Ensemble;
struct PaddingPlan;
struct SequencePlan;
struct TextPlan;

// Any thread.
struct ModelVersion {
  using Time = std::chrono::steady_clock::time_point;

  std::string model;
  std::string version;
  ModelSettings settings;
  std::vector<TensorSignature> inputs, outputs;  // of its requests
  std::shared_ptr<MemoryAccount> memory;         // all that the session allocates
  std::unique_ptr<InferenceSession> session;     // null: an ensemble, or evicted
  std::shared_ptr<const Ensemble> ensemble;      // null: it has a session
  std::shared_ptr<const SequencePlan>
      sequence;                                // null: requests have nothing to do with each other
  std::shared_ptr<const PaddingPlan> padding;  // null: none
  std::shared_ptr<const TextPlan> texts;       // null: none, or evicted
  bool takes_texts = false;
  std::shared_ptr<Generator> generator;  // null: it writes no texts, or is evicted
  bool writes_texts = false;
  bool evicted = false;  // it has no session, to make room; the next request has it loaded again
  std::shared_ptr<ModelMetrics> metrics;
  std::shared_ptr<ScheduledModel> scheduled;
  std::shared_ptr<ScheduledModel> tokenizing;  // its texts; null where it takes none
  std::shared_ptr<ModelRollout> rollout;       // of all versions of the model; may be null
  Time loaded{};
  mutable std::atomic<Time> last_used{Time{}};

  // Whether rows of different requests may share a run: since the trial agreed.
  bool joins_rows() const { return joins_rows_.load(std::memory_order_acquire); }
  // Why not; empty when they may, or nobody knows yet.
  std::string why_alone() const {
    std::lock_guard lock(mutex_);
    return why_alone_;
  }
  // What the trial found; an empty reason: rows may join.
  void SetTrial(std::string why_alone) const {
    std::lock_guard lock(mutex_);
    joins_rows_.store(why_alone.empty(), std::memory_order_release);
    why_alone_ = std::move(why_alone);
  }

  // After a run that succeeded: puts the prepared model into the cache, on a thread of its own.
  // Only the first call does.
  void SaveToCacheOnce() const {
    std::call_once(saved_, [this] {
      if (!session->wants_saving()) return;
      saving_ = std::async(std::launch::async, [this] {
        const Status status = session->SaveToCache();
        if (!status.ok()) LogWarning(StrCat("model '", model, "': ", status.ToString()));
      });
    });
  }

 private:
  mutable std::atomic<bool> joins_rows_{false};
  mutable std::mutex mutex_;
  mutable std::string why_alone_;  // guarded by mutex_
  mutable std::once_flag saved_;
  mutable std::future<void> saving_;  // its destructor waits
};

}  // namespace onnxd
