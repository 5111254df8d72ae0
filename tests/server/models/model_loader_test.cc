#include "server/models/model_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <optional>

#include "runtime/base/file.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ModelLoaderTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / StrCat("onnxd_loader_", getpid());
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    wanted_.model = "m";
    wanted_.version = "1";
    wanted_.path = (folder_ / "model.onnx").string();
    Write("first");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void Write(const std::string& content) { ASSERT_TRUE(WriteFile(wanted_.path, content).ok()); }

  // y = op(x), x a float of one free dimension.
  static Result<std::unique_ptr<InferenceSession>> Unary(const std::string& op) {
    TestModel model;
    model.Input("x", DataType::kFloat, {Dimension::Symbol("n")});
    model.Node(op, {"x"}, {"y"}).Output("y");
    return InferenceSession::FromModel(std::move(model.model()), DefaultSession());
  }

  Status Load(const ModelLoader::LoadSession& load, ModelLoader::Way way = {}) {
    ModelLoader loader(DefaultSession(), scheduler_, metrics_, load);
    return loader.Load(wanted_, std::make_shared<MemoryAccount>(), way).status();
  }

  fs::path folder_;
  WantedVersion wanted_;
  ServerMetrics metrics_;
  Scheduler scheduler_{{1, 100, 0}, metrics_};
};

// Its path says nothing here.
ModelLoader::LoadSession Instead(std::function<Result<std::unique_ptr<InferenceSession>>()> load) {
  return [load = std::move(load)](const std::string&, const SessionOptions&) { return load(); };
}

TEST_F(ModelLoaderTest, FilesThatChangeWhileTheyAreReadAreNoModel) {
  const auto writes = Instead([&] {
    Write("other");
    return Unary("Neg");
  });
  ModelLoader::Way way;
  way.trusts_files = false;
  EXPECT_EQ(Load(writes, way).code(), StatusCode::kAborted);
  EXPECT_TRUE(Load(writes, way).ok());  // the same bytes again
}

TEST_F(ModelLoaderTest, AVersionWhoseWarmUpAnswersNanIsRefusedIfItsSettingsSaySo) {
  const auto log = Instead([] { return Unary("Log"); });  // of negative numbers
  EXPECT_TRUE(Load(log).ok());
  wanted_.settings.warm_up_failure = "refuse";
  const Status refused = Load(log);
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("output 'y'"));
  EXPECT_TRUE(Load(Instead([] { return Unary("Neg"); })).ok());
}

TEST_F(ModelLoaderTest, AModelsPrecisionGoesBeforeTheServers) {
  std::optional<Precision> seen;
  const auto load = [&](const std::string&, const SessionOptions& options) {
    seen = options.precision;
    return Unary("Neg");
  };
  EXPECT_TRUE(Load(load).ok());
  EXPECT_EQ(seen, DefaultSession().precision);
  wanted_.settings.precision = "fp16";
  EXPECT_TRUE(Load(load).ok());
  EXPECT_EQ(seen, Precision::kFloat16);
}

TEST_F(ModelLoaderTest, AVersionWhoseWarmUpFailsIsRefusedIfItsSettingsSaySo) {
  const auto fails = Instead([] {
    TestModel model;
    model.Input("i", DataType::kInt64, {Dimension::Symbol("n"), Dimension(16)});
    model.Constant("w", Floats({1}, {1}));
    model.Node("Gather", {"w", "i"}, {"y"}).Output("y");
    return InferenceSession::FromModel(std::move(model.model()), DefaultSession());
  });
  EXPECT_TRUE(Load(fails).ok());
  wanted_.settings.warm_up_failure = "refuse";
  const Status refused = Load(fails);
  EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the warm-up run failed"));
}

}  // namespace
}  // namespace onnxd
