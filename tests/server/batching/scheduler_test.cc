#include "server/batching/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>

#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "runtime/base/thread_pool.h"

namespace onnxd {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Tensor Column(std::vector<float> rows) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(rows.size()), 1}, rows);
}

BatchRequest RequestOf(std::vector<float> rows) {
  BatchRequest request;
  request.rows = static_cast<int64_t>(rows.size());
  request.inputs = {Column(std::move(rows))};
  return request;
}

// Doubles its rows; refuses batches with a negative row; holds every run while `gate` is locked.
class FakeModel {
 public:
  explicit FakeModel(ServerMetrics& metrics, const std::string& name = "fake",
                     QueuePolicy policy = {}, bool on_device = false)
      : model(std::make_shared<ScheduledModel>(
            name,
            BatchComputation{[this](std::span<const Value> inputs, const RunLimits& limits) {
                               return Run(inputs, limits);
                             },
                             [this](DataType type, const Shape& shape) {
                               ++made;
                               return Tensor::Create(type, shape);
                             },
                             on_device},
            metrics.ForModel(name, "1"), policy)) {}

  Result<std::vector<Value>> Run(std::span<const Value> inputs, const RunLimits& limits) {
    ++started;
    std::lock_guard pass(gate);
    if (limits.cancelled != nullptr && limits.cancelled->load()) return Cancelled("stopped");
    if (runs_out_of_time) return DeadlineExceeded("too late");
    const Tensor& x = inputs[0].tensor();
    std::lock_guard lock(mutex);
    batches.push_back(x.shape()[0]);
    Tensor y = *Tensor::Create(DataType::kFloat, x.shape());
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      if (x.data<float>()[i] < 0) return InvalidArgument("a negative row");
      y.mutable_data<float>()[i] = 2 * x.data<float>()[i];
    }
    if (drops_rows && x.shape()[0] > 1) return std::vector<Value>{Tensor::Scalar(1.0f)};
    return std::vector<Value>{y};
  }

  // Until a run has begun.
  void AwaitStart(int count) {
    while (started.load() < count) std::this_thread::sleep_for(milliseconds(1));
  }

  std::mutex gate, mutex;
  std::atomic<int> started{0}, made{0};  // runs, and inputs of batches
  std::vector<int64_t> batches;          // rows of each run; guarded by mutex
  bool drops_rows = false, runs_out_of_time = false;
  const std::shared_ptr<ScheduledModel> model;
};

BatchSettings UpTo(int64_t rows) {
  BatchSettings settings;
  settings.max_batch_size = rows;
  settings.preferred_batch_size = {rows};
  settings.max_queue_delay = 0;
  return settings;
}

std::future<BatchResult> Submit(Scheduler& scheduler, FakeModel& fake, BatchRequest request) {
  auto promise = std::make_shared<std::promise<BatchResult>>();
  std::future<BatchResult> future = promise->get_future();
  request.done = [promise](BatchResult result) { promise->set_value(std::move(result)); };
  scheduler.Submit(fake.model, std::move(request));
  return future;
}

std::vector<float> Rows(std::future<BatchResult>& future) {
  const BatchResult result = future.get();
  if (!result.outputs.ok()) return {};
  const auto elements = (*result.outputs)[0].tensor().elements<float>();
  return {elements.begin(), elements.end()};
}

StatusCode Code(std::future<BatchResult>& future) { return future.get().outputs.status().code(); }

class SchedulerTest : public testing::Test {
 protected:
  // One lone request, which runs at least so long; how long it took in all, at most.
  milliseconds FirstRun(Scheduler& scheduler, milliseconds least) {
    const auto begin = std::chrono::steady_clock::now();
    std::unique_lock hold(fake_.gate);
    auto answered = Submit(scheduler, fake_, RequestOf({1}));
    fake_.AwaitStart(1);
    std::this_thread::sleep_for(least);
    hold.unlock();
    EXPECT_EQ(Code(answered), StatusCode::kOk);
    return std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - begin);
  }

  ServerMetrics metrics_;
  FakeModel fake_{metrics_};
};

TEST_F(SchedulerTest, WaitingRequestsShareARunAndGetTheirOwnRows) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  scheduler.SetBatching(*fake_.model, UpTo(8));
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({9}));
  fake_.AwaitStart(1);
  auto a = Submit(scheduler, fake_, RequestOf({1, 2}));
  auto b = Submit(scheduler, fake_, RequestOf({3}));
  auto c = Submit(scheduler, fake_, RequestOf({4, 5, 6}));
  hold.unlock();
  EXPECT_EQ(Rows(first), (std::vector<float>{18}));
  EXPECT_EQ(Rows(a), (std::vector<float>{2, 4}));
  EXPECT_EQ(Rows(b), (std::vector<float>{6}));
  EXPECT_EQ(Rows(c), (std::vector<float>{8, 10, 12}));
  EXPECT_EQ(fake_.batches, (std::vector<int64_t>{1, 6}));
  EXPECT_EQ(fake_.made, 1) << "the rows are joined where the model wants its inputs";
  EXPECT_NE(metrics_.Serialize().find("onnxd_batch_size_sum{model=\"fake\",version=\"1\"} 7"),
            std::string::npos);
}

TEST_F(SchedulerTest, RequestsRunAloneUntilBatchingIsSet) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({9}));
  fake_.AwaitStart(1);
  auto a = Submit(scheduler, fake_, RequestOf({1})), b = Submit(scheduler, fake_, RequestOf({2}));
  hold.unlock();
  EXPECT_EQ(Rows(b), (std::vector<float>{4}));
  EXPECT_EQ(fake_.batches, (std::vector<int64_t>{1, 1, 1}));
}

TEST_F(SchedulerTest, ABadRequestFailsAlone) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  scheduler.SetBatching(*fake_.model, UpTo(8));
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({9}));
  fake_.AwaitStart(1);
  auto good = Submit(scheduler, fake_, RequestOf({1}));
  auto bad = Submit(scheduler, fake_, RequestOf({-1}));
  auto other = Submit(scheduler, fake_, RequestOf({2, 3}));
  hold.unlock();
  EXPECT_EQ(Rows(good), (std::vector<float>{2}));
  EXPECT_EQ(Code(bad), StatusCode::kInvalidArgument);
  EXPECT_EQ(Rows(other), (std::vector<float>{4, 6}));
}

TEST_F(SchedulerTest, ABatchThatRanOutOfTimeIsNotRunAgain) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  scheduler.SetBatching(*fake_.model, UpTo(8));
  fake_.runs_out_of_time = true;
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({9}));
  fake_.AwaitStart(1);
  auto a = Submit(scheduler, fake_, RequestOf({1})), b = Submit(scheduler, fake_, RequestOf({2}));
  hold.unlock();
  EXPECT_EQ(Code(a), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Code(b), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(fake_.started.load(), 2);
}

TEST_F(SchedulerTest, ALargeRequestIsSplitAndJoined) {
  Scheduler scheduler({2, 100, 0}, metrics_);
  scheduler.SetBatching(*fake_.model, UpTo(4));
  auto whole = Submit(scheduler, fake_, RequestOf({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
  EXPECT_EQ(Rows(whole), (std::vector<float>{2, 4, 6, 8, 10, 12, 14, 16, 18, 20}));
  for (const int64_t rows : fake_.batches) EXPECT_LE(rows, 4);
  auto huge = Submit(scheduler, fake_, RequestOf(std::vector<float>(100'000, 3)));
  EXPECT_EQ(Rows(huge), std::vector<float>(100'000, 6));  // in 64 parts
  auto bad = Submit(scheduler, fake_, RequestOf({1, 2, 3, 4, 5, -6}));
  EXPECT_EQ(Code(bad), StatusCode::kInvalidArgument);
}

// Runs are so short here that a lone request would run at once on the thread that brings it.
TEST_F(SchedulerTest, ARequestWaitsForOthersAsLongAsTheSettingsSay) {
  Scheduler scheduler({1, 100, 1}, metrics_);
  for (int i = 0; i < 200; ++i) {
    auto answered = Submit(scheduler, fake_, RequestOf({1}));
    EXPECT_EQ(Code(answered), StatusCode::kOk);
  }
  BatchSettings settings;
  settings.max_batch_size = 2;
  settings.max_queue_delay = 600;
  scheduler.SetBatching(*fake_.model, settings);
  auto a = Submit(scheduler, fake_, RequestOf({1})), b = Submit(scheduler, fake_, RequestOf({2}));
  EXPECT_EQ(Rows(a), (std::vector<float>{2}));
  EXPECT_EQ(Rows(b), (std::vector<float>{4}));
  EXPECT_EQ(fake_.batches.back(), 2);
}

TEST_F(SchedulerTest, AModelThatDropsRowsRunsRequestsAloneFromThenOn) {
  fake_.drops_rows = true;
  Scheduler scheduler({1, 100, 0}, metrics_);
  scheduler.SetBatching(*fake_.model, UpTo(8));
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({9}));
  fake_.AwaitStart(1);
  auto a = Submit(scheduler, fake_, RequestOf({1})), b = Submit(scheduler, fake_, RequestOf({2}));
  hold.unlock();
  EXPECT_EQ(Rows(a), (std::vector<float>{2}));
  EXPECT_EQ(Rows(b), (std::vector<float>{4}));
  EXPECT_EQ(scheduler.Batching(*fake_.model).max_batch_size, 1);
}

TEST_F(SchedulerTest, RefusesWhatItsQueueCannotHold) {
  Scheduler scheduler({1, 2, 0}, metrics_);
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({1}));
  fake_.AwaitStart(1);
  auto a = Submit(scheduler, fake_, RequestOf({1})), b = Submit(scheduler, fake_, RequestOf({1}));
  auto refused = Submit(scheduler, fake_, RequestOf({1}));
  EXPECT_EQ(Code(refused), StatusCode::kUnavailable);
  EXPECT_EQ(scheduler.queued(), 2);
  hold.unlock();
  EXPECT_EQ(Code(a), StatusCode::kOk);
  EXPECT_EQ(Code(b), StatusCode::kOk);
  EXPECT_NE(metrics_.Serialize().find("onnxd_requests_shed_total{reason=\"queue_full\"} 1"),
            std::string::npos);
}

// Whatever the machine does meanwhile: the scheduler measures at least kSleep, at most `took`.
TEST_F(SchedulerTest, RefusesAtOnceWhatCannotFinishInTime) {
  constexpr milliseconds kSleep(100), kLongTime(600'000);
  Scheduler scheduler({1, 100, 0}, metrics_);
  const auto due_in = [](milliseconds time) {
    BatchRequest request = RequestOf({1});
    request.deadline = std::chrono::steady_clock::now() + time;
    return request;
  };
  const milliseconds took = FirstRun(scheduler, kSleep);
  std::unique_lock hold(fake_.gate);
  std::vector<std::future<BatchResult>> before;
  for (int i = 0; i < 5; ++i) before.push_back(Submit(scheduler, fake_, due_in(kLongTime)));
  fake_.AwaitStart(2);
  auto hopeless = Submit(scheduler, fake_, due_in(kSleep / 5));
  EXPECT_EQ(Code(hopeless), StatusCode::kDeadlineExceeded);
  auto patient = Submit(scheduler, fake_, due_in(kLongTime));
  EXPECT_NE(patient.wait_for(milliseconds(1)), std::future_status::ready);  // it has time enough
  for (int i = 0; i < 60; ++i) before.push_back(Submit(scheduler, fake_, due_in(10 * took)));
  auto late = Submit(scheduler, fake_, due_in(10 * took));
  EXPECT_EQ(Code(late), StatusCode::kUnavailable);  // so many come first
  hold.unlock();
  for (auto& future : before) future.wait();
  EXPECT_NE(metrics_.Serialize().find("onnxd_requests_shed_total{reason=\"deadline\"}"),
            std::string::npos);
}

// Half of a run would be too much to wait for.
TEST_F(SchedulerTest, ARunThatIsNearlyOverIsNoReasonToRefuse) {
  constexpr milliseconds kSleep(300);
  Scheduler scheduler({1, 100, 0}, metrics_);
  const milliseconds took = FirstRun(scheduler, kSleep);
  std::unique_lock hold(fake_.gate);
  auto running = Submit(scheduler, fake_, RequestOf({1}));
  fake_.AwaitStart(2);
  std::this_thread::sleep_for(took);
  BatchRequest next = RequestOf({1});
  next.deadline = std::chrono::steady_clock::now() + took * 8 / 5;
  auto admitted = Submit(scheduler, fake_, std::move(next));
  hold.unlock();
  EXPECT_EQ(Code(running), StatusCode::kOk);
  EXPECT_EQ(Code(admitted), StatusCode::kOk);
}

TEST_F(SchedulerTest, LargeRequestsCountAsTheirSizeTakesWhateverASmallOneTook) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  constexpr milliseconds kSlow(50);
  const auto run_for = [&](size_t rows, milliseconds time) {
    std::unique_lock hold(fake_.gate);
    const int before = fake_.started;
    auto answered = Submit(scheduler, fake_, RequestOf(std::vector<float>(rows, 1)));
    fake_.AwaitStart(before + 1);
    std::this_thread::sleep_for(time);
    hold.unlock();
    EXPECT_EQ(Code(answered), StatusCode::kOk);
  };
  run_for(1, kSlow);
  run_for(1000, milliseconds(0));
  std::unique_lock hold(fake_.gate);
  std::vector<std::future<BatchResult>> answers;
  for (int i = 0; i < 10; ++i) {
    BatchRequest request = RequestOf(std::vector<float>(1000, 1));
    request.deadline = std::chrono::steady_clock::now() + 1000 * kSlow;  // as rows of ONE request
    answers.push_back(Submit(scheduler, fake_, std::move(request)));
  }
  hold.unlock();
  for (auto& answer : answers) EXPECT_EQ(Code(answer), StatusCode::kOk);
}

// A flat tensor of 1 MiB is 262,144 rows to a model whose first dimension is free: one lone row
// that took 50 ms would make it hours.
TEST_F(SchedulerTest, ASmallRunDoesNotRefuseLargeOnesThatWereNeverTried) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  FirstRun(scheduler, milliseconds(50));
  std::unique_lock hold(fake_.gate);
  auto running = Submit(scheduler, fake_, RequestOf({1}));
  fake_.AwaitStart(2);
  std::vector<std::future<BatchResult>> answers;
  for (int i = 0; i < 3; ++i) {
    BatchRequest request = RequestOf(std::vector<float>(size_t{1} << 18, 1));
    request.deadline = std::chrono::steady_clock::now() + std::chrono::minutes(10);
    answers.push_back(Submit(scheduler, fake_, std::move(request)));
  }
  hold.unlock();
  EXPECT_EQ(Code(running), StatusCode::kOk);
  for (auto& answer : answers) EXPECT_EQ(Code(answer), StatusCode::kOk);
}

TEST_F(SchedulerTest, OneSlowRunDoesNotRefuseAllThatComeLater) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  FirstRun(scheduler, milliseconds(1500));
  BatchRequest quick = RequestOf({1});
  quick.deadline = std::chrono::steady_clock::now() + milliseconds(1000);
  auto answered = Submit(scheduler, fake_, std::move(quick));
  EXPECT_EQ(Code(answered), StatusCode::kOk);
}

// A client that asks again as soon as it is answered must not find its own last run.
TEST_F(SchedulerTest, ARunIsOverWhenItIsAnswered) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  for (int i = 0; i < 200; ++i) {
    std::promise<bool> idle;
    BatchRequest request = RequestOf({1});
    request.done = [&](BatchResult) { idle.set_value(scheduler.IsIdle(*fake_.model)); };
    scheduler.Submit(fake_.model, std::move(request));
    ASSERT_TRUE(idle.get_future().get());
  }
}

TEST_F(SchedulerTest, ALargeRequestWhosePartsDoNotJoinFails) {
  ScheduledModel odd_model("odd",
                           BatchComputation{[](std::span<const Value> inputs,
                                               const RunLimits&) -> Result<std::vector<Value>> {
                             // As wide as its first row says.
                             const auto width =
                                 static_cast<int64_t>(inputs[0].tensor().data<float>()[0]);
                             return std::vector<Value>{*Tensor::Create(
                                 DataType::kFloat, Shape{inputs[0].tensor().shape()[0], width})};
                           }},
                           metrics_.ForModel("odd", "1"));
  const std::shared_ptr<ScheduledModel> odd(&odd_model, [](ScheduledModel*) {});
  Scheduler scheduler({1, 100, 0}, metrics_);
  scheduler.SetBatching(odd_model, UpTo(2));
  BatchRequest request = RequestOf({1, 1, 100'000, 1});
  std::promise<StatusCode> code;
  request.done = [&](const BatchResult& result) { code.set_value(result.outputs.status().code()); };
  scheduler.Submit(odd, std::move(request));
  EXPECT_EQ(code.get_future().get(), StatusCode::kInternal);
}

TEST_F(SchedulerTest, ExpiredAndCancelledRequestsLeaveTheQueueWhileExecutorsAreBusy) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({1}));
  fake_.AwaitStart(1);
  BatchRequest hasty = RequestOf({1}), gone = RequestOf({1});
  hasty.deadline = std::chrono::steady_clock::now() + milliseconds(30);
  gone.cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto cancelled = gone.cancelled;
  auto expired = Submit(scheduler, fake_, std::move(hasty));
  auto left = Submit(scheduler, fake_, std::move(gone));
  cancelled->store(true);
  EXPECT_EQ(Code(expired), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(Code(left), StatusCode::kCancelled);
  EXPECT_EQ(scheduler.queued(), 0);
  hold.unlock();
  EXPECT_EQ(Code(first), StatusCode::kOk);
  EXPECT_EQ(fake_.batches.size(), 1u);
}

TEST_F(SchedulerTest, PriorityCountsWhereThereAreLevels) {
  for (const int64_t levels : {0, 2}) {
    Scheduler scheduler({1, 100, 0}, metrics_);
    QueuePolicy policy;
    policy.priority_levels = levels;
    policy.default_priority_level = 2;
    FakeModel fake(metrics_, "levels", policy);
    std::vector<int> order;
    std::unique_lock hold(fake.gate);
    auto first = Submit(scheduler, fake, RequestOf({1}));
    fake.AwaitStart(1);
    std::vector<std::future<void>> done;
    for (const int64_t priority : {0, 9, 2, 1}) {
      BatchRequest request = RequestOf({1});
      request.priority = priority;
      auto promise = std::make_shared<std::promise<void>>();
      done.push_back(promise->get_future());
      request.done = [&order, promise, priority](const BatchResult&) {
        order.push_back(static_cast<int>(priority));
        promise->set_value();
      };
      scheduler.Submit(fake.model, std::move(request));
    }
    hold.unlock();
    for (auto& future : done) future.wait();
    EXPECT_EQ(order, levels == 0 ? (std::vector<int>{0, 9, 2, 1}) : (std::vector<int>{1, 0, 9, 2}));
  }
}

TEST_F(SchedulerTest, AModelsOwnQueueHasALimit) {
  QueuePolicy policy;
  policy.max_requests = 1;
  FakeModel fake(metrics_, "short", policy);
  Scheduler scheduler({1, 100, 0}, metrics_);
  std::unique_lock hold(fake.gate);
  auto running = Submit(scheduler, fake, RequestOf({1}));
  fake.AwaitStart(1);
  auto waiting = Submit(scheduler, fake, RequestOf({1}));
  auto refused = Submit(scheduler, fake, RequestOf({1}));
  EXPECT_EQ(Code(refused), StatusCode::kUnavailable);
  hold.unlock();
  EXPECT_EQ(Code(running), StatusCode::kOk);
  EXPECT_EQ(Code(waiting), StatusCode::kOk);
}

TEST_F(SchedulerTest, AModelsShareOfTheExecutorsHolds) {
  QueuePolicy policy;
  policy.max_executors = 1;
  FakeModel fake(metrics_, "one", policy);
  Scheduler scheduler({3, 100, 0}, metrics_);
  std::unique_lock hold(fake.gate);
  std::vector<std::future<BatchResult>> all;
  for (int i = 0; i < 4; ++i) all.push_back(Submit(scheduler, fake, RequestOf({1})));
  auto other = Submit(scheduler, fake_, RequestOf({1}));  // the others are free for it
  EXPECT_EQ(Code(other), StatusCode::kOk);
  fake.AwaitStart(1);
  EXPECT_EQ(fake.started.load(), 1);
  hold.unlock();
  for (auto& future : all) EXPECT_EQ(Code(future), StatusCode::kOk);
}

// One batch computes and one more is ready for the device; what comes meanwhile shares the next.
TEST_F(SchedulerTest, BatchesOnADeviceFillUpWhileItComputes) {
  FakeModel fake(metrics_, "device", {}, /*on_device=*/true);
  Scheduler scheduler({8, 100, 0}, metrics_);
  scheduler.SetBatching(*fake.model, UpTo(8));
  std::unique_lock hold(fake.gate);
  auto slow = Submit(scheduler, fake, RequestOf({1}));  // what it takes is known from then on
  std::this_thread::sleep_for(milliseconds(50));
  hold.unlock();
  EXPECT_EQ(Code(slow), StatusCode::kOk);
  hold.lock();
  std::vector<std::future<BatchResult>> all;
  all.push_back(Submit(scheduler, fake, RequestOf({1})));
  fake.AwaitStart(2);
  for (int i = 0; i < 5; ++i) all.push_back(Submit(scheduler, fake, RequestOf({1})));
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(fake.started.load(), 2);
  hold.unlock();
  for (auto& future : all) EXPECT_EQ(Rows(future), (std::vector<float>{2}));
  EXPECT_EQ(fake.batches, (std::vector<int64_t>{1, 1, 8}));  // five, as many as eight run
}

TEST_F(SchedulerTest, AtMostThreeBatchesOfADeviceAreUnderWay) {
  FakeModel fake(metrics_, "device", {}, /*on_device=*/true);
  Scheduler scheduler({8, 100, 0}, metrics_);
  std::unique_lock hold(fake.gate);
  std::vector<std::future<BatchResult>> all;
  for (int i = 0; i < 6; ++i) all.push_back(Submit(scheduler, fake, RequestOf({1})));
  fake.AwaitStart(3);
  std::this_thread::sleep_for(milliseconds(10));
  EXPECT_EQ(fake.started.load(), 3);
  hold.unlock();
  for (auto& future : all) EXPECT_EQ(Code(future), StatusCode::kOk);
}

TEST_F(SchedulerTest, WhereTimeoutsDelayALateRequestComesLast) {
  QueuePolicy policy;
  policy.delays_expired = true;
  FakeModel fake(metrics_, "patient", policy);
  Scheduler scheduler({1, 100, 0}, metrics_);
  std::unique_lock hold(fake.gate);
  auto first = Submit(scheduler, fake, RequestOf({1}));
  fake.AwaitStart(1);
  std::vector<int> order;
  std::vector<std::future<void>> done;
  for (const int number : {1, 2}) {
    BatchRequest request = RequestOf({1});
    if (number == 1) request.deadline = std::chrono::steady_clock::now() + milliseconds(5);
    auto promise = std::make_shared<std::promise<void>>();
    done.push_back(promise->get_future());
    request.done = [&order, promise, number](const BatchResult& result) {
      EXPECT_TRUE(result.outputs.ok());
      order.push_back(number);
      promise->set_value();
    };
    scheduler.Submit(fake.model, std::move(request));
  }
  std::this_thread::sleep_for(milliseconds(60));  // the deadline passes
  hold.unlock();
  for (auto& future : done) future.wait();
  EXPECT_EQ(order, (std::vector<int>{2, 1}));
}

TEST_F(SchedulerTest, LongRunsLeaveAnExecutorToOthers) {
  // Of one row, and of many rows that are cheap alone.
  for (const size_t rows : {1, 16}) {
    const std::vector<float> request(rows, 1);
    Scheduler scheduler({2, 100, 0}, metrics_);
    FakeModel slow(metrics_, "slow"), quick(metrics_, "quick");
    {
      std::unique_lock hold(slow.gate);
      auto first = Submit(scheduler, slow, RequestOf(request));
      std::this_thread::sleep_for(milliseconds(60));
      hold.unlock();
      EXPECT_EQ(Code(first), StatusCode::kOk);
    }
    auto before = Submit(scheduler, quick, RequestOf({1}));
    EXPECT_EQ(Code(before), StatusCode::kOk);
    std::unique_lock hold(slow.gate);
    std::vector<std::future<BatchResult>> waiting;
    for (int i = 0; i < 4; ++i) waiting.push_back(Submit(scheduler, slow, RequestOf(request)));
    slow.AwaitStart(2);
    auto passing = Submit(scheduler, quick, RequestOf({1}));
    EXPECT_EQ(passing.wait_for(seconds(20)), std::future_status::ready);
    EXPECT_EQ(slow.started.load(), 2);  // one of the four, and the first of all
    hold.unlock();
    for (auto& future : waiting) EXPECT_EQ(Code(future), StatusCode::kOk);
  }
}

// A tokenizer before an encoder: what it makes would wait for the encoder anyway.
TEST_F(SchedulerTest, LongRunsLeaveNoExecutorToStepsOfTheirOwnRequests) {
  for (const bool is_own : {true, false}) {
    Scheduler scheduler({2, 100, 0}, metrics_);
    FakeModel slow(metrics_, "slow"), quick(metrics_, "quick"), other(metrics_, "other");
    std::unique_lock hold(slow.gate);
    auto first = Submit(scheduler, slow, RequestOf({1}));
    std::this_thread::sleep_for(milliseconds(60));
    hold.unlock();
    EXPECT_EQ(Code(first), StatusCode::kOk);
    BatchRequest step = RequestOf({1});
    const FakeModel& next = is_own ? slow : other;
    step.steps =
        std::make_shared<const ModelSteps>(ModelSteps{quick.model.get(), next.model.get()});
    auto before = Submit(scheduler, quick, std::move(step));
    EXPECT_EQ(Code(before), StatusCode::kOk);
    hold.lock();
    std::vector<std::future<BatchResult>> waiting;
    for (int i = 0; i < 4; ++i) waiting.push_back(Submit(scheduler, slow, RequestOf({1})));
    slow.AwaitStart(is_own ? 3 : 2);
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(slow.started.load(), is_own ? 3 : 2);
    hold.unlock();
    for (auto& future : waiting) EXPECT_EQ(Code(future), StatusCode::kOk);
  }
}

TEST_F(SchedulerTest, RunsThatFillTheProcessorsHaveOneThreadEach) {
  const int processors = AvailableProcessors();
  ThreadPool pool(2);
  std::mutex gate;
  std::atomic<int> started{0};
  // Answers in how many parts its work was done.
  const auto model = std::make_shared<ScheduledModel>(
      "parts",
      BatchComputation{[&](std::span<const Value>, const RunLimits&) -> Result<std::vector<Value>> {
        ++started;
        std::lock_guard pass(gate);
        std::atomic<int> parts{0};
        pool.ParallelFor(2, 1, [&](int64_t, int64_t) { ++parts; });
        return std::vector<Value>{Tensor::Scalar(static_cast<float>(parts))};
      }},
      metrics_.ForModel("parts", "1"));
  Scheduler scheduler({processors + 1, 100, 0}, metrics_);
  const auto ask = [&] {
    auto promise = std::make_shared<std::promise<float>>();
    auto future = promise->get_future();
    BatchRequest request = RequestOf({1});
    request.done = [promise](const BatchResult& result) {
      promise->set_value((*result.outputs)[0].tensor().data<float>()[0]);
    };
    scheduler.Submit(model, std::move(request));
    return future;
  };
  const float alone = ask().get();
  EXPECT_EQ(alone, processors > 1 ? 2 : 1);
  std::unique_lock hold(gate);
  std::vector<std::future<float>> all;
  for (int i = 0; i < processors; ++i) {
    const int before = started;
    all.push_back(ask());
    while (started == before) std::this_thread::sleep_for(milliseconds(1));
  }
  hold.unlock();
  EXPECT_EQ(all.back().get(), 1);
  for (size_t i = 0; i + 1 < all.size(); ++i) all[i].wait();
}

TEST_F(SchedulerTest, WritingAnswersIsPartOfAModelsShare) {
  QueuePolicy policy;
  policy.max_executors = 1;
  FakeModel slow(metrics_, "slow", policy), quick(metrics_, "quick");
  Scheduler scheduler({2, 100, 0}, metrics_);
  std::promise<void> writing, written;
  BatchRequest request = RequestOf({1});
  request.done = [&](const BatchResult&) {
    writing.set_value();
    written.get_future().wait();
  };
  scheduler.Submit(slow.model, std::move(request));
  writing.get_future().wait();
  auto next = Submit(scheduler, slow, RequestOf({1}));
  for (int i = 0; i < 10; ++i) {
    auto passing = Submit(scheduler, quick, RequestOf({1}));
    EXPECT_EQ(Code(passing), StatusCode::kOk);
  }
  EXPECT_EQ(slow.started.load(), 1);
  written.set_value();
  EXPECT_EQ(Code(next), StatusCode::kOk);
}

TEST_F(SchedulerTest, ModelsThatAreAlikeShareAllExecutors) {
  Scheduler scheduler({2, 100, 0}, metrics_);
  FakeModel one(metrics_, "one"), other(metrics_, "other");
  for (FakeModel* model : {&one, &other}) {
    for (int i = 0; i < 2; ++i) {  // what it takes is known when it is asked again
      std::unique_lock hold(model->gate);
      auto first = Submit(scheduler, *model, RequestOf({1}));
      std::this_thread::sleep_for(milliseconds(30));
      hold.unlock();
      EXPECT_EQ(Code(first), StatusCode::kOk);
    }
  }
  std::unique_lock hold(one.gate);
  auto first = Submit(scheduler, one, RequestOf({1}));
  auto second = Submit(scheduler, one, RequestOf({1}));
  one.AwaitStart(4);
  hold.unlock();
  EXPECT_EQ(Code(first), StatusCode::kOk);
  EXPECT_EQ(Code(second), StatusCode::kOk);
}

TEST_F(SchedulerTest, AQuickModelRunsOnTheThreadThatSubmits) {
  Scheduler scheduler({1, 100, 1}, metrics_);
  for (int i = 0; i < 64; ++i) {
    auto warm = Submit(scheduler, fake_, RequestOf({1}));
    EXPECT_EQ(Code(warm), StatusCode::kOk);
  }
  // Whatever this machine does: at the latest when the model was quick for 20 runs in a row.
  const auto runs_here = [&](std::vector<float> rows) {
    BatchRequest request = RequestOf(std::move(rows));
    std::promise<std::thread::id> ran_on;
    request.done = [&](const BatchResult&) { ran_on.set_value(std::this_thread::get_id()); };
    scheduler.Submit(fake_.model, std::move(request));
    return ran_on.get_future().get() == std::this_thread::get_id();
  };
  bool here = false;
  for (int i = 0; i < 10'000 && !here; ++i) here = runs_here({1});
  EXPECT_TRUE(here);
  // So many rows take longer, at a nanosecond each.
  EXPECT_FALSE(runs_here(std::vector<float>(1'000'000, 1)));
}

// No other executor is woken for the next step of an ensemble, or the next turn of a sequence.
TEST_F(SchedulerTest, WhatTheLastAnswerSubmitsStaysWithItsExecutor) {
  std::vector<std::thread::id> ran_on;
  std::promise<void> ended;
  const auto model = std::make_shared<ScheduledModel>(
      "chain",
      BatchComputation{
          [&](std::span<const Value> inputs, const RunLimits&) -> Result<std::vector<Value>> {
            ran_on.push_back(std::this_thread::get_id());
            return std::vector<Value>{inputs[0]};
          }},
      metrics_.ForModel("chain", "1"));
  Scheduler scheduler({4, 1000, 0}, metrics_);
  // Executors that have just been started look for work, too, and would take steps of the chain.
  while (scheduler.idle_executors() < 4) std::this_thread::sleep_for(milliseconds(1));
  std::function<void()> submit = [&] {
    BatchRequest request = RequestOf({1});
    request.done = [&](BatchResult) {
      if (ran_on.size() < 200) {
        submit();
      } else {
        ended.set_value();
      }
    };
    scheduler.Submit(model, std::move(request));
  };
  submit();
  ended.get_future().wait();
  EXPECT_THAT(ran_on, testing::Each(ran_on[0]));
}

TEST_F(SchedulerTest, AbandonAnswersWhatWaitsAndRefusesFromThenOn) {
  Scheduler scheduler({1, 100, 0}, metrics_);
  std::unique_lock hold(fake_.gate);
  auto first = Submit(scheduler, fake_, RequestOf({1}));
  fake_.AwaitStart(1);
  auto waiting = Submit(scheduler, fake_, RequestOf({1}));
  std::thread abandons([&] { scheduler.Abandon(); });
  EXPECT_EQ(Code(waiting), StatusCode::kUnavailable);
  hold.unlock();
  abandons.join();
  EXPECT_EQ(Code(first), StatusCode::kOk);
  auto late = Submit(scheduler, fake_, RequestOf({1}));
  EXPECT_EQ(Code(late), StatusCode::kUnavailable);
}

TEST_F(SchedulerTest, DestructionRunsWhatIsQueued) {
  std::vector<std::future<BatchResult>> futures;
  {
    Scheduler scheduler({2, 1000, 0}, metrics_);
    scheduler.SetBatching(*fake_.model, UpTo(8));
    for (int i = 0; i < 200; ++i) futures.push_back(Submit(scheduler, fake_, RequestOf({1})));
  }
  for (auto& future : futures) EXPECT_EQ(Code(future), StatusCode::kOk);
}

TEST_F(SchedulerTest, EveryRequestIsAnsweredOnceWhateverHappens) {
  Scheduler scheduler({2, 50, 1}, metrics_);
  scheduler.SetBatching(*fake_.model, UpTo(8));
  std::atomic<int> answers{0}, wrong{0};
  std::vector<std::thread> clients;
  for (int client = 0; client < 4; ++client) {
    clients.emplace_back([&, client] {
      for (int i = 0; i < 500; ++i) {
        const float row = static_cast<float>(client * 1000 + i);
        BatchRequest request = RequestOf({row, i % 7 == 0 ? -1.0f : row});
        if (i % 3 == 0) {
          request.deadline = std::chrono::steady_clock::now() + std::chrono::microseconds(i);
        }
        request.cancelled = std::make_shared<std::atomic<bool>>(false);
        const auto cancelled = request.cancelled;
        request.done = [&, row](const BatchResult& result) {
          ++answers;
          if (!result.outputs.ok()) return;
          if ((*result.outputs)[0].tensor().data<float>()[0] != 2 * row) ++wrong;
        };
        scheduler.Submit(fake_.model, std::move(request));
        if (i % 5 == 0) cancelled->store(true);
      }
    });
  }
  for (std::thread& client : clients) client.join();
  scheduler.Abandon();
  EXPECT_EQ(answers.load(), 2000);
  EXPECT_EQ(wrong.load(), 0);
}

}  // namespace
}  // namespace onnxd
