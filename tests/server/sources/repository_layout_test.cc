#include "server/sources/repository_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<RemoteObject> Objects(std::initializer_list<const char*> paths) {
  std::vector<RemoteObject> objects;
  for (const char* path : paths) objects.push_back({path, "u", "r", 1, {}});
  return objects;
}

Result<std::vector<std::string>> Placed(const std::string& url, std::vector<RemoteObject> objects,
                                        const std::string& name = "") {
  ONNXD_ASSIGN_OR_RETURN(
      const auto placed,
      PlaceObjects(*ParseSourceUrl(url), std::move(objects), name, [](const RemoteObject&) {
        return Result<std::string>("flavors:\n  onnx:\n    data: net.onnx\n");
      }));
  std::vector<std::string> names;
  for (const PlacedObject& object : placed) {
    names.push_back(StrCat(object.model, "|", object.version, "|", object.file));
  }
  return names;
}

TEST(RepositoryLayout, ARepositoryIsAsItIs) {
  EXPECT_THAT(*Placed("s3://b/p", Objects({"n/2/model.onnx", "m/model.yaml", "m/1/model.onnx",
                                           "m/1/weights.bin", "m/config.pbtxt"})),
              ElementsAre("m||config.pbtxt", "m||model.yaml", "m|1|model.onnx", "m|1|weights.bin",
                          "n|2|model.onnx"));
}

TEST(RepositoryLayout, NamesThatLeadElsewhereAreLeftOut) {
  EXPECT_THAT(*Placed("s3://b",
                      Objects({"../1/model.onnx", "m/../model.yaml", "m/1/..", "m/1/a/b", "/m/1/x",
                               "m/01/x", "m/0/x", "m/-1/x", "m/1/.x", ".m/1/x", "m/1/model.onnx",
                               "m/x.txt", "m/1/a\\b", "m/1/a\nb", "m/9999999999999999999/x"})),
              ElementsAre("m|1|model.onnx"));
}

TEST(RepositoryLayout, OneFileIsAModelWithTheDataBesideIt) {
  EXPECT_THAT(*Placed("s3://b/x/net.onnx", Objects({"net.onnx_data", "net.onnx"})),
              ElementsAre("net|1|net.onnx_data", "net|1|model.onnx"));
  EXPECT_THAT(*Placed("https://h/net.onnx", Objects({"net.onnx"}), "mine"),
              ElementsAre("mine|1|model.onnx"));
  EXPECT_THAT(*Placed("hf://org/bert", Objects({"model.onnx"})), ElementsAre("bert|1|model.onnx"));
}

TEST(RepositoryLayout, AnMlflowModelIsTheFileItNames) {
  EXPECT_THAT(*Placed("s3://b/runs/net", Objects({"MLmodel", "net.onnx", "conda.yaml"})),
              ElementsAre("net|1|MLmodel", "net|1|model.onnx", "net|1|conda.yaml"));
}

TEST(RepositoryLayout, NothingSaysSo) {
  EXPECT_THAT(std::string(Placed("s3://b", {}).status().message()), HasSubstr("there is nothing"));
  EXPECT_THAT(std::string(Placed("s3://b", Objects({"README.md"})).status().message()),
              HasSubstr("nothing there is NAME/VERSION/model.onnx"));
}

}  // namespace
}  // namespace onnxd
