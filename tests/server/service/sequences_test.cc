#include "server/service/sequences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

namespace onnxd {
namespace {

using testing::HasSubstr;
using Turn = std::unique_ptr<Sequences::Turn>;

std::shared_ptr<const ModelVersion> Version(SequenceSettings settings = {}) {
  auto version = std::make_shared<ModelVersion>();
  version->model = "m";
  version->version = "1";
  version->settings.sequence = std::move(settings);
  return version;
}

SequenceControl At(uint64_t id, bool starts = false, bool ends = false) {
  return {{id, ""}, starts, ends};
}

std::vector<Value> State(float number) { return {Tensor::Scalar(number)}; }

// The turn, or why there is none; nothing while others have theirs.
using Began = std::shared_ptr<std::optional<Result<Turn>>>;
Began Enter(Sequences& sequences, const std::shared_ptr<const ModelVersion>& version,
            const SequenceControl& control) {
  auto began = std::make_shared<std::optional<Result<Turn>>>();
  sequences.Enter(version, control, [began](Result<Turn> turn) { *began = std::move(turn); });
  return began;
}

TEST(Sequences, ATurnFindsWhatTheOneBeforeLeft) {
  Sequences sequences;
  const auto version = Version();
  auto first = Enter(sequences, version, At(1, true));
  ASSERT_TRUE((*first)->ok());
  EXPECT_TRUE((**first)->get()->states().empty());
  (**first)->get()->SetStates(State(5));
  const auto second = Enter(sequences, version, At(1));
  EXPECT_FALSE(second->has_value());  // it waits for its turn
  first->reset();
  ASSERT_TRUE(second->has_value());
  EXPECT_EQ((**second)->get()->states()[0].tensor().data<float>()[0], 5);
}

TEST(Sequences, TurnsComeInTheOrderOfTheRequests) {
  Sequences sequences;
  const auto version = Version();
  auto holder = Enter(sequences, version, At(1, true));
  (**holder)->get()->SetStates(State(0));
  std::vector<int> order;
  for (int i = 0; i < 50; ++i) {
    sequences.Enter(version, At(1), [&order, i](Result<Turn> turn) {
      EXPECT_TRUE(turn.ok());
      order.push_back(i);
    });
  }
  EXPECT_TRUE(order.empty());
  holder->reset();
  ASSERT_EQ(order.size(), 50u);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Sequences, OneThatFailsLeavesTheStateAsItWas) {
  Sequences sequences;
  const auto version = Version();
  Enter(sequences, version, At(1, true));  // fails: nothing is set
  EXPECT_EQ(sequences.Count("m"), 0);
  const auto again = Enter(sequences, version, At(1));
  EXPECT_THAT(std::string((*again)->status().message()), HasSubstr("has not begun, or is over"));
  auto begins = Enter(sequences, version, At(1, true));
  (**begins)->get()->SetStates(State(1));
  begins->reset();
  Enter(sequences, version, At(1));
  const auto third = Enter(sequences, version, At(1));
  EXPECT_EQ((**third)->get()->states()[0].tensor().data<float>()[0], 1);
}

TEST(Sequences, WhatComesAfterTheEndIsToldSo) {
  Sequences sequences;
  const auto version = Version();
  auto first = Enter(sequences, version, At(1, true, true));
  const auto late = Enter(sequences, version, At(1));
  const auto next = Enter(sequences, version, At(1, true));
  (**first)->get()->SetStates(State(1));
  first->reset();
  ASSERT_TRUE(late->has_value());
  EXPECT_EQ((*late)->status().code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE((*next)->ok());
  EXPECT_TRUE((**next)->get()->states().empty());
}

TEST(Sequences, ThereAreOnlySoManyAndSoManyWait) {
  Sequences sequences;
  SequenceSettings settings;
  settings.max_sequences = 2;
  settings.queue_requests = 1;
  const auto version = Version(settings);
  auto first = Enter(sequences, version, At(1, true));
  const auto waits = Enter(sequences, version, At(1));
  EXPECT_EQ((*Enter(sequences, version, At(1)))->status().code(), StatusCode::kUnavailable);
  auto second = Enter(sequences, version, At(2, true));
  EXPECT_EQ(sequences.Count("m"), 2);
  EXPECT_EQ((*Enter(sequences, version, At(3, true)))->status().code(), StatusCode::kUnavailable);
  second->reset();  // failed: it is gone
  EXPECT_TRUE((*Enter(sequences, version, At(3, true)))->ok());
}

// Who has the answer to the last request of one may begin another at once.
TEST(Sequences, OneThatEndsMakesRoomBeforeItsAnswerIsGiven) {
  Sequences sequences;
  SequenceSettings settings;
  settings.max_sequences = 1;
  const auto version = Version(settings);
  bool began = false;
  sequences.Enter(version, At(1, true, true), [&](Result<Turn> turn) {
    ASSERT_TRUE(turn.ok());
    (*turn)->SetStates(State(1));
    (*turn)->End();
    sequences.Enter(version, At(2, true, true), [&](Result<Turn> other) { began = other.ok(); });
  });
  EXPECT_TRUE(began);
  EXPECT_EQ(sequences.Count("m"), 0);
}

TEST(Sequences, AnIdleOneLetsItsVersionGo) {
  Sequences sequences;
  SequenceSettings settings;
  settings.idle_timeout_ms = 1;
  auto version = Version(settings);
  const std::weak_ptr<const ModelVersion> watched = version;
  auto turn = Enter(sequences, version, At(1, true));
  (**turn)->get()->SetStates(State(1));
  turn->reset();
  version.reset();
  for (int i = 0; i < 1000 && !watched.expired(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(watched.expired());
}

TEST(Sequences, ThoseOfManyThreadsNeverMix) {
  Sequences sequences;
  const auto version = Version();
  std::vector<std::thread> threads;
  for (uint64_t id = 1; id <= 4; ++id) {
    threads.emplace_back([&, id] {
      for (int i = 0; i < 2000; ++i) {
        sequences.Enter(version, At(id, i == 0), [&, id, i](Result<Turn> turn) {
          ASSERT_TRUE(turn.ok());
          const float before =
              i == 0 ? static_cast<float>(id) : (*turn)->states()[0].tensor().data<float>()[0];
          EXPECT_EQ(before, static_cast<float>(id) + static_cast<float>(i) * 10);
          (*turn)->SetStates(State(before + 10));
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace onnxd
