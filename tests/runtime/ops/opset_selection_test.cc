#include "runtime/ops/opset_selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/test_model.h"

namespace onnxd {
namespace {

TEST(OpsetSelection, KeepsAnOpsetAtWhichEveryNodeMeansTheSame) {
  TestModel model(17);
  model.Input("x", DataType::kFloat, {2}).Node("Relu", {"x"}, {"y"}).Output("y");
  std::map<std::string, int64_t> opsets = {{"", 17}};
  ASSERT_TRUE(SelectOpsets(model.graph(), opsets).ok());
  EXPECT_EQ(opsets, (std::map<std::string, int64_t>{{"", 17}}));
}

TEST(OpsetSelection, AddsTheDomainsThatPassesBring) {
  TestModel model(17);
  model.Input("x", DataType::kFloat, {2}).Node("Gelu", {"x"}, {"y"}, {}, "com.microsoft");
  model.Output("y");
  std::map<std::string, int64_t> opsets = {{"", 17}};
  ASSERT_TRUE(SelectOpsets(model.graph(), opsets).ok());
  EXPECT_EQ(opsets["com.microsoft"], 1);
}

TEST(OpsetSelection, MovesToTheLowestOpsetThatFitsAll) {
  TestModel model(17);
  model.Input("x", DataType::kFloat, {2}).Node("Add", {"x", "x"}, {"y"}).Output("y");
  std::map<std::string, int64_t> opsets = {{"", 7}};
  ASSERT_TRUE(SelectOpsets(model.graph(), opsets).ok());
  EXPECT_EQ(opsets[""], 14);  // Add-14
}

TEST(OpsetSelection, NamesANodeThatCannotStandBesideTheOthers) {
  TestModel model(17);
  model.Input("x", DataType::kFloat, {2}).Node("Add", {"x", "x"}, {"a"});
  model.Node("Softmax", {"a"}, {"y"}).Output("y");
  model.graph().nodes[1].since_version = 1;
  std::map<std::string, int64_t> opsets = {{"", 17}};
  const Status status = SelectOpsets(model.graph(), opsets);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(), testing::HasSubstr("Softmax"));
  EXPECT_THAT(status.message(), testing::HasSubstr("version 1"));
}

}  // namespace
}  // namespace onnxd
