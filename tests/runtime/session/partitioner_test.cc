// Which provider computes a node: the first of the list that takes it.
#include "runtime/session/partitioner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Takes one operator, whose kernel writes a constant to every element; declines the others.
class OneOperatorProvider : public ExecutionProvider {
 public:
  OneOperatorProvider(std::string name, std::string op, float value, Status refusal)
      : name_(std::move(name)), op_(std::move(op)), value_(value), refusal_(std::move(refusal)) {}

  std::string_view name() const override { return name_; }
  bool Knows(const Node& node) const override { return node.op_type == op_; }

  Result<std::unique_ptr<Kernel>> CreateKernel(const KernelInfo& info) const override {
    if (!Knows(info.node)) return refusal_;
    return MakeKernel([value = value_](const PrepareContext& context) -> Result<PreparedKernel> {
      PreparedKernel prepared;
      const int64_t count = context.OutputShape(0).ElementCount();
      prepared.compute = [=](const KernelContext& k) {
        std::fill_n(k.output<float>(0), count, value);
        return Status::Ok();
      };
      return prepared;
    });
  }

 private:
  std::string name_, op_;
  float value_;
  Status refusal_;
};

std::shared_ptr<const ExecutionProvider> Takes(
    const std::string& op, float value, const std::string& name = "special",
    Status refusal = Unimplemented("only one operator here")) {
  return std::make_shared<OneOperatorProvider>(name, op, value, std::move(refusal));
}

TestModel ReluThenNeg() {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Node("Relu", {"x"}, {"r"}).Node("Neg", {"r"}, {"y"});
  model.Output("y");
  return model;
}

Result<std::unique_ptr<InferenceSession>> Load(
    const TestModel& model, std::vector<std::shared_ptr<const ExecutionProvider>> providers) {
  SessionOptions options;
  options.providers = std::move(providers);
  return InferenceSession::FromModel(TestModel(model).model(), options);
}

std::vector<float> Outputs(const InferenceSession& session) {
  const std::vector<Value> inputs = {Floats(Shape{2}, {3, -4})};
  const auto outputs = session.Run(inputs, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  const auto elements = (*outputs)[0].tensor().elements<float>();
  return {elements.begin(), elements.end()};
}

TEST(Partitioner, TheFirstProviderThatTakesANodeGetsItAndTheRestFallsBack) {
  const auto cpu = DefaultSession().providers.back();
  const auto session = Load(ReluThenNeg(), {Takes("Relu", 7), cpu});
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  EXPECT_EQ(Outputs(**session), (std::vector<float>{-7, -7}));
  EXPECT_EQ((*session)->info().nodes_by_provider.at("special"), 1);
  EXPECT_EQ((*session)->info().nodes_by_provider.at("cpu"), 1);
}

TEST(Partitioner, TheOrderOfTheListIsThePriority) {
  const auto cpu = DefaultSession().providers.back();
  const auto first = Takes("Neg", 1, "first"), second = Takes("Neg", 2, "second");
  EXPECT_EQ(Outputs(**Load(ReluThenNeg(), {first, second, cpu})), (std::vector<float>{1, 1}));
  EXPECT_EQ(Outputs(**Load(ReluThenNeg(), {second, first, cpu})), (std::vector<float>{2, 2}));
  EXPECT_EQ(Outputs(**Load(ReluThenNeg(), {cpu, first})), (std::vector<float>{-3, 0}));
}

TEST(Partitioner, ANodeThatNobodyTakesIsNamedWithEveryReason) {
  const auto session = Load(
      ReluThenNeg(), {Takes("Relu", 0, "one"), Takes("Abs", 0, "two", Unimplemented("no Neg"))});
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(
      session.status().message(),
      AllOf(HasSubstr("Neg1"), HasSubstr("one: only one operator here"), HasSubstr("two: no Neg")));
}

TEST(Partitioner, AFailureThatIsNoRefusalEndsTheSearch) {
  const auto cpu = DefaultSession().providers.back();
  const auto broken = Takes("Abs", 0, "broken", ResourceExhausted("the device is full"));
  const auto session = Load(ReluThenNeg(), {broken, cpu});
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(session.status().message(), HasSubstr("the device is full"));
}

}  // namespace
}  // namespace onnxd
