#include "server/models/model_manager.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <future>
#include <thread>

#include "runtime/base/file.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr int64_t kMegabyte = 1 << 20;

// Models whose files say what becomes of them: a number of megabytes, "bad" or "hang".
class ManagerTest : public testing::Test {
 protected:
  void SetUp() override {
    threads_ = Threads();
    root_ = fs::temp_directory_path() / StrCat("onnxd_manager_", getpid());
    fs::remove_all(root_);
    options_.models.repository = root_.string();
    options_.models.control_mode = "explicit";
    options_.models.min_resident_s = 0;
    memory_->SetLimit(100 * kMegabyte);
  }
  void TearDown() override {
    Release();
    manager_.reset();
    // A load that was given up still ends on its thread, which uses this fixture.
    EXPECT_TRUE(Eventually([this] { return Threads() <= threads_; }));
    fs::remove_all(root_);
  }

  static int64_t Threads() {
    return std::distance(fs::directory_iterator("/proc/self/task"), fs::directory_iterator());
  }

  void Put(const std::string& model, int version, const std::string& content) {
    const fs::path folder = root_ / model / std::to_string(version);
    fs::create_directories(folder);
    ASSERT_TRUE(WriteFile((folder / "model.onnx").string(), content).ok());
  }

  void Start() {
    manager_ = std::make_unique<ModelManager>(
        DefaultSession(), options_, registry_, scheduler_, metrics_, memory_,
        [this](const std::string& path, const SessionOptions& options) {
          return LoadFake(path, options);
        });
    const auto wanted = *ScanRepository(RepositoryOptionsOf(options_));
    manager_->Expect(wanted);
    failures_ = manager_->LoadAll(wanted);
    manager_->Follow();
  }

  Result<std::unique_ptr<InferenceSession>> LoadFake(const std::string& path,
                                                     const SessionOptions& options) {
    ++loads_;
    const std::string content = *ReadFile(path, 1000);
    if (content == "bad") return InvalidArgument("it is bad");
    if (content == "hang") {
      std::unique_lock lock(mutex_);
      released_.wait(lock, [this] { return let_go_; });
    }
    SessionOptions own = DefaultSession();
    own.memory = options.memory;
    const ChargeTo charge(options.memory.get());
    const int64_t megabytes = content == "hang" ? 1 : std::stoll(content);
    auto weights = Tensor::Create(DataType::kFloat, Shape{megabytes * kMegabyte / 4});
    if (!weights.ok()) return weights.status();
    static std::atomic<int> next{0};  // no two are the same: equal ones share their memory
    weights->mutable_data<float>()[0] = static_cast<float>(++next);
    for (int64_t i = 1; i < weights->ElementCount(); ++i) weights->mutable_data<float>()[i] = 1;
    TestModel model;
    model.Input("i", DataType::kInt64, {Dimension::Symbol("n")}).Constant("w", *std::move(weights));
    model.Node("Gather", {"w", "i"}, {"y"}).Output("y");
    return InferenceSession::FromModel(std::move(model.model()), own);
  }

  void Release() {
    std::lock_guard lock(mutex_);
    let_go_ = true;
    released_.notify_all();
  }

  Status Control(bool load, const std::string& model) {
    std::promise<Status> done;
    manager_->Control({load, model}, [&](const Status& status) { done.set_value(status); });
    return done.get_future().get();
  }

  Result<std::shared_ptr<const ModelVersion>> Revive(const std::string& model,
                                                     ModelManager::Patience patience = {}) {
    std::promise<Result<std::shared_ptr<const ModelVersion>>> done;
    manager_->Revive(**registry_.Find(model, ""), std::move(patience),
                     [&](auto found) { done.set_value(std::move(found)); });
    return done.get_future().get();
  }

  bool Evicted(const std::string& model) { return (*registry_.Find(model, ""))->evicted; }

  // Until it holds, for at most 20 s.
  bool Eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(10));
    return condition();
  }

  int64_t threads_ = 0;
  fs::path root_;
  ServerOptions options_;
  ServerMetrics metrics_;
  ModelRegistry registry_;
  Scheduler scheduler_{{1, 100, 0}, metrics_};
  const std::shared_ptr<MemoryAccount> memory_ = std::make_shared<MemoryAccount>();
  std::unique_ptr<ModelManager> manager_;
  std::vector<Status> failures_;
  std::atomic<int> loads_{0};
  std::mutex mutex_;
  std::condition_variable released_;
  bool let_go_ = false;  // guarded by mutex_
};

TEST_F(ManagerTest, CountsTheMemoryOfWhatItLoads) {
  Put("a", 1, "20");
  Start();
  EXPECT_GE(memory_->bytes(), 20 * kMegabyte);
  EXPECT_LT(memory_->bytes(), 45 * kMegabyte);
  EXPECT_TRUE(Control(false, "a").ok());
  EXPECT_TRUE(Eventually([&] { return memory_->bytes() == 0; })) << memory_->bytes();
}

TEST_F(ManagerTest, WhatDoesNotFitIsRefusedWithTheFigures) {
  options_.models.min_resident_s = 1000;
  Put("a", 1, "60");
  Put("b", 1, "60");
  Start();
  ASSERT_EQ(failures_.size(), 1u);
  EXPECT_EQ(failures_[0].code(), StatusCode::kResourceExhausted);
  const std::string reason(registry_.Find("b", "").status().message());
  EXPECT_NE(reason.find("'b' did not load"), std::string::npos) << reason;
  EXPECT_LE(memory_->bytes(), memory_->limit());
  const Status again = Control(true, "b");
  EXPECT_NE(again.message().find(StrCat(" of ", memory_->limit(), " (limits.memory_bytes)")),
            std::string_view::npos)
      << again.ToString();
  EXPECT_TRUE(Control(false, "a").ok());
  EXPECT_TRUE(Control(true, "b").ok());
}

TEST_F(ManagerTest, AnIdleModelMakesRoomAndComesBackForARequest) {
  Put("a", 1, "60");
  Start();
  Put("b", 1, "60");
  ASSERT_TRUE(Control(true, "b").ok());
  EXPECT_TRUE(Evicted("a"));
  EXPECT_EQ(registry_.Index()[0].state, ModelRegistry::State::kReady);
  EXPECT_NE(registry_.Index()[0].reason, "");
  const auto revived = Revive("a");
  ASSERT_TRUE(revived.ok()) << revived.status().ToString();
  EXPECT_FALSE((*revived)->evicted);
  EXPECT_TRUE(Evicted("b"));
  EXPECT_LE(memory_->bytes(), memory_->limit());
}

TEST_F(ManagerTest, APinnedModelStays) {
  Put("a", 1, "60");
  ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), "pinned: true\n").ok());
  Start();
  Put("b", 1, "60");
  EXPECT_EQ(Control(true, "b").code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(Evicted("a"));
}

TEST_F(ManagerTest, OneLoadServesAllWhoWaitForIt) {
  Put("a", 1, "60");
  Start();
  Put("b", 1, "60");
  ASSERT_TRUE(Control(true, "b").ok());
  ASSERT_TRUE(Evicted("a"));
  const int before = loads_;
  std::vector<std::future<bool>> waiting;
  for (int i = 0; i < 8; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] { return Revive("a").ok(); }));
  }
  for (auto& one : waiting) EXPECT_TRUE(one.get());
  EXPECT_EQ(loads_, before + 1);
}

TEST_F(ManagerTest, WhoWaitsForAnEvictedModelWaitsUntilTheDeadlineAtMost) {
  Put("a", 1, "60");
  Start();
  Put("b", 1, "60");
  ASSERT_TRUE(Control(true, "b").ok());
  ASSERT_TRUE(WriteFile((root_ / "a/1/model.onnx").string(), "hang").ok());
  ModelManager::Patience patience;
  patience.deadline = std::chrono::steady_clock::now() + milliseconds(100);
  EXPECT_EQ(Revive("a", patience).status().code(), StatusCode::kDeadlineExceeded);
  patience.deadline.reset();
  patience.cancelled = std::make_shared<std::atomic<bool>>(true);
  EXPECT_EQ(Revive("a", patience).status().code(), StatusCode::kCancelled);
}

TEST_F(ManagerTest, ALoadThatHangsEndsAndOthersGoOn) {
  options_.models.load_timeout_s = 1;
  Put("a", 1, "hang");
  Put("b", 1, "1");
  Start();
  ASSERT_FALSE(failures_.empty());
  EXPECT_EQ(failures_[0].code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(failures_[0].message().find("load_timeout_s"), std::string_view::npos);
  // On a machine that stands still for a second b is late, too.
  EXPECT_TRUE(registry_.Find("b", "").ok() || Eventually([&] { return Control(true, "b").ok(); }));
  Release();
  EXPECT_TRUE(Eventually([&] { return memory_->bytes() < 3 * kMegabyte; }));
}

TEST_F(ManagerTest, ReadyIsForRequiredModelsToSay) {
  Put("a", 1, "1");
  Put("b", 1, "bad");
  ASSERT_TRUE(WriteFile((root_ / "b/model.yaml").string(), "required: true\n").ok());
  Start();
  EXPECT_FALSE(manager_->ready());
  Put("b", 1, "2");
  EXPECT_TRUE(Control(true, "b").ok());
  EXPECT_TRUE(manager_->ready());
  EXPECT_TRUE(Control(false, "a").ok());
  EXPECT_TRUE(manager_->ready());
  EXPECT_TRUE(Control(false, "b").ok());
  EXPECT_FALSE(manager_->ready());
}

TEST_F(ManagerTest, AnotherConfigurationLoadsWhatItConcerns) {
  Put("a", 1, "1");
  Start();
  EXPECT_EQ((*registry_.Find("a", ""))->settings.batching.max_batch_size, 256);
  options_.batching.max_batch_size = 16;
  manager_->Reconfigure(options_);
  EXPECT_TRUE(Eventually(
      [&] { return (*registry_.Find("a", ""))->settings.batching.max_batch_size == 16; }));
}

TEST_F(ManagerTest, AnotherConfigurationUnloadsNothing) {
  Put("a", 1, "1");
  Put("b", 1, "1");
  Start();
  Put("a", 2, "1");  // nobody has asked for it
  options_.batching.max_batch_size = 16;
  manager_->Reconfigure(options_);
  EXPECT_TRUE(Eventually(
      [&] { return (*registry_.Find("b", ""))->settings.batching.max_batch_size == 16; }));
  EXPECT_TRUE(Control(true, "b").ok());  // all of the above is over
  EXPECT_TRUE(registry_.Find("a", "1").ok());
  EXPECT_FALSE(registry_.Find("a", "2").ok());
}

TEST_F(ManagerTest, RemembersWhatWasLoadedByRequest) {
  options_.models.state_dir = (root_ / ".state").string();
  Put("a", 1, "1");
  Put("b", 1, "1");
  Start();
  EXPECT_TRUE(Control(false, "a").ok());
  EXPECT_EQ(*ReadFile((root_ / ".state/loaded_models").string(), 1000),
            "onnxd loaded models 1\nb\n1 models\n");
}

class FollowingTest : public ManagerTest {
 protected:
  void SetUp() override {
    ManagerTest::SetUp();
    options_.models.control_mode = "poll";
    options_.models.poll_interval_s = 1;
  }
  std::string Serving(const std::string& model) {
    const auto found = registry_.Find(model, "");
    return found.ok() ? (*found)->version : "";
  }
};

TEST_F(FollowingTest, ALabelMovesOnceItsVersionServesAndLoadsNothing) {
  const auto label = [&](const char* text) {
    ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), text).ok());
  };
  const auto stable = [&] {
    const auto found = registry_.Find("a", "stable");
    return found.ok() ? (*found)->version : "";
  };
  Put("a", 1, "5");
  label("labels:\n  stable: 1\n");
  Start();
  EXPECT_EQ(stable(), "1");
  Put("a", 2, "bad");
  ASSERT_TRUE(Eventually([&] { return registry_.Index().size() == 2; }));
  label("labels:\n  stable: 2\n  other: 1\n");
  ASSERT_TRUE(Eventually([&] { return registry_.Find("a", "other").ok(); }));
  EXPECT_EQ(stable(), "1");
  const int before = loads_;
  Put("a", 2, "6");
  ASSERT_TRUE(Eventually([&] { return stable() == "2"; }));
  EXPECT_EQ(loads_, before + 1);
  label("labels:\n  stable: 1\n");
  ASSERT_TRUE(Eventually([&] { return stable() == "1"; }));
  label("labels:\n  stable: none\n");  // a faulty file changes nothing
  ASSERT_TRUE(Eventually([&] { return registry_.Index()[1].reason != ""; }));
  EXPECT_EQ(stable(), "1");
}

TEST_F(FollowingTest, TheVersionBeforeComesBackFromMemory) {
  Put("a", 1, "5");
  Start();
  Put("a", 2, "6");
  ASSERT_TRUE(Eventually([&] { return Serving("a") == "2"; }));
  EXPECT_GE(memory_->bytes(), 11 * kMegabyte);  // both
  const int before = loads_;
  fs::remove_all(root_ / "a/2");
  ASSERT_TRUE(Eventually([&] { return Serving("a") == "1"; }));
  EXPECT_EQ(loads_, before);
  EXPECT_TRUE(Eventually([&] { return memory_->bytes() < 11 * kMegabyte; }));
}

TEST_F(FollowingTest, WhatIsKeptGoesFirstWhenMemoryIsNeeded) {
  Put("a", 1, "30");
  Start();
  Put("a", 2, "31");
  ASSERT_TRUE(Eventually([&] { return Serving("a") == "2"; }));
  Put("b", 1, "50");
  ASSERT_TRUE(Eventually([&] { return Serving("b") == "1"; }));
  EXPECT_FALSE(Evicted("a"));
  EXPECT_LE(memory_->bytes(), memory_->limit());
}

TEST_F(FollowingTest, UnloadFirstMakesRoomForTheNewVersion) {
  Put("a", 1, "60");
  ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), "update_policy: unload_first\n").ok());
  Start();
  Put("a", 2, "61");
  EXPECT_TRUE(Eventually([&] { return Serving("a") == "2"; }));
}

TEST_F(FollowingTest, UnloadFirstReturnsToTheOldVersionWhenTheNewOneFails) {
  Put("a", 1, "60");
  ASSERT_TRUE(WriteFile((root_ / "a/model.yaml").string(), "update_policy: unload_first\n").ok());
  Start();
  for (const auto& [version, content] : {std::pair(2, "bad"), std::pair(3, "200")}) {
    const int before = loads_;
    Put("a", version, content);
    ASSERT_TRUE(Eventually([&] { return loads_ > before && Serving("a") == "1"; })) << content;
    const auto entry = registry_.Index().back();
    EXPECT_EQ(entry.version, std::to_string(version));
    EXPECT_NE(entry.reason, "");
    // Tried once.
    const int after = loads_;
    std::this_thread::sleep_for(milliseconds(1500));
    EXPECT_EQ(loads_, after);
    EXPECT_EQ(Serving("a"), "1");
  }
}

TEST_F(FollowingTest, AnUpdateThatDoesNotFitLeavesTheOldVersion) {
  Put("a", 1, "60");
  Start();
  Put("a", 2, "61");
  ASSERT_TRUE(Eventually([&] { return registry_.Index().size() == 2; }));
  EXPECT_EQ(Serving("a"), "1");
  const auto entry = registry_.Index()[1];
  EXPECT_EQ(entry.version, "2");
  EXPECT_EQ(entry.state, ModelRegistry::State::kUnavailable);
  EXPECT_NE(entry.reason, "");
}

TEST_F(FollowingTest, ARepositoryThatCannotBeReadChangesNothing) {
  Put("a", 1, "1");
  Start();
  fs::rename(root_, root_.string() + ".moved");
  std::this_thread::sleep_for(milliseconds(1500));
  EXPECT_EQ(Serving("a"), "1");
  fs::rename(root_.string() + ".moved", root_);
}

}  // namespace
}  // namespace onnxd
