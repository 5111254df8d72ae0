#include "server/config/mlflow_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace onnxd {
namespace {

using testing::HasSubstr;

TEST(MlflowModel, NamesItsOnnxFile) {
  EXPECT_EQ(
      *OnnxFileOf("flavors:\n  onnx:\n    data: net.onnx\n  python_function: {}\n", "MLmodel"),
      "net.onnx");
  EXPECT_EQ(*OnnxFileOf("flavors:\n  onnx: {}\n", "MLmodel"), "model.onnx");
}

TEST(MlflowModel, SaysWhyThereIsNone) {
  const std::pair<const char*, const char*> cases[] = {
      {"flavors:\n  sklearn: {}\n  keras: {}\n",
       "MLmodel: it has no flavor onnx, only: sklearn, keras"},
      {"", "it has no flavors"},
      {"[]", "it has no flavors"},
      {"flavors: 3", "it has no flavors"},
      {"flavors:\n  onnx:\n    data: ../net.onnx\n", "must be a file beside it"},
      {"flavors:\n  onnx:\n    data: [1]\n", "must be a file beside it"},
      {"flavors: {", "MLmodel: "}};
  for (const auto& [text, reason] : cases) {
    const auto file = OnnxFileOf(text, "MLmodel");
    ASSERT_FALSE(file.ok()) << text;
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(reason));
  }
}

}  // namespace
}  // namespace onnxd
