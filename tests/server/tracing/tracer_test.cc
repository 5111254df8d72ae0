#include "server/tracing/tracer.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

constexpr const char* kSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
constexpr const char* kNotSampled = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

class TracerTest : public testing::Test {
 protected:
  ServerMetrics metrics_;
  SpanExporter exporter_{{}, {}, [](const std::string&) { return Result<int>(200); }, metrics_};
};

int64_t Recorded(Tracer& tracer, int requests, const std::string& model = "m") {
  int64_t recorded = 0;
  for (int i = 0; i < requests; ++i) recorded += tracer.Records(tracer.Begin("", ""), model);
  return recorded;
}

TEST_F(TracerTest, RecordsOneInSoManyThatComeWithoutATrace) {
  Tracer tracer({true, 10, -1}, &exporter_);
  EXPECT_EQ(Recorded(tracer, 100), 10);
}

TEST_F(TracerTest, FollowsTheClientsDecision) {
  Tracer tracer({true, 1000, -1}, &exporter_);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(tracer.Records(tracer.Begin(kSampled, ""), "m"));
    EXPECT_FALSE(tracer.Records(tracer.Begin(kNotSampled, ""), "m"));
  }
}

TEST_F(TracerTest, WithoutAnExporterClientsTracesAreNamedAndNothingIsRecorded) {
  Tracer tracer({}, nullptr);
  EXPECT_EQ(tracer.Begin("", "").trace_id, "");
  const TraceContext trace = tracer.Begin(kSampled, "");
  EXPECT_EQ(trace.trace_id, "0af7651916cd43dd8448eb211c80319c");
  EXPECT_FALSE(tracer.Records(trace, "m"));
  EXPECT_FALSE(tracer.Settings("").on);
  EXPECT_EQ(tracer.Change("", {.on = true}).code(), StatusCode::kFailedPrecondition);
}

TEST_F(TracerTest, RecordsSoManyAndNoMore) {
  Tracer tracer({}, &exporter_);
  ASSERT_TRUE(tracer.Change("", {.count = 3}).ok());
  EXPECT_EQ(Recorded(tracer, 10), 3);
  EXPECT_EQ(tracer.Settings("").count, 0);
}

TEST_F(TracerTest, AModelCanHaveSettingsOfItsOwn) {
  Tracer tracer({true, 1000, -1}, &exporter_);
  ASSERT_TRUE(tracer.Change("often", {.rate = 2}).ok());
  ASSERT_TRUE(tracer.Change("never", {.on = false}).ok());
  EXPECT_EQ(Recorded(tracer, 10, "often"), 5);
  EXPECT_EQ(Recorded(tracer, 10, "never"), 0);
  EXPECT_FALSE(tracer.Records(tracer.Begin(kSampled, ""), "never"));
  EXPECT_EQ(tracer.Settings("other").rate, 1000);
}

TEST_F(TracerTest, RefusesRatesAndCountsThatMeanNothing) {
  Tracer tracer({}, &exporter_);
  EXPECT_EQ(tracer.Change("", {.rate = 0}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(tracer.Change("", {.count = -2}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Recorded(tracer, 4), 4);
}

}  // namespace
}  // namespace onnxd
