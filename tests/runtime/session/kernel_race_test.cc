#include "runtime/session/kernel_race.h"

#include <gtest/gtest.h>

#include "runtime/base/log.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

const std::vector<KernelRaceOperand> kSquare = {{DataType::kFloat, Shape{64, 64}, false}};

Node NodeOf(const std::string& op_type) {
  Node node;
  node.op_type = op_type;
  node.inputs = {0};
  node.outputs = {1};
  node.since_version = 13;
  return node;
}

class KernelRaceTest : public testing::Test {
 protected:
  KernelRace race_ = MakeKernelRace(*MakeProviders({}), std::make_shared<ThreadPool>(1));
};

TEST_F(KernelRaceTest, TakesTheFasterOfTwoNodes) {
  // The determinant of a matrix takes some thousand times as long as its shape.
  EXPECT_EQ(race_("det first", std::vector{NodeOf("Det"), NodeOf("Shape")}, kSquare), 1u);
  EXPECT_EQ(race_("shape first", std::vector{NodeOf("Shape"), NodeOf("Det")}, kSquare), 0u);
}

TEST_F(KernelRaceTest, LeavesOutNodesThatNoProviderComputes) {
  EXPECT_EQ(race_("unknown first", std::vector{NodeOf("NoSuchOperator"), NodeOf("Det")}, kSquare),
            1u);
  EXPECT_EQ(race_("all unknown", std::vector{NodeOf("NoSuchOperator"), NodeOf("NorThis")}, kSquare),
            0u);
}

TEST_F(KernelRaceTest, TellsAtLevelDebugWhatEachTook) {
  const LogConfiguration before = CurrentLog();
  ConfigureLog(LogLevel::kDebug, LogFormat::kText);
  testing::internal::CaptureStderr();
  const std::vector candidates{NodeOf("NoSuchOperator"), NodeOf("Det"), NodeOf("Shape")};
  race_("told", candidates, kSquare);
  race_("told", candidates, kSquare);
  const std::string log = testing::internal::GetCapturedStderr();
  ConfigureLog(before.level, before.format);
  EXPECT_NE(log.find("1 threads: told: NoSuchOperator could not be timed; Det "), std::string::npos)
      << log;
  EXPECT_NE(log.find(" us; (chosen) Shape "), std::string::npos) << log;
  EXPECT_EQ(log.find("told"), log.rfind("told")) << "what is remembered is not measured: " << log;
}

TEST_F(KernelRaceTest, RemembersAResultByItsKey) {
  EXPECT_EQ(race_("kept", std::vector{NodeOf("Det"), NodeOf("Shape")}, kSquare), 1u);
  EXPECT_EQ(race_("kept", std::vector{NodeOf("Shape"), NodeOf("Det")}, kSquare), 1u);
}

}  // namespace
}  // namespace onnxd
