#include "server/batching/request_queue.h"

#include <gtest/gtest.h>

namespace onnxd {
namespace {

using std::chrono::milliseconds;

const SteadyTime kStart{};

BatchRequest Request(int64_t rows, const std::string& key = "k") {
  BatchRequest request;
  request.rows = rows;
  request.shape_key = key;
  return request;
}

BatchRequest Due(int64_t after_ms, int64_t rows = 1, int64_t priority = 0) {
  BatchRequest request = Request(rows);
  request.deadline = kStart + milliseconds(after_ms);
  request.priority = priority;
  return request;
}

std::vector<int64_t> RowsOf(const std::vector<RequestQueue::Entry>& entries) {
  std::vector<int64_t> rows;
  for (const auto& entry : entries) rows.push_back(entry.request.rows);
  return rows;
}

TEST(RequestQueue, TheEarliestDeadlineComesFirst) {
  RequestQueue queue;
  queue.Push(Due(300, 3), kStart, milliseconds(0));
  queue.Push(Due(100, 1), kStart, milliseconds(0));
  queue.Push(Request(2), kStart, milliseconds(200));  // no deadline: due after its patience
  EXPECT_EQ(RowsOf(queue.Take(1)), std::vector<int64_t>{1});
  EXPECT_EQ(RowsOf(queue.Take(1)), std::vector<int64_t>{2});
  EXPECT_EQ(RowsOf(queue.Take(1)), std::vector<int64_t>{3});
  EXPECT_TRUE(queue.empty());
}

TEST(RequestQueue, PriorityComesBeforeDeadlines) {
  RequestQueue queue;
  queue.Push(Due(100, 1, 2), kStart, milliseconds(0));
  queue.Push(Due(900, 2, 1), kStart, milliseconds(0));
  EXPECT_EQ(queue.Urgency(), std::pair(int64_t{1}, kStart + milliseconds(900)));
  EXPECT_EQ(RowsOf(queue.Take(1)), std::vector<int64_t>{2});
}

TEST(RequestQueue, EqualRequestsKeepTheirOrder) {
  RequestQueue queue;
  for (int64_t rows = 1; rows <= 3; ++rows) queue.Push(Request(rows), kStart, milliseconds(5));
  EXPECT_EQ(RowsOf(queue.Take(100)), (std::vector<int64_t>{1, 2, 3}));
}

TEST(RequestQueue, APatienceThatShrinksLetsNobodyPass) {
  RequestQueue queue;
  queue.Push(Request(1), kStart, milliseconds(500));
  queue.Push(Request(2), kStart + milliseconds(1), milliseconds(5));
  EXPECT_EQ(RowsOf(queue.Take(1)), std::vector<int64_t>{1});
}

TEST(RequestQueue, ABatchHoldsWhatFitsAndSharesItsShape) {
  RequestQueue queue;
  queue.Push(Request(2, "a"), kStart, milliseconds(0));
  queue.Push(Request(9, "a"), kStart + milliseconds(1), milliseconds(0));
  queue.Push(Request(1, "b"), kStart + milliseconds(2), milliseconds(0));
  queue.Push(Request(3, "a"), kStart + milliseconds(3), milliseconds(0));
  EXPECT_EQ(queue.Count(64).rows, 14);
  EXPECT_EQ(queue.Count(64).oldest, kStart);
  EXPECT_EQ(RowsOf(queue.Take(5)), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(RowsOf(queue.Take(64)), std::vector<int64_t>{9});
  EXPECT_EQ(RowsOf(queue.Take(64)), std::vector<int64_t>{1});
}

TEST(RequestQueue, ARequestWithoutRowsRunsAlone) {
  RequestQueue queue;
  queue.Push(Request(0), kStart, milliseconds(0));
  queue.Push(Request(0), kStart, milliseconds(0));
  EXPECT_EQ(queue.Count(64).rows, 1);
  EXPECT_EQ(queue.Take(64).size(), 1u);
}

TEST(RequestQueue, GivesUpTheExpiredAndTheCancelled) {
  RequestQueue queue;
  BatchRequest gone = Request(7);
  gone.cancelled = std::make_shared<std::atomic<bool>>(false);
  const auto cancelled = gone.cancelled;
  queue.Push(std::move(gone), kStart, milliseconds(0));
  queue.Push(Due(10, 1), kStart, milliseconds(0));
  queue.Push(Due(50, 2), kStart, milliseconds(0));
  EXPECT_TRUE(queue.TakeLost(kStart + milliseconds(5)).empty());
  cancelled->store(true);
  EXPECT_EQ(RowsOf(queue.TakeLost(kStart + milliseconds(20))), (std::vector<int64_t>{7, 1}));
  EXPECT_EQ(queue.size(), 1u);
}

TEST(RequestQueue, KnowsTheRowsBeforeADeadline) {
  RequestQueue queue;
  queue.Push(Due(10, 4), kStart, milliseconds(0));
  queue.Push(Due(30, 8), kStart, milliseconds(0));
  queue.Push(Request(0), kStart, milliseconds(20));
  const auto before = [&](int due) { return queue.RowsBefore(0, kStart + milliseconds(due)); };
  EXPECT_EQ(before(5), (std::vector<int64_t>{}));
  EXPECT_EQ(before(25), (std::vector<int64_t>{4, 1}));
  EXPECT_EQ(before(90), (std::vector<int64_t>{4, 1, 8}));
}

}  // namespace
}  // namespace onnxd
