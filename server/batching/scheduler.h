// Scheduler: a fixed set of threads that runs the most urgent ready batch of all models.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "server/batching/batch_policy.h"
#include "server/batching/request_queue.h"
#include "server/batching/rows.h"
#include "server/metrics/server_metrics.h"

namespace onnxd {

// What stops a run between its steps, how often it lets other threads run, and where it writes.
struct RunLimits {
  std::optional<SteadyTime> deadline;
  const std::atomic<bool>* cancelled = nullptr;
  std::chrono::nanoseconds yield_every{0};
  std::span<const Tensor> outputs_into = {};  // as of RunOptions
};

// Computes the outputs of one batch. Called by several threads at once; must not throw.
using RunFunction =
    std::function<Result<std::vector<Value>>(std::span<const Value> inputs, const RunLimits&)>;

// How batches of a model are computed. Both are called by several threads at once.
struct BatchComputation {
  RunFunction run;
  TensorMaker make_input = Tensor::Create;  // in which the rows of several requests are joined
  // Runs share a device, which computes one after the other and prepares for each number of rows.
  bool on_device = false;
};

// What a model's requests may ask for, as Triton's queue policy has it.
struct QueuePolicy {
  // A request's priority counts where there are levels: 1 is the most urgent, and what is not from
  // 1 to `priority_levels` is the default level.
  int64_t priority_levels = 0;
  int64_t default_priority_level = 1;
  int64_t max_requests = 0;     // that wait; 0: only the scheduler's limit holds
  int64_t max_executors = 0;    // that run it at once; 0: see Scheduler
  bool delays_expired = false;  // a deadline only orders: what missed it comes after the others
  bool runs_inline = true;      // a lone request may run on the thread that submits it
  bool is_admitted = false;     // parts of what was let in before: no limit of a queue refuses them
};

// What the scheduler keeps of a model: its queue and its times. Whoever submits keeps alive what
// the computation needs until the request's `done` was called.
class ScheduledModel {
 public:
  ScheduledModel(std::string name, BatchComputation computation,
                 std::shared_ptr<ModelMetrics> metrics, QueuePolicy policy = {})
      : name_(std::move(name)),
        computation_(std::move(computation)),
        metrics_(std::move(metrics)),
        policy_(policy) {}

 private:
  friend class Scheduler;
  const std::string name_;
  const BatchComputation computation_;
  const std::shared_ptr<ModelMetrics> metrics_;
  const QueuePolicy policy_;
  // All below is guarded by the scheduler's mutex.
  BatchSettings settings_;
  RequestQueue queue_;
  ServiceTimes times_;
  double rows_per_second_ = 0;
  SteadyTime last_arrival_{};
  std::optional<SteadyTime> waits_since_;  // for more rows, while an executor is idle
  int64_t running_ = 0;
  int64_t at_work_ = 0;    // threads that run it or write its answers
  SteadyTime last_end_{};  // of a run
};

// Any thread.
//
// One failing request of a batch fails alone: the others run again without it. A model whose rows
// take 5 ms or more leaves one executor to others while these have had requests lately, but for
// steps of its own requests. A lone request of a model whose last runs took less than 300 us runs
// on the thread that submits it, as long as `inline_callers` allows. Requests of more rows than a
// batch may have are split and joined. Of a model on a device three batches are under way at most:
// one is gathered while one computes and one is answered; they run with DeviceBatchSize rows. Where
// runs and what waits would take more than half of the processors, each has one thread.
class Scheduler {
 public:
  struct Options {
    int executors = 1;
    int64_t max_queued = 1024;  // requests of all models together, or parts of large ones
    int inline_callers = 0;     // threads that may run what they submit, at once
  };

  // Throws std::system_error where no more threads may be started.
  Scheduler(const Options& options, ServerMetrics& metrics);
  // Runs what is queued, then joins.
  ~Scheduler();
  // Answers what is queued with kUnavailable, lets what runs finish, and joins; Submit refuses from
  // then on.
  void Abandon();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // From now on requests of this model may share runs.
  void SetBatching(ScheduledModel& model, BatchSettings settings);
  BatchSettings Batching(const ScheduledModel& model) const;

  // `done` gets kUnavailable when the queue is full, so much waits that the request would miss its
  // deadline, or the scheduler is stopping; kDeadlineExceeded when it takes longer than that by
  // itself, or the deadline passes before the answer; kCancelled when the client went, or what the
  // run returns.
  void Submit(const std::shared_ptr<ScheduledModel>& model, BatchRequest request);

  int64_t queued() const;
  int64_t idle_executors() const;  // that sleep until there is work for them
  struct Load {
    int64_t queued = 0;  // requests
    // Executors at work, a mean of about 10 s, and seconds of work that wait, by executors.
    double saturation = 0;
  };
  // What it is now, of which the metrics are told.
  Load ObserveLoad();
  // Of one model: waiting or running.
  bool IsIdle(const ScheduledModel& model) const;

 private:
  using Entries = std::vector<RequestQueue::Entry>;
  struct Batch {
    std::shared_ptr<ScheduledModel> model;
    Entries entries;
    std::chrono::nanoseconds waited{0};  // for more rows
  };

  // What an executor runs, until it is over.
  struct Executor {
    const ScheduledModel* model = nullptr;
    int64_t rows = 0;
    SteadyTime start{};
  };

  // A run of a model that has been counted in running_ until End(), in at_work_ until its own end;
  // and where it is one on its caller's thread (no `executor`), in inline_running_.
  class Counted {
   public:
    Counted(Scheduler& scheduler, ScheduledModel& model, Executor* executor)
        : scheduler_(scheduler), model_(model), executor_(executor) {}
    ~Counted();
    void End();  // with mutex_ held
    bool is_inline() const { return executor_ == nullptr; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    Scheduler& scheduler_;
    ScheduledModel& model_;
    Executor* const executor_;
    bool ended_ = false;
  };

  void Work(Executor& executor);
  void Watch();
  void RefuseLost(std::unique_lock<std::mutex>& lock);
  void RunCounted(Batch batch, Executor& executor);
  void Join();

  // With mutex_ held.
  std::optional<Batch> NextBatch(SteadyTime now, double& wait);
  int64_t ShareOf(const ScheduledModel& model) const;
  BatchDecision Decide(const ScheduledModel& model, SteadyTime now) const;
  bool HasItsShare(const ScheduledModel& model, int64_t rows, SteadyTime now) const;
  // What comes before a request of that urgency, in batches of so many rows: rows, and seconds of
  // one executor.
  struct Waiting {
    int64_t batch_size = 1;
    int64_t rows = 0;
    double seconds = 0;
  };
  Waiting WaitingBefore(const ScheduledModel& model, int64_t priority, SteadyTime due) const;
  // Since when it computes: on a device not before the last run ended.
  SteadyTime ComputesSince(const ScheduledModel& model, SteadyTime start) const;
  // Seconds until the executors' runs of the model are over, all of them together.
  double RemainingOf(const ScheduledModel& model, SteadyTime now) const;
  Status Stopping() const;  // counted
  Status Admit(const ScheduledModel& model, const BatchRequest& request, SteadyTime now) const;
  bool RunsInline(const ScheduledModel& model, int64_t rows) const;
  void NoteArrival(ScheduledModel& model, const BatchRequest& request, SteadyTime now);
  void Enqueue(const std::shared_ptr<ScheduledModel>& model, BatchRequest request, SteadyTime now);
  void NoteTaken(const std::shared_ptr<ScheduledModel>& model);
  void CountQueued();
  void NoteAtWork(int64_t change);

  // Without.
  int64_t RunRows(const ScheduledModel& model, const Entries& entries) const;
  bool HasIdleProcessors() const;
  void RunHere(const std::shared_ptr<ScheduledModel>& model, BatchRequest request, SteadyTime now);
  Entries DropLost(const ScheduledModel& model, Entries entries, SteadyTime now);
  void Run(const std::shared_ptr<ScheduledModel>& model, Entries entries, Counted& running);
  void RunAlone(ScheduledModel& model, RequestQueue::Entry entry);

  const Options options_;
  const int64_t processors_;
  ServerMetrics& metrics_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, watch_;
  std::map<const ScheduledModel*, std::shared_ptr<ScheduledModel>> waiting_;  // guarded by mutex_
  // When a model was asked last, how long a row of it took alone, and what was asked along with it.
  struct Lately {
    SteadyTime arrival;
    double row = 0;
    std::shared_ptr<const ModelSteps> steps;
  };
  std::map<const ScheduledModel*, Lately> lately_;  // guarded by mutex_
  int64_t queued_ = 0;                              // guarded by mutex_
  int64_t idle_ = 0;                                // guarded by mutex_
  int64_t inline_running_ = 0;                      // guarded by mutex_
  bool watch_idle_ = false;  // the watching thread waits for a request; guarded by mutex_
  // Executors at work, now and their mean; guarded by mutex_.
  int64_t at_work_ = 0;
  double mean_at_work_ = 0;
  SteadyTime mean_until_{};
  bool stopping_ = false;            // guarded by mutex_
  std::vector<Executor> executors_;  // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace onnxd
