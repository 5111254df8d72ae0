#include "server/service/ensemble_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <optional>

namespace onnxd {
namespace {

using testing::HasSubstr;

// Tensors 0 -> step 0 -> 1 -> step 1 -> 2; and 0 -> step 2 -> 3, which is not answered.
std::shared_ptr<const Ensemble> TwoWays() {
  auto ensemble = std::make_shared<Ensemble>();
  ensemble->steps = {{"a", "", {{"x", 0}}, {{"y", 1}}},
                     {"b", "", {{"x", 1}}, {{"y", 2}}},
                     {"c", "", {{"x", 0}}, {{"y", 3}}}};
  ensemble->tensors = 4;
  ensemble->inputs = {0};
  ensemble->outputs = {2, 1};
  return ensemble;
}

std::shared_ptr<const Ensemble> Chain(size_t steps) {
  auto ensemble = std::make_shared<Ensemble>();
  for (size_t i = 0; i < steps; ++i) {
    ensemble->steps.push_back({"m", "", {{"x", i}}, {{"y", i + 1}}});
  }
  ensemble->tensors = steps + 1;
  ensemble->inputs = {0};
  ensemble->outputs = {steps};
  return ensemble;
}

Value Number(float number) { return Tensor::Scalar(number); }

// Steps that wait until the test lets them go on.
class EnsembleRunTest : public testing::Test {
 protected:
  void Run(std::shared_ptr<const Ensemble> ensemble) {
    RunEnsemble(
        std::move(ensemble), {Number(1)},
        [this](const Ensemble::Step& step, std::vector<NamedValue> inputs, std::vector<std::string>,
               StepDone done) {
          started_.push_back({step.model, std::move(inputs), std::move(done)});
        },
        [this](StepResult result) {
          EXPECT_FALSE(result_.has_value());
          result_ = std::move(result);
        });
  }
  struct Started {
    std::string model;
    std::vector<NamedValue> inputs;
    StepDone done;
  };
  void Finish(const std::string& model, Result<std::vector<Value>> outputs) {
    for (auto it = started_.begin(); it != started_.end(); ++it) {
      if (it->model != model) continue;
      const StepDone done = std::move(it->done);
      started_.erase(it);
      return done({std::move(outputs), std::chrono::nanoseconds(1), std::chrono::nanoseconds(10)});
    }
    FAIL() << model << " has not started";
  }

  std::deque<Started> started_;
  std::optional<StepResult> result_;
};

TEST_F(EnsembleRunTest, StepsBeginAsSoonAsTheirInputsAreThere) {
  Run(TwoWays());
  ASSERT_EQ(started_.size(), 2u);  // a and c at once
  Finish("a", std::vector{Number(2)});
  ASSERT_EQ(started_.size(), 2u);
  EXPECT_EQ(started_.back().model, "b");
  Finish("b", std::vector{Number(3)});
  EXPECT_FALSE(result_.has_value());  // c is under way
  Finish("c", std::vector{Number(4)});
  ASSERT_TRUE(result_.has_value());
  ASSERT_TRUE(result_->outputs.ok());
  EXPECT_EQ((*result_->outputs)[0].tensor().data<float>()[0], 3);
  EXPECT_EQ((*result_->outputs)[1].tensor().data<float>()[0], 2);
  EXPECT_EQ(result_->queue_time.count(), 3);
  EXPECT_EQ(result_->compute_time.count(), 30);
}

TEST_F(EnsembleRunTest, TensorsGoFromStepToStepAsTheyAre) {
  Run(TwoWays());
  const Value made = Number(2);
  Finish("a", std::vector{made});
  EXPECT_EQ(started_.back().inputs[0].value.tensor().raw(), made.tensor().raw());
}

TEST_F(EnsembleRunTest, TheFirstFailureIsTheAnswerOnceNothingRunsAnyMore) {
  Run(TwoWays());
  Finish("c", InvalidArgument("model 'c' does not like it"));
  EXPECT_FALSE(result_.has_value());
  Finish("a", std::vector{Number(2)});
  EXPECT_TRUE(started_.empty());  // b never begins
  ASSERT_TRUE(result_.has_value());
  EXPECT_EQ(result_->outputs.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result_->outputs.status().message()),
              HasSubstr("step 3: model 'c' does not like it"));
}

// Each would take some hundred bytes of the stack otherwise.
TEST(EnsembleRun, StepsThatRunAtOnceNeedNoDeepStack) {
  constexpr size_t kSteps = 2000;
  size_t deepest = 0, depth = 0;
  std::optional<StepResult> result;
  RunEnsemble(
      Chain(kSteps), {Number(0)},
      [&](const Ensemble::Step&, std::vector<NamedValue> inputs, std::vector<std::string>,
          StepDone done) {
        deepest = std::max(deepest, ++depth);
        done({std::vector{Number(inputs[0].value.tensor().data<float>()[0] + 1)}});
        --depth;
      },
      [&](StepResult made) { result = std::move(made); });
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ((*result->outputs)[0].tensor().data<float>()[0], kSteps);
  EXPECT_EQ(deepest, 1u);
}

}  // namespace
}  // namespace onnxd
