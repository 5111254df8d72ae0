#include "server/batching/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "runtime/base/exceptions.h"
#include "runtime/base/lock_briefly.h"
#include "runtime/base/log.h"
#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "runtime/base/thread_pool.h"
#include "server/batching/batch_run.h"

namespace onnxd {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::nanoseconds;

// Of a lone request on the thread that brings it: where another such thread is free, and anywhere,
// since handing it over takes longer.
constexpr double kInlineP95 = 300e-6, kTrifle = 50e-6;
constexpr double kLongRun = 5e-3;  // seconds
constexpr double kMuchLonger = 4;  // times what a row of another model takes
constexpr auto kLately = std::chrono::seconds(10);
// Of one request. One with more rows than these and max_batch_size allow runs in larger parts.
constexpr int64_t kMostParts = 64;
constexpr size_t kMostLately = 256;
// Requests without a deadline are due after so many times what a lone one takes, so that those of
// quick models pass before those of slow ones, and nobody waits for ever.
constexpr double kPatience = 10;
constexpr double kLeastPatience = 1e-3;
// Times vary: a request is let in only if it would make its deadline with this much to spare, and
// run with that much.
constexpr double kAdmitMargin = 1.2, kRunMargin = 1.1;
constexpr double kLeastRemaining = 0.1;  // of a run that takes longer than expected
constexpr double kMeanSeconds = 10;      // of executors at work
constexpr double kNoMemoryWait = 0.01;   // seconds
// What runs on an executor lets the threads that answer come between; elsewhere it is short anyway.
constexpr nanoseconds kYieldEvery = std::chrono::milliseconds(1);
// Of a device's batches: one is gathered, one computes and one is answered.
constexpr int64_t kDeviceExecutors = 3;
constexpr auto kWatchInterval = std::chrono::milliseconds(10);

nanoseconds Nanoseconds(double seconds) {
  return nanoseconds(static_cast<int64_t>(std::min(seconds, 1e6) * 1e9));
}

double SecondsBetween(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double>(to - from).count();
}

void Refuse(RequestQueue::Entry& entry, Status status) {
  entry.request.done({std::move(status), Clock::now() - entry.queued, nanoseconds(0)});
}

// An executor that gives the last answer of a batch looks for work right after it, sooner than
// another that is woken: what that answer submits (the next step of an ensemble, the next turn of a
// sequence) waits for it alone.
class LastAnswer {
 public:
  explicit LastAnswer(bool is_it) : is_it_(is_it) {
    if (is_it_) keeps_one_ = true;
  }
  ~LastAnswer() {
    if (is_it_) keeps_one_ = false;
  }
  LastAnswer(const LastAnswer&) = delete;
  LastAnswer& operator=(const LastAnswer&) = delete;
  // Whether the calling thread takes it itself: the first one.
  static bool Keeps() { return std::exchange(keeps_one_, false); }

 private:
  static thread_local bool keeps_one_;
  const bool is_it_;
};
thread_local bool LastAnswer::keeps_one_ = false;

// What ran for one request; too late is as bad as not at all.
void Answer(RequestQueue::Entry& entry, Result<std::vector<Value>> outputs, SteadyTime start,
            SteadyTime end) {
  if (outputs.ok() && entry.request.deadline && *entry.request.deadline < end) {
    outputs = DeadlineExceeded("the deadline expired while the request ran");
  }
  entry.request.done({std::move(outputs), start - entry.queued, end - start});
}

Result<std::vector<Value>> PartOf(BatchOutputs& outputs, size_t i) {
  if (!outputs.status.ok()) return outputs.status;
  return std::move(outputs.parts[i]);
}

bool IsStep(const ScheduledModel& model, const ModelSteps* steps) {
  return steps != nullptr && std::find(steps->begin(), steps->end(), &model) != steps->end();
}

int64_t Milliseconds(double seconds) { return std::llround(seconds * 1e3); }

int64_t RowsOf(const std::vector<RequestQueue::Entry>& entries) {
  return std::accumulate(
      entries.begin(), entries.end(), int64_t{0},
      [](int64_t rows, const RequestQueue::Entry& entry) { return rows + entry.request.rows; });
}

// Why a request that waited is lost; success when it is not.
Status LossOf(const BatchRequest& request, SteadyTime now) {
  if (request.cancelled != nullptr && request.cancelled->load(std::memory_order_relaxed)) {
    return Cancelled("the client is gone");
  }
  if (request.deadline && *request.deadline < now) {
    return DeadlineExceeded("the deadline expired while the request waited");
  }
  return Status::Ok();
}

}  // namespace

Scheduler::Scheduler(const Options& options, ServerMetrics& metrics)
    : options_(options),
      processors_(AvailableProcessors()),
      metrics_(metrics),
      executors_(static_cast<size_t>(options.executors)) {
  try {
    for (Executor& executor : executors_) threads_.emplace_back([&] { Work(executor); });
    threads_.emplace_back([this] { Watch(); });
  } catch (...) {
    Join();
    throw;
  }
}

Scheduler::~Scheduler() { Join(); }

void Scheduler::Join() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  watch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void Scheduler::Abandon() {
  Entries dropped;
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
    for (auto& [key, model] : waiting_) {
      for (RequestQueue::Entry& entry : model->queue_.TakeAll())
        dropped.push_back(std::move(entry));
    }
    waiting_.clear();
    queued_ = 0;
  }
  for (RequestQueue::Entry& entry : dropped) Refuse(entry, Stopping());
  Join();
}

void Scheduler::SetBatching(ScheduledModel& model, BatchSettings settings) {
  std::lock_guard lock(mutex_);
  model.settings_ = std::move(settings);
}

BatchSettings Scheduler::Batching(const ScheduledModel& model) const {
  std::lock_guard lock(mutex_);
  return model.settings_;
}

bool Scheduler::IsIdle(const ScheduledModel& model) const {
  std::lock_guard lock(mutex_);
  return model.running_ == 0 && model.queue_.empty();
}

int64_t Scheduler::queued() const {
  std::lock_guard lock(mutex_);
  return queued_;
}

int64_t Scheduler::idle_executors() const {
  std::lock_guard lock(mutex_);
  return idle_;
}

void Scheduler::NoteArrival(ScheduledModel& model, const BatchRequest& request, SteadyTime now) {
  const int64_t rows = std::max<int64_t>(request.rows, 1);
  // The mean over about the last tenth of a second, or the last arrival where they are rarer.
  const double gap = std::max(1e-6, SecondsBetween(model.last_arrival_, now));
  const double kept = std::exp(-gap / 0.1);
  model.rows_per_second_ =
      kept * model.rows_per_second_ + (1 - kept) * static_cast<double>(rows) / gap;
  model.last_arrival_ = now;
  lately_[&model] = {now, model.times_.Expected(1).value_or(0), request.steps};
  if (lately_.size() > kMostLately) {
    std::erase_if(lately_,
                  [now](const auto& other) { return now - other.second.arrival > kLately; });
  }
}

// Executors that may be at work for it at once; callers' threads count as well.
int64_t Scheduler::ShareOf(const ScheduledModel& model) const {
  if (model.policy_.max_executors > 0) return model.policy_.max_executors;
  return model.computation_.on_device ? kDeviceExecutors : std::numeric_limits<int64_t>::max();
}

bool Scheduler::RunsInline(const ScheduledModel& model, int64_t rows) const {
  if (!model.policy_.runs_inline || stopping_ || !model.queue_.empty() ||
      model.at_work_ >= ShareOf(model)) {
    return false;
  }
  if (WaitsAsTold(model.settings_)) return false;
  double longest = model.times_.LoneP95().value_or(1);
  if (rows > 1) longest = std::max(longest, model.times_.Expected(rows).value_or(1));
  if (longest < kTrifle) return options_.inline_callers > 0;
  return longest < kInlineP95 && inline_running_ < options_.inline_callers && model.running_ == 0;
}

// Large requests take what their size takes, small ones their share of the batches they will fill.
Scheduler::Waiting Scheduler::WaitingBefore(const ScheduledModel& model, int64_t priority,
                                            SteadyTime due) const {
  const int64_t size = model.times_.BestSize(model.settings_.max_batch_size);
  const double row = model.times_.Expected(size).value_or(0) / static_cast<double>(size);
  Waiting waiting{size, 0, 0};
  for (const int64_t rows : model.queue_.RowsBefore(priority, due)) {
    waiting.rows += rows;
    waiting.seconds +=
        rows > size ? model.times_.Believed(rows).value_or(0) : row * static_cast<double>(rows);
  }
  return waiting;
}

SteadyTime Scheduler::ComputesSince(const ScheduledModel& model, SteadyTime start) const {
  return model.computation_.on_device ? std::max(start, model.last_end_) : start;
}

double Scheduler::RemainingOf(const ScheduledModel& model, SteadyTime now) const {
  double seconds = 0;
  for (const Executor& executor : executors_) {
    if (executor.model != &model) continue;
    const double expected = model.times_.Believed(executor.rows).value_or(0);
    const double past = SecondsBetween(ComputesSince(model, executor.start), now);
    seconds += std::max(kLeastRemaining * expected, expected - past);
  }
  return seconds;
}

Status Scheduler::Stopping() const {
  metrics_.CountShed("drain");
  return Unavailable("the server is stopping");
}

Status Scheduler::Admit(const ScheduledModel& model, const BatchRequest& request,
                        SteadyTime now) const {
  if (stopping_) return Stopping();
  if (model.policy_.is_admitted) return Status::Ok();
  if (queued_ >= options_.max_queued) {
    metrics_.CountShed("queue_full");
    return Unavailable(StrCat("the queue is full (", options_.max_queued, " requests)"));
  }
  const int64_t most = model.policy_.max_requests;
  if (most > 0 && static_cast<int64_t>(model.queue_.size()) >= most) {
    metrics_.CountShed("queue_full");
    return Unavailable(StrCat("the model's queue is full (", most, " requests)"));
  }
  if (model.policy_.delays_expired) return Status::Ok();
  // An idle model tries whatever was measured: one slow run must not refuse all that come later.
  if (!request.deadline || (model.running_ == 0 && model.queue_.empty())) return Status::Ok();
  const double left = SecondsBetween(now, *request.deadline);
  const double own = model.times_.Believed(std::max<int64_t>(request.rows, 1)).value_or(0);
  if (own > left) {
    metrics_.CountShed("deadline");
    return DeadlineExceeded(StrCat("it takes about ", Milliseconds(own), " ms and has ",
                                   Milliseconds(left), " until its deadline"));
  }
  const Waiting waiting = WaitingBefore(model, request.priority, *request.deadline);
  // It will run with those before it, once the runs of now are over.
  const int64_t with_it = waiting.rows + std::max<int64_t>(request.rows, 1);
  const double batch = model.times_.Expected(std::min(waiting.batch_size, with_it)).value_or(own);
  const double before = waiting.seconds + RemainingOf(model, now);
  const int64_t at_once = model.computation_.on_device ? 1 : options_.executors;
  const double finish = before / static_cast<double>(at_once) + std::max(own, batch);
  if (kAdmitMargin * finish <= left) return Status::Ok();
  metrics_.CountShed("deadline");
  return Unavailable(StrCat("it would be answered in about ", Milliseconds(finish), " ms and has ",
                            Milliseconds(left), " until its deadline"));
}

void Scheduler::Submit(const std::shared_ptr<ScheduledModel>& model, BatchRequest request) {
  const SteadyTime now = Clock::now();
  const QueuePolicy& policy = model->policy_;
  if (request.priority < 1 || request.priority > policy.priority_levels) {
    request.priority = policy.default_priority_level;
  }
  Status refused;
  bool here = false, watch = false;
  {
    const auto lock = LockBriefly(mutex_);
    NoteArrival(*model, request, now);
    here = RunsInline(*model, request.rows);
    if (here) {
      ++inline_running_;
      ++model->running_;
      ++model->at_work_;
      NoteAtWork(1);
    } else {
      refused = Admit(*model, request, now);
      if (refused.ok()) Enqueue(model, std::move(request), now);
      watch = std::exchange(watch_idle_, false);
    }
  }
  if (here) return RunHere(model, std::move(request), now);
  if (!refused.ok()) return request.done({std::move(refused), nanoseconds(0), nanoseconds(0)});
  if (!LastAnswer::Keeps()) wake_.notify_one();
  if (watch) watch_.notify_one();
}

void Scheduler::Enqueue(const std::shared_ptr<ScheduledModel>& model, BatchRequest request,
                        SteadyTime now) {
  const double expected = model->times_.Expected(1).value_or(0);
  const nanoseconds patience = Nanoseconds(std::max(kLeastPatience, kPatience * expected));
  const int64_t most = model->settings_.max_batch_size;
  if (model->queue_.empty()) model->waits_since_.reset();
  waiting_.emplace(model.get(), model);
  try {
    if (most > 1 && request.rows > most) {
      const int64_t part_rows = std::max(most, (request.rows + kMostParts - 1) / kMostParts);
      for (BatchRequest& part : SplitRequest(std::move(request), part_rows)) {
        model->queue_.Push(std::move(part), now, patience);
      }
    } else {
      model->queue_.Push(std::move(request), now, patience);
    }
  } catch (...) {
    NoteTaken(model);  // what waits has requests
    throw;
  }
  CountQueued();
}

void Scheduler::Counted::End() {
  if (std::exchange(ended_, true)) return;
  --model_.running_;
  if (is_inline()) {
    --scheduler_.inline_running_;
  } else {
    executor_->model = nullptr;
  }
}

Scheduler::Counted::~Counted() {
  bool wake = false;
  {
    const auto lock = LockBriefly(scheduler_.mutex_);
    End();
    --model_.at_work_;
    scheduler_.NoteAtWork(-1);
    // An executor takes one itself.
    wake = !scheduler_.waiting_.empty() && (is_inline() || scheduler_.queued_ > 1);
  }
  if (wake) scheduler_.wake_.notify_one();  // this model may have had its share
}

void Scheduler::RunHere(const std::shared_ptr<ScheduledModel>& model, BatchRequest request,
                        SteadyTime now) {
  Counted running(*this, *model, nullptr);
  Entries alone;
  alone.push_back({std::move(request), now});
  model->metrics_->ObserveBatchWait(nanoseconds(0));
  Run(model, std::move(alone), running);
}

// One executor stays free of runs that take so long, with the answers that are written after them,
// that other models' requests, quick in comparison, would wait for them.
bool Scheduler::HasItsShare(const ScheduledModel& model, int64_t rows, SteadyTime now) const {
  if (model.at_work_ >= ShareOf(model)) return true;
  if (options_.executors < 2 || model.at_work_ < options_.executors - 1) return false;
  const double run = model.times_.Expected(rows).value_or(0);
  if (run < kLongRun) return false;
  return std::any_of(lately_.begin(), lately_.end(), [&](const auto& other) {
    const auto& [asked, last] = other;
    return asked != &model && now - last.arrival < kLately && kMuchLonger * last.row < run &&
           !IsStep(model, last.steps.get());  // which would wait for this model anyway
  });
}

BatchDecision Scheduler::Decide(const ScheduledModel& model, SteadyTime now) const {
  if (model.settings_.max_batch_size <= 1 || stopping_) return {1, 0};
  const auto together = model.queue_.Count(model.settings_.max_batch_size);
  BatchView view;
  view.rows = together.rows;
  view.waited = SecondsBetween(together.oldest, now);
  view.rows_per_second = model.rows_per_second_;
  view.idle_executors = idle_ + 1;
  view.on_device = model.computation_.on_device;
  view.executors = view.on_device ? 1 : options_.executors;
  view.busy = view.on_device ? RemainingOf(model, now) : 0;
  return DecideBatch(view, model.times_, model.settings_);
}

std::optional<Scheduler::Batch> Scheduler::NextBatch(SteadyTime now, double& wait) {
  std::shared_ptr<ScheduledModel> chosen;
  int64_t rows = 0;
  for (const auto& [key, model] : waiting_) {
    if (chosen != nullptr && chosen->queue_.Urgency() <= model->queue_.Urgency()) continue;
    const BatchDecision decision = Decide(*model, now);
    if (decision.rows == 0) {
      if (!model->waits_since_) model->waits_since_ = now;
      wait = std::min(wait, decision.wait);
      continue;
    }
    if (HasItsShare(*model, std::max(decision.rows, model->queue_.Count(1).rows), now)) continue;
    chosen = model;
    rows = decision.rows;
  }
  if (chosen == nullptr) return std::nullopt;
  Batch batch{chosen, chosen->queue_.Take(rows)};
  NoteTaken(chosen);
  if (chosen->waits_since_) batch.waited = now - *chosen->waits_since_;
  chosen->waits_since_.reset();
  ++chosen->running_;
  ++chosen->at_work_;
  NoteAtWork(1);
  return batch;
}

void Scheduler::NoteTaken(const std::shared_ptr<ScheduledModel>& model) {
  if (model->queue_.empty()) waiting_.erase(model.get());
  CountQueued();
}

void Scheduler::CountQueued() {
  queued_ = 0;
  for (const auto& [key, model] : waiting_) queued_ += static_cast<int64_t>(model->queue_.size());
}

// An exponential mean of the last 10 s or so.
void Scheduler::NoteAtWork(int64_t change) {
  const SteadyTime now = Clock::now();
  const double kept = std::exp(-SecondsBetween(mean_until_, now) / kMeanSeconds);
  mean_at_work_ = kept * mean_at_work_ + (1 - kept) * static_cast<double>(at_work_);
  mean_until_ = now;
  at_work_ += change;
}

Scheduler::Load Scheduler::ObserveLoad() {
  std::vector<std::pair<const ModelMetrics*, int64_t>> queued;
  double seconds = 0;
  std::unique_lock lock(mutex_);
  for (const auto& [key, model] : waiting_) {
    const auto requests = static_cast<int64_t>(model->queue_.size());
    queued.emplace_back(model->metrics_.get(), requests);
    seconds += WaitingBefore(*model, INT64_MAX, SteadyTime::max()).seconds;
  }
  NoteAtWork(0);
  const Load load{queued_, (mean_at_work_ + seconds) / static_cast<double>(options_.executors)};
  lock.unlock();
  metrics_.SetLoad(queued, load.saturation);
  return load;
}

void Scheduler::Work(Executor& executor) {
  std::unique_lock lock(mutex_);
  while (true) {
    double wait = 1;
    std::optional<Batch> batch;
    const Status chosen = CatchExceptions([&] {
      batch = NextBatch(Clock::now(), wait);
      return Status::Ok();
    });
    if (!chosen.ok()) wait = kNoMemoryWait;
    if (batch) {
      executor = {batch->model.get(), RowsOf(batch->entries), Clock::now()};
      lock.unlock();
      RunCounted(*std::move(batch), executor);
      batch.reset();
      lock.lock();
      continue;
    }
    if (stopping_ && waiting_.empty()) return;
    ++idle_;
    if (waiting_.empty()) {
      wake_.wait(lock);
    } else {
      wake_.wait_for(lock, Nanoseconds(wait));
    }
    --idle_;
  }
}

// Requests that are lost for want of memory are answered by whoever holds their `done`.
void Scheduler::RunCounted(Batch batch, Executor& executor) {
  Counted running(*this, *batch.model, &executor);
  const Status ran = CatchExceptions([&] {
    batch.model->metrics_->ObserveBatchWait(batch.waited);
    Run(batch.model, std::move(batch.entries), running);
    return Status::Ok();
  });
  if (!ran.ok()) LogWarning(StrCat("a batch was lost: ", ran.ToString()));
}

// Answers requests that are lost while all executors are busy.
void Scheduler::Watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (waiting_.empty()) {
      watch_idle_ = true;
      watch_.wait(lock);
      continue;
    }
    watch_.wait_for(lock, kWatchInterval, [this] { return stopping_; });
    (void)CatchExceptions([&] {
      RefuseLost(lock);
      return Status::Ok();
    });
    if (!lock.owns_lock()) lock.lock();
  }
}

void Scheduler::RefuseLost(std::unique_lock<std::mutex>& lock) {
  const SteadyTime now = Clock::now();
  Entries lost;
  const auto models = waiting_;
  for (const auto& [key, model] : models) {
    if (model->policy_.delays_expired) model->queue_.DelayExpired(now);
    Entries of_model = model->queue_.TakeLost(now);
    NoteTaken(model);
    std::move(of_model.begin(), of_model.end(), std::back_inserter(lost));
  }
  lock.unlock();
  for (RequestQueue::Entry& entry : lost) Refuse(entry, LossOf(entry.request, now));
}

// Those that are gone, too late or about to be: running them would make the next ones late as well.
Scheduler::Entries Scheduler::DropLost(const ScheduledModel& model, Entries entries,
                                       SteadyTime now) {
  const bool any_due = std::any_of(
      entries.begin(), entries.end(),
      [](const RequestQueue::Entry& entry) { return entry.request.deadline.has_value(); });
  double expected = 0;
  if (any_due) {
    std::lock_guard lock(mutex_);
    const bool others_wait = model.running_ > 1 || !model.queue_.empty();
    if (others_wait) expected = model.times_.Believed(RowsOf(entries)).value_or(0);
  }
  Entries alive;
  for (RequestQueue::Entry& entry : entries) {
    if (model.policy_.delays_expired) entry.request.deadline.reset();
    Status loss = LossOf(entry.request, now);
    if (loss.ok() && entry.request.deadline &&
        SecondsBetween(now, *entry.request.deadline) < kRunMargin * expected) {
      metrics_.CountShed("deadline");
      // Had it been too long from the start, no other server would have helped.
      const bool hopeless = SecondsBetween(entry.queued, *entry.request.deadline) < expected;
      loss = Status(hopeless ? StatusCode::kDeadlineExceeded : StatusCode::kUnavailable,
                    StrCat("its deadline could not be met any more: it takes about ",
                           Milliseconds(expected), " ms"));
    }
    if (loss.ok()) {
      alive.push_back(std::move(entry));
    } else {
      Refuse(entry, std::move(loss));
    }
  }
  return alive;
}

int64_t Scheduler::RunRows(const ScheduledModel& model, const Entries& entries) const {
  const int64_t rows = RowsOf(entries);
  if (!model.computation_.on_device || rows == 0) return rows;
  const auto lock = LockBriefly(mutex_);
  return DeviceBatchSize(rows, model.settings_);
}

// For the threads of a pool, besides those of the runs under way.
bool Scheduler::HasIdleProcessors() const {
  const auto lock = LockBriefly(mutex_);
  return options_.executors == 1 || 2 * (at_work_ + queued_) <= processors_;
}

void Scheduler::Run(const std::shared_ptr<ScheduledModel>& model, Entries entries,
                    Counted& running) {
  const SteadyTime start = Clock::now();
  Entries alive = DropLost(*model, std::move(entries), start);
  std::optional<BatchOutputs> outputs;
  int64_t most = 1;
  if (!alive.empty()) {
    std::optional<ThreadPool::OnCaller> one_thread;
    if (!running.is_inline() && !HasIdleProcessors()) one_thread.emplace();
    outputs = RunBatch(alive, model->computation_,
                       running.is_inline() ? nanoseconds(0) : kYieldEvery, RunRows(*model, alive));
  }
  if (!outputs) return;
  const SteadyTime end = Clock::now();
  const StatusCode code = outputs->status.code();
  const bool runs_alone = code != StatusCode::kOk && code != StatusCode::kDeadlineExceeded &&
                          (alive.size() > 1 || outputs->mixes_rows);
  bool wake = false;
  {
    const auto lock = LockBriefly(mutex_);
    if (outputs->status.ok()) {
      model->times_.Record(outputs->rows, SecondsBetween(ComputesSince(*model, start), end));
      model->last_end_ = std::max(model->last_end_, end);
    }
    most = model->settings_.max_batch_size;
    if (outputs->mixes_rows) model->settings_ = BatchSettings{};
    // Whoever asks again on its answer finds that this run is over.
    if (!runs_alone) running.End();
    // What waited for the device may begin while this is answered.
    wake = model->computation_.on_device && !model->queue_.empty();
  }
  if (wake) wake_.notify_one();
  if (outputs->status.ok()) {
    model->metrics_->ObserveRun(outputs->rows, most, static_cast<int64_t>(alive.size()),
                                outputs->times);
  }
  if (outputs->mixes_rows) {
    LogWarning(StrCat("model '", model->name_, "': outputs of a batch of ", outputs->rows,
                      " rows have other numbers of rows; it runs requests alone from now on"));
  }
  if (runs_alone) {
    for (RequestQueue::Entry& entry : alive) RunAlone(*model, std::move(entry));
    return;
  }
  for (size_t i = 0; i < alive.size(); ++i) {
    const LastAnswer last(!running.is_inline() && i + 1 == alive.size());
    Answer(alive[i], PartOf(*outputs, i), start, end);
  }
}

void Scheduler::RunAlone(ScheduledModel& model, RequestQueue::Entry entry) {
  const SteadyTime start = Clock::now();
  Status loss = LossOf(entry.request, start);
  if (!loss.ok()) return Refuse(entry, std::move(loss));
  std::vector<RequestQueue::Entry> alone;
  alone.push_back(std::move(entry));
  BatchOutputs outputs = RunBatch(alone, model.computation_, kYieldEvery);
  const SteadyTime end = Clock::now();
  if (outputs.status.ok()) model.metrics_->ObserveRun(outputs.rows, 1, 1, outputs.times);
  Answer(alone[0], PartOf(outputs, 0), start, end);
}

}  // namespace onnxd
