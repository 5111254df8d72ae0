#include "server/batching/batch_run.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using namespace std::chrono_literals;

Value Rows(int64_t rows) { return Value(*Tensor::Create(DataType::kFloat, Shape{rows, 1})); }

// Of a request in two parts with these times.
BatchResult Joined(std::pair<std::chrono::nanoseconds, std::chrono::nanoseconds> first,
                   std::pair<std::chrono::nanoseconds, std::chrono::nanoseconds> second) {
  BatchResult joined{Unavailable("nothing came"), {}, {}};
  BatchRequest whole;
  whole.inputs = {Rows(4)};
  whole.rows = 4;
  whole.done = [&](BatchResult result) { joined = std::move(result); };
  auto parts = SplitRequest(std::move(whole), 2);
  EXPECT_EQ(parts.size(), 2u);
  parts[0].done({std::vector<Value>{Rows(2)}, first.first, first.second});
  parts[1].done({std::vector<Value>{Rows(2)}, second.first, second.second});
  return joined;
}

TEST(SplitRequest, PartsThatRanAtOnceCountOnce) {
  const BatchResult joined = Joined({5ms, 10ms}, {1ms, 12ms});
  ASSERT_TRUE(joined.outputs.ok());
  EXPECT_EQ(joined.outputs->at(0).tensor().shape(), (Shape{4, 1}));
  EXPECT_EQ(joined.queue_time, 1ms);
  EXPECT_EQ(joined.compute_time, 14ms);  // from the first's start to the last's end
}

TEST(RunBatch, FillsUpWithTheLastRow) {
  std::vector<float> ran;
  const BatchComputation computation{
      [&](std::span<const Value> inputs, const RunLimits&) -> Result<std::vector<Value>> {
        const auto rows = inputs[0].tensor().elements<float>();
        ran.assign(rows.begin(), rows.end());
        return std::vector<Value>{inputs[0]};
      }};
  std::vector<RequestQueue::Entry> entries(2);
  for (size_t i = 0; i < 2; ++i) {
    const auto rows = static_cast<int64_t>(i + 1);
    entries[i].request.rows = rows;
    entries[i].request.inputs = {
        Tensor::Of<float>(Shape{rows, 1}, std::vector<float>(i + 1, static_cast<float>(rows)))};
  }
  for (const size_t count : {2, 1}) {
    const auto outputs = RunBatch(std::span(entries).last(count), computation, 0ns, 5);
    ASSERT_TRUE(outputs.status.ok());
    EXPECT_EQ(ran, count == 2 ? (std::vector<float>{1, 2, 2, 2, 2}) : std::vector<float>(5, 2));
    EXPECT_EQ(outputs.rows, count == 2 ? 3 : 2);
    ASSERT_EQ(outputs.parts.size(), count);
    EXPECT_EQ(outputs.parts.back()[0].tensor().shape(), (Shape{2, 1}));
    EXPECT_EQ(outputs.parts.back()[0].tensor().elements<float>()[1], 2);
  }
}

TEST(SplitRequest, WaitsBetweenPartsAreNoComputing) {
  const BatchResult joined = Joined({1ms, 10ms}, {100ms, 10ms});
  EXPECT_EQ(joined.queue_time, 1ms);
  EXPECT_EQ(joined.compute_time, 20ms);
}

}  // namespace
}  // namespace onnxd
