#include "server/tracing/span_exporter.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "runtime/base/log.h"

namespace onnxd {
namespace {

using std::chrono::milliseconds;

// A collector that answers in turn, the last answer for ever.
class FakeCollector {
 public:
  explicit FakeCollector(std::vector<Result<int>> answers) : answers_(std::move(answers)) {}

  SpanExporter::Send Sender() {
    return [this](const std::string& body) {
      std::lock_guard lock(mutex_);
      bodies_.push_back(body);
      return answers_[std::min(bodies_.size(), answers_.size()) - 1];
    };
  }
  std::vector<std::string> bodies() const {
    std::lock_guard lock(mutex_);
    return bodies_;
  }

 private:
  mutable std::mutex mutex_;
  const std::vector<Result<int>> answers_;
  std::vector<std::string> bodies_;  // guarded by mutex_
};

Span Named(const std::string& name) {
  Span span;
  span.trace = BeginTrace(true);
  span.name = name;
  return span;
}

double Count(const ServerMetrics& metrics, const std::string& result) {
  const std::string text = metrics.Serialize();
  const std::string series = "onnxd_trace_spans_total{result=\"" + result + "\"} ";
  return std::stod(text.substr(text.find(series) + series.size()));
}

// How often one span is sent until it counts as `result`, with a collector that answers so.
size_t TriesUntil(const std::string& result, std::vector<Result<int>> answers) {
  ServerMetrics metrics;
  FakeCollector collector(std::move(answers));
  SpanExporter exporter({.delay = milliseconds(1), .retry = milliseconds(1)}, {},
                        collector.Sender(), metrics);
  exporter.Add(Named("one"));
  while (Count(metrics, result) < 1) std::this_thread::sleep_for(milliseconds(1));
  return collector.bodies().size();
}

TEST(SpanExporter, SendsSpansTogetherAndTheRestAtItsEnd) {
  ServerMetrics metrics;
  FakeCollector collector({200});
  {
    SpanExporter exporter({.batch = 2, .delay = std::chrono::hours(1)}, {{"service.name", "s"}},
                          collector.Sender(), metrics);
    for (const char* name : {"one", "two", "three"}) exporter.Add(Named(name));
  }
  const auto bodies = collector.bodies();
  ASSERT_EQ(bodies.size(), 2u);
  EXPECT_NE(bodies[0].find("\"name\":\"one\""), std::string::npos);
  EXPECT_NE(bodies[0].find("\"name\":\"two\""), std::string::npos);
  EXPECT_NE(bodies[1].find("\"name\":\"three\""), std::string::npos);
  EXPECT_EQ(Count(metrics, "sent"), 3);
}

TEST(SpanExporter, TriesAgainWhereTheCollectorMayRecover) {
  EXPECT_EQ(TriesUntil("sent", {503, 200}), 2u);
  EXPECT_EQ(TriesUntil("sent", {429, 200}), 2u);
  EXPECT_EQ(TriesUntil("sent", {Unavailable("connection refused"), 200}), 2u);
}

TEST(SpanExporter, GivesUpWhatIsRefused) { EXPECT_EQ(TriesUntil("failed", {400}), 1u); }

TEST(SpanExporter, GivesUpAfterSomeTries) { EXPECT_EQ(TriesUntil("failed", {503}), 4u); }

TEST(SpanExporter, DropsAndCountsWhatASlowCollectorCannotTake) {
  ServerMetrics metrics;
  std::promise<void> let_go;
  std::atomic<bool> asked{false};
  const auto go = let_go.get_future().share();
  {
    SpanExporter exporter(
        {.queue = 4, .batch = 1, .delay = milliseconds(1)}, {},
        [&](const std::string&) {
          asked = true;
          go.wait();
          return Result<int>(200);
        },
        metrics);
    exporter.Add(Named("under way"));
    while (!asked) std::this_thread::sleep_for(milliseconds(1));
    for (int i = 0; i < 10; ++i) exporter.Add(Named("waits"));
    EXPECT_EQ(Count(metrics, "dropped"), 6);
    let_go.set_value();
  }
  EXPECT_EQ(Count(metrics, "sent"), 5);
}

TEST(SpanExporter, EndsWithoutMoreTriesWhileTheCollectorIsAway) {
  ServerMetrics metrics;
  FakeCollector collector({Unavailable("connection refused")});
  {
    SpanExporter exporter({.delay = milliseconds(1), .retry = std::chrono::hours(1)}, {},
                          collector.Sender(), metrics);
    exporter.Add(Named("one"));
    while (collector.bodies().empty()) std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_EQ(Count(metrics, "failed"), 1);
}

}  // namespace
}  // namespace onnxd
