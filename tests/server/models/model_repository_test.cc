#include "server/models/model_repository.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "runtime/base/file.h"
#include "runtime/base/str_cat.h"
#include "server/models/model_registry.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

RepositoryOptions In(const std::string& path, const std::string& versions = "latest") {
  RepositoryOptions options;
  options.paths = {path};
  options.defaults.versions = versions;
  return options;
}

class Repository : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::temp_directory_path() / StrCat("onnxd_repository_", getpid());
    for (const char* path : {"a/1", "a/2", "a/10", "a/010", "a/x", "b/3", ".hidden/1", "empty/1"}) {
      fs::create_directories(root_ / path);
      if (std::string(path) != "empty/1") {
        ASSERT_TRUE(WriteFile((root_ / path / "model.onnx").string(), "m").ok());
      }
    }
  }
  void TearDown() override { fs::remove_all(root_); }
  fs::path root_;
};

TEST_F(Repository, WantsTheNewestNumberedVersionOfEachName) {
  const auto wanted = ScanRepository(In(root_.string()));
  ASSERT_TRUE(wanted.ok());
  ASSERT_EQ(wanted->size(), 2u);
  EXPECT_EQ((*wanted)[0].model, "a");
  EXPECT_EQ((*wanted)[0].version, "10");
  EXPECT_EQ((*wanted)[1].model, "b");
}

TEST_F(Repository, ContentsAreNamesAndBytesOfAllFiles) {
  const WantedVersion version = (*ScanRepository(In(root_.string())))[1];
  const ContentHash first = *HashContents(version);
  ASSERT_TRUE(WriteFile(version.path, "m").ok());
  EXPECT_EQ(*HashContents(version), first);  // other times alone
  const std::string data = (root_ / "b/3/weights").string();
  ASSERT_TRUE(WriteFile(data, "w").ok());
  const ContentHash second = *HashContents(version);
  EXPECT_FALSE(second == first);
  ASSERT_TRUE(WriteFile(data, "v").ok());
  EXPECT_FALSE(*HashContents(version) == second);
  ASSERT_EQ(mkfifo((root_ / "b/3/fifo").c_str(), 0600), 0);  // does not block it
  EXPECT_TRUE(HashContents(version).ok());
}

TEST_F(Repository, TakesASingleFileUnderItsStemOrAName) {
  const std::string file = (root_ / "b" / "3" / "model.onnx").string();
  RepositoryOptions options = In(file);
  EXPECT_EQ((*ScanRepository(options))[0].model, "model");
  options.model_name = "named";
  EXPECT_EQ((*ScanRepository(options))[0].model, "named");
  options.model_name = "../x";
  EXPECT_FALSE(ScanRepository(options).ok());
}

TEST_F(Repository, TakesTheFolderOfOneModel) {
  RepositoryOptions options = In((root_ / "a").string(), "all");
  const auto versions = ScanRepository(options);
  ASSERT_EQ(versions->size(), 3u);
  EXPECT_EQ((*versions)[0].model, "a");
  EXPECT_EQ((*versions)[2].version, "10");
  options.model_name = "named";
  ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), "versions: latest").ok());
  EXPECT_EQ((*ScanRepository(options))[0].model, "named");
  EXPECT_EQ(ScanRepository(options)->size(), 1u);

  const auto one = ScanRepository(In((root_ / "b/3/").string()));
  ASSERT_EQ(one->size(), 1u);
  EXPECT_EQ((*one)[0].model, "3");
  EXPECT_EQ((*one)[0].version, "1");
  EXPECT_EQ((*one)[0].path, (root_ / "b/3/model.onnx").string());

  const fs::path other = root_ / "empty";
  ASSERT_TRUE(WriteFile((other / "my.onnx").string(), "m").ok());
  ASSERT_TRUE(WriteFile((other / "config.json").string(), "{}").ok());
  EXPECT_EQ((*ScanRepository(In(other.string())))[0].path, (other / "my.onnx").string());
  ASSERT_TRUE(WriteFile((other / "two.onnx").string(), "m").ok());
  EXPECT_TRUE(ScanRepository(In(other.string()))->empty());  // which one
  ASSERT_TRUE(WriteFile((other / "model.onnx").string(), "m").ok());
  EXPECT_EQ((*ScanRepository(In(other.string())))[0].path, (other / "model.onnx").string());
}

TEST_F(Repository, TakesAFolderOfTheHub) {
  const fs::path clone = root_ / "empty";
  fs::create_directories(clone / "onnx");
  ASSERT_TRUE(WriteFile((clone / "onnx/model.onnx").string(), "m").ok());
  ASSERT_TRUE(WriteFile((clone / "model.yaml").string(), "pinned: true\n").ok());
  const auto wanted = *ScanRepository(In(clone.string()));
  ASSERT_EQ(wanted.size(), 1u);
  EXPECT_EQ(wanted[0].model, "empty");
  EXPECT_EQ(wanted[0].path, (clone / "onnx/model.onnx").string());
  EXPECT_TRUE(wanted[0].settings.pinned);
  ASSERT_TRUE(WriteFile((clone / "my.onnx").string(), "m").ok());
  EXPECT_EQ((*ScanRepository(In(clone.string())))[0].path, (clone / "my.onnx").string());
}

TEST_F(Repository, SettingsMayStandBesideTheOnlyModel) {
  const std::string folder = (root_ / "b/3").string();
  ASSERT_TRUE(WriteFile(folder + "/model.yaml", "pinned: true\n").ok());
  const auto pinned = *ScanRepository(In(folder));
  ASSERT_EQ(pinned.size(), 1u);
  EXPECT_TRUE(pinned[0].settings.pinned);
  EXPECT_EQ(FingerprintOf(pinned[0]), pinned[0].fingerprint);
  EXPECT_FALSE((*ScanRepository(In(folder + "/model.onnx")))[0].settings.pinned);

  ASSERT_TRUE(WriteFile(folder + "/model.yaml", "pinned: maybe\n").ok());
  EXPECT_NE((*ScanRepository(In(folder)))[0].fault.message().find("pinned"), std::string::npos);
  const std::string ensemble =
      "ensemble:\n  steps:\n  - {model: a, inputs: {x: x}, outputs: {y: y}}\n";
  ASSERT_TRUE(WriteFile(folder + "/model.yaml", ensemble).ok());
  EXPECT_NE((*ScanRepository(In(folder)))[0].fault.message().find("no model of its own"),
            std::string::npos);
}

TEST_F(Repository, AFileThatStraysIntoItChangesNothing) {
  ASSERT_TRUE(WriteFile((root_ / "model.onnx").string(), "m").ok());
  fs::create_directories(root_ / "7");
  ASSERT_TRUE(WriteFile((root_ / "7/model.onnx").string(), "m").ok());
  const auto wanted = ScanRepository(In(root_.string()));
  ASSERT_EQ(wanted->size(), 2u);
  EXPECT_EQ((*wanted)[0].model, "a");
}

TEST_F(Repository, SaysWhatItExpected) {
  EXPECT_EQ(ScanRepository(In((root_ / "none").string())).status().code(), StatusCode::kNotFound);
  const auto empty = ScanRepository(In((root_ / "empty").string()));
  ASSERT_TRUE(empty.ok());
  EXPECT_TRUE(empty->empty());
}

TEST_F(Repository, WantsWhatThePolicySays) {
  const auto versions = [&](const std::string& policy) {
    std::string found;
    const auto wanted = ScanRepository(In(root_.string(), policy));
    for (const WantedVersion& version : *wanted) found += version.model + version.version + " ";
    return found;
  };
  EXPECT_EQ(versions("all"), "a1 a2 a10 b3 ");
  EXPECT_EQ(versions("latest:2"), "a2 a10 b3 ");
  EXPECT_EQ(versions("3,1"), "a1 b3 ");
}

TEST_F(Repository, AFingerprintChangesWithAnyFileOfTheVersion) {
  const auto fingerprint = [&] {
    const WantedVersion version = (*ScanRepository(In(root_.string())))[1];
    EXPECT_EQ(FingerprintOf(version), version.fingerprint);
    return version.fingerprint;
  };
  const uint64_t before = fingerprint();
  EXPECT_EQ(fingerprint(), before);
  ASSERT_TRUE(WriteFile((root_ / "b/3/weights.bin").string(), "w").ok());
  const uint64_t with_data = fingerprint();
  EXPECT_NE(with_data, before);
  ASSERT_TRUE(WriteFile((root_ / "b/3/weights.bin").string(), "other").ok());
  EXPECT_NE(fingerprint(), with_data);
}

TEST_F(Repository, AModelsOwnFileCountsForAllItsVersions) {
  ASSERT_TRUE(
      WriteFile((root_ / "a/model.yaml").string(), "versions: latest:2\npinned: true\n").ok());
  const auto wanted = *ScanRepository(In(root_.string()));
  ASSERT_EQ(wanted.size(), 3u);
  EXPECT_TRUE(wanted[0].settings.pinned);
  EXPECT_FALSE(wanted[2].settings.pinned);
  EXPECT_EQ(wanted[1].version, "10");
  EXPECT_EQ(FingerprintOf(wanted[1]), wanted[1].fingerprint);
  ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), "versions: latest:2\n").ok());
  const auto changed = *ScanRepository(In(root_.string()));
  EXPECT_NE(changed[1].fingerprint, wanted[1].fingerprint);
  EXPECT_EQ(changed[2].fingerprint, wanted[2].fingerprint);
}

TEST_F(Repository, AFaultyFileIsThatModelsFault) {
  for (const char* text : {"pinned: maybe\n", "versions: newest\n"}) {
    ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), text).ok());
    const auto wanted = *ScanRepository(In(root_.string()));
    EXPECT_EQ(wanted[0].fault.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(wanted[0].fault.message().find("model.yaml"), std::string_view::npos);
    EXPECT_TRUE(wanted[1].fault.ok());
  }
}

TEST_F(Repository, SeveralFoldersAreOneUnlessTheyShareAName) {
  const fs::path other = root_ / ".other";
  fs::create_directories(other / "c/1");
  ASSERT_TRUE(WriteFile((other / "c/1/model.onnx").string(), "m").ok());
  RepositoryOptions options = In(root_.string());
  options.paths.push_back(other.string());
  EXPECT_EQ(ScanRepository(options)->size(), 3u);
  fs::create_directories(other / "a/1");
  ASSERT_TRUE(WriteFile((other / "a/1/model.onnx").string(), "m").ok());
  const Status status = ScanRepository(options).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("'a' stands in two repositories"), std::string_view::npos);
}

TEST_F(Repository, OtherKindsOfFilesAreNoModels) {
  fs::create_directories(root_ / "odd/1");
  ASSERT_EQ(mkfifo((root_ / "odd/1/model.onnx").c_str(), 0600), 0);
  fs::create_directories(root_ / "odd/2/model.onnx");
  ASSERT_TRUE(WriteFile((root_ / "plain").string(), "a file among the folders").ok());
  fs::create_symlink("nowhere", root_ / "dangling");
  EXPECT_EQ(ScanRepository(In(root_.string()))->size(), 2u);
}

TEST_F(Repository, WhatLabelsAndSharesNameIsWantedToo) {
  ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(),
                        "labels:\n  stable: 2\n  gone: 7\nsplit:\n  stable: 9\n  1: 1\n")
                  .ok());
  std::vector<std::string> versions;
  const auto wanted = *ScanRepository(In(root_.string()));
  for (const WantedVersion& version : wanted) {
    if (version.model == "a") versions.push_back(version.version);
  }
  EXPECT_EQ(versions, (std::vector<std::string>{"1", "2", "10"}));
}

TEST_F(Repository, LabelsAndSharesAreNoReasonToLoadAnew) {
  const uint64_t before = (*ScanRepository(In(root_.string())))[0].fingerprint;
  ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), "labels:\n  stable: 10\n").ok());
  EXPECT_EQ((*ScanRepository(In(root_.string())))[0].fingerprint, before);
}

TEST(VersionPolicy, RefusesOtherTexts) {
  for (const char* text : {"", "newest", "latest:", "latest:0", "1,x", "-1"}) {
    EXPECT_FALSE(ParseVersionPolicy(text).ok()) << text;
  }
}

TEST(ModelRegistry, PinsVersionsAndFindsTheNewest) {
  ModelRegistry registry;
  for (const char* version : {"9", "10", "2"}) {
    auto made = std::make_shared<ModelVersion>();
    made->model = "m";
    made->version = version;
    registry.Publish(std::move(made));
  }
  EXPECT_EQ((*registry.Find("m", ""))->version, "10");
  EXPECT_EQ((*registry.Find("m", "2"))->version, "2");
  EXPECT_EQ(registry.Find("m", "3").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(registry.Find("n", "").status().message(),
            "Request for unknown model: 'n' is not found");
}

TEST(ModelRegistry, FindsVersionsByLabelAndByShare) {
  ModelRegistry registry;
  for (const char* version : {"3", "4", "5"}) {
    auto made = std::make_shared<ModelVersion>();
    made->model = "m";
    made->version = version;
    registry.Publish(std::move(made));
  }
  RolloutSettings rollout;
  rollout.labels = {{"stable", "3"}, {"canary", "4"}};
  registry.SetRollouts("", {{"m", rollout}});
  EXPECT_EQ((*registry.Find("m", "canary"))->version, "4");
  EXPECT_EQ((*registry.Find("m", ""))->version, "5");
  EXPECT_EQ(registry.Find("m", "beta").status().code(), StatusCode::kNotFound);
  rollout.split = {{"stable", 1}, {"canary", 1}};
  registry.SetRollouts("m", {{"m", rollout}});
  EXPECT_EQ((*registry.Find("m", ""))->version, "3");
  std::set<std::string> found;
  for (uint64_t i = 0; i < 4; ++i) found.insert((*registry.Find("m", "", i << 62))->version);
  EXPECT_EQ(found, (std::set<std::string>{"3", "4"}));
  registry.SetRollouts("", {});
  EXPECT_EQ((*registry.Find("m", ""))->version, "5");
}

StatusCode FoundCode(const ModelRegistry& registry, const char* model, const char* version) {
  return registry.Find(model, version).status().code();
}

TEST(Registry, SaysThatAModelIsLoadingUntilItIsPublishedOrGivenUp) {
  ModelRegistry registry;
  registry.Expect("a", "2");
  registry.Expect("b", "1");
  EXPECT_EQ(FoundCode(registry, "a", ""), StatusCode::kUnavailable);
  EXPECT_EQ(FoundCode(registry, "a", "2"), StatusCode::kUnavailable);
  EXPECT_EQ(FoundCode(registry, "a", "1"), StatusCode::kNotFound);
  EXPECT_EQ(FoundCode(registry, "c", ""), StatusCode::kNotFound);
  auto version = std::make_shared<ModelVersion>();
  version->model = "a";
  version->version = "2";
  registry.Publish(version);
  registry.GiveUp("b", "1", "it is broken");
  EXPECT_EQ(FoundCode(registry, "a", ""), StatusCode::kOk);
  const Status broken = registry.Find("b", "").status();
  EXPECT_EQ(broken.code(), StatusCode::kUnavailable);
  EXPECT_NE(broken.message().find("it is broken"), std::string_view::npos);
  EXPECT_EQ(registry.Remove("b", "1"), nullptr);
  EXPECT_EQ(FoundCode(registry, "b", ""), StatusCode::kNotFound);
}

TEST(Registry, APublishedVersionReplacesAndARemovedOneIsStillHeld) {
  ModelRegistry registry;
  const auto make = [] {
    auto version = std::make_shared<ModelVersion>();
    version->model = "a";
    version->version = "1";
    return version;
  };
  const auto first = make(), second = make();
  EXPECT_EQ(registry.Publish(first), nullptr);
  EXPECT_EQ(registry.Publish(second), first);
  const auto held = *registry.Find("a", "1");
  EXPECT_EQ(registry.Remove("a", "1"), second);
  EXPECT_EQ(held, second);
  EXPECT_FALSE(registry.Has("a", "1"));
  EXPECT_EQ(registry.Remove("a", "1"), nullptr);
}

TEST(Registry, TheIndexNamesWhatServesLoadsAndFailed) {
  ModelRegistry registry;
  registry.Expect("b", "1");
  registry.GiveUp("c", "3", "why");
  auto version = std::make_shared<ModelVersion>();
  version->model = "a";
  version->version = "2";
  registry.Publish(std::move(version));
  std::string text;
  for (const auto& entry : registry.Index()) {
    text += StrCat(entry.model, entry.version, " ", ModelRegistry::StateName(entry.state), " ",
                   entry.reason, "; ");
  }
  EXPECT_EQ(text, "a2 READY ; b1 LOADING ; c3 UNAVAILABLE why; ");
}

}  // namespace
}  // namespace onnxd
