// A model found in the cache answers as one that was loaded from its file, and what the cache must
// not answer for is loaded again.
#include "runtime/session/prepared_model_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "runtime/base/str_cat.h"
#include "runtime/format/model_writer.h"
#include "runtime/session/inference_session.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

namespace fs = std::filesystem;

Tensor Ramp(const Shape& shape, float scale) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = scale * static_cast<float>(i % 13 - 6);
  }
  return tensor;
}

// Some of everything: a product whose weights are packed when it is prepared, a convolution, a body
// with a constant of its own, and strings.
TestModel SampleModel(float scale = 0.01f) {
  TestModel body;
  body.Constant("offset", Floats(Shape{}, {2.0f})).Output("offset");
  TestModel other;
  other.Constant("none", Floats(Shape{}, {0.0f})).Output("none");
  Attributes branches, perm;
  branches.Set("then_branch", std::make_shared<Graph>(std::move(body.graph())));
  branches.Set("else_branch", std::make_shared<Graph>(std::move(other.graph())));
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), 64})
      .Input("flag", DataType::kBool, {})
      .Input("image", DataType::kFloat, {1, 16, 8, 8})
      .Constant("w", Ramp(Shape{64, 300}, scale))
      .Constant("filters", Ramp(Shape{32, 16, 3, 3}, scale))
      .Constant("names", Tensor::Of<std::string>(Shape{2}, {"one", "two"}))
      .Node("MatMul", {"x", "w"}, {"product"})
      .Node("If", {"flag"}, {"chosen"}, branches)
      .Node("Add", {"product", "chosen"}, {"sum"})
      .Node("Conv", {"image", "filters"}, {"conv"})
      .Node("Relu", {"conv"}, {"features"})
      .Node("Identity", {"names"}, {"labels"})
      .Output("sum")
      .Output("features")
      .Output("labels");
  return model;
}

std::vector<Value> SampleInputs() {
  return {Ramp(Shape{3, 64}, 0.5f), Tensor::Scalar(true), Ramp(Shape{1, 16, 8, 8}, 0.25f)};
}

class PreparedModelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::path(testing::TempDir()) / StrCat("onnxd_cache_", getpid());
    fs::remove_all(root_);
    fs::create_directories(root_);
    model_ = (root_ / "model.onnx").string();
    Write(SampleModel());
    OpenCache();
  }
  void TearDown() override { fs::remove_all(root_); }

  void Write(TestModel model) {
    const auto bytes = WriteModel(model.model());
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    ASSERT_TRUE(WriteFile(model_, *bytes).ok());
  }

  void OpenCache(uint64_t limit = 1 << 30) {
    auto cache = PreparedModelCache::Open((root_ / "cache").string(), limit);
    ASSERT_TRUE(cache.ok()) << cache.status().ToString();
    cache_ = *cache;
  }

  std::unique_ptr<InferenceSession> Load(OptimizationLevel level = OptimizationLevel::kAll) {
    SessionOptions options = DefaultSession(level);
    options.cache = cache_;
    auto session = InferenceSession::Load(model_, std::move(options));
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    return session.ok() ? std::move(*session) : nullptr;
  }

  // As a model that may write texts is loaded. Saves it where it was not found.
  bool FindsAsked(bool asks) {
    SessionOptions options = DefaultSession();
    options.cache = cache_;
    if (asks) options.last_rows = {"logits", "past"}, options.dropped_tokens = {"past"};
    const auto session = InferenceSession::Load(model_, std::move(options));
    EXPECT_TRUE(session.ok()) << session.status().ToString();
    if ((*session)->wants_saving()) {
      EXPECT_TRUE((*session)->SaveToCache().ok());
    }
    return (*session)->from_cache();
  }

  // Loads, runs and saves: a first start.
  std::vector<Value> FirstStart() {
    const auto session = Load();
    EXPECT_FALSE(session->from_cache());
    auto outputs = session->Run(SampleInputs(), {});
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
    const Status saved = session->SaveToCache();
    EXPECT_TRUE(saved.ok()) << saved.ToString();
    return std::move(*outputs);
  }

  std::vector<fs::path> Entries() const {
    std::vector<fs::path> entries;
    for (const auto& file : fs::directory_iterator(root_ / "cache")) {
      if (file.path().extension() == ".prepared") entries.push_back(file.path());
    }
    return entries;
  }

  fs::path root_;
  std::string model_;
  std::shared_ptr<PreparedModelCache> cache_;
};

void ExpectSameBits(const std::vector<Value>& a, const std::vector<Value>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const Tensor &x = a[i].tensor(), &y = b[i].tensor();
    ASSERT_EQ(x.type(), y.type());
    ASSERT_EQ(x.shape(), y.shape());
    if (x.type() == DataType::kString) {
      EXPECT_TRUE(std::ranges::equal(x.elements<std::string>(), y.elements<std::string>()));
    } else {
      EXPECT_EQ(std::memcmp(x.raw(), y.raw(), x.bytes()), 0) << "output " << i;
    }
  }
}

TEST_F(PreparedModelCacheTest, SecondStartFindsTheModelAndAnswersWithTheSameBits) {
  const std::vector<Value> expected = FirstStart();
  OpenCache();  // as another process would
  const auto session = Load();
  EXPECT_TRUE(session->from_cache());
  EXPECT_EQ(cache_->statistics().hits, 1);
  const auto outputs = session->Run(SampleInputs(), {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  ExpectSameBits(expected, *outputs);
}

TEST_F(PreparedModelCacheTest, FoundModelSaysTheSameOfItself) {
  const auto first = Load();
  ASSERT_TRUE(first->SaveToCache().ok());
  const auto second = Load();
  ASSERT_TRUE(second->from_cache());
  ASSERT_EQ(first->inputs().size(), second->inputs().size());
  for (size_t i = 0; i < first->inputs().size(); ++i) {
    EXPECT_EQ(first->inputs()[i].name, second->inputs()[i].name);
    EXPECT_EQ(ToString(first->inputs()[i].type), ToString(second->inputs()[i].type));
  }
  for (size_t i = 0; i < first->outputs().size(); ++i) {
    EXPECT_EQ(first->outputs()[i].name, second->outputs()[i].name);
    EXPECT_EQ(ToString(first->outputs()[i].type), ToString(second->outputs()[i].type));
  }
  EXPECT_EQ(first->info().operator_counts, second->info().operator_counts);
  EXPECT_EQ(first->info().opsets, second->info().opsets);
  EXPECT_EQ(first->info().parameters, second->info().parameters);
  EXPECT_EQ(first->info().nodes_by_provider, second->info().nodes_by_provider);
}

TEST_F(PreparedModelCacheTest, AnotherShapeThanTheSavedOneStillRuns) {
  FirstStart();
  const auto cached = Load();
  ASSERT_TRUE(cached->from_cache());
  cache_ = nullptr;
  const auto plain = Load();
  for (const int64_t rows : {1, 17, 400}) {
    std::vector<Value> inputs = SampleInputs();
    inputs[0] = Ramp(Shape{rows, 64}, 0.5f);
    const auto a = plain->Run(inputs, {}), b = cached->Run(inputs, {});
    ASSERT_TRUE(a.ok() && b.ok()) << b.status().ToString();
    ExpectSameBits(*a, *b);
  }
}

TEST_F(PreparedModelCacheTest, SavedBeforeAnyRunIsFoundToo) {
  const auto first = Load();
  ASSERT_TRUE(first->SaveToCache().ok());
  const auto second = Load();
  EXPECT_TRUE(second->from_cache());
  const auto a = first->Run(SampleInputs(), {}), b = second->Run(SampleInputs(), {});
  ASSERT_TRUE(a.ok() && b.ok()) << b.status().ToString();
  ExpectSameBits(*a, *b);
}

TEST_F(PreparedModelCacheTest, OtherContentsUnderTheSameNameAreLoadedAgain) {
  const std::vector<Value> before = FirstStart();
  Write(SampleModel(0.02f));
  const auto session = Load();
  EXPECT_FALSE(session->from_cache());
  const auto outputs = session->Run(SampleInputs(), {});
  ASSERT_TRUE(outputs.ok());
  EXPECT_NE(before[0].tensor().data<float>()[0], (*outputs)[0].tensor().data<float>()[0]);
}

TEST_F(PreparedModelCacheTest, SameContentsUnderAnotherNameAreFound) {
  FirstStart();
  const std::string copy = (root_ / "copy.onnx").string();
  fs::copy_file(model_, copy);
  model_ = copy;
  EXPECT_TRUE(Load()->from_cache());
}

TEST_F(PreparedModelCacheTest, OtherOptionsHaveEntriesOfTheirOwn) {
  FirstStart();
  EXPECT_FALSE(Load(OptimizationLevel::kBasic)->from_cache());
  EXPECT_TRUE(Load()->from_cache());
}

TEST_F(PreparedModelCacheTest, WhatIsAskedOfOtherModelsInVainChangesNothing) {
  EXPECT_FALSE(FindsAsked(true));
  EXPECT_TRUE(FindsAsked(false));
  EXPECT_TRUE(FindsAsked(true));
  EXPECT_EQ(Entries().size(), 1u);
}

TEST_F(PreparedModelCacheTest, AModelThatGetsInputsHasAnEntryWithThem) {
  const Dimension batch = Dimension::Symbol("batch"), past = Dimension::Symbol("past");
  TestModel model;
  model.Input("past_0", DataType::kFloat, {batch, past}).Input("new", DataType::kFloat, {batch, 1});
  model.Node("Concat", {"past_0", "new"}, {"present_0"}, [] {
    Attributes axis;
    axis.Set("axis", int64_t{1});
    return axis;
  }());
  Write(model.Output("present_0"));
  EXPECT_FALSE(FindsAsked(false));
  EXPECT_FALSE(FindsAsked(true)) << "the model without them";
  EXPECT_TRUE(FindsAsked(false));
  EXPECT_TRUE(FindsAsked(true));
  EXPECT_EQ(Entries().size(), 2u);
}

TEST_F(PreparedModelCacheTest, DamageAnywhereIsNoticedRemovedAndCounted) {
  const std::vector<Value> expected = FirstStart();
  ASSERT_EQ(Entries().size(), 1u);
  std::string whole = *ReadFile(Entries()[0].string(), 1 << 30);
  for (const double at : {0.0, 0.001, 0.3, 0.6, 0.999}) {
    std::string damaged = whole;
    // Blobs begin at multiples of 64: a byte there is not padding.
    const size_t position = static_cast<size_t>(at * static_cast<double>(whole.size())) / 64 * 64;
    damaged[position] = static_cast<char>(damaged[position] ^ 1);
    const fs::path entry = Entries().empty() ? root_ / "none" : Entries()[0];
    ASSERT_TRUE(WriteFile(entry.string(), damaged).ok());
    const int64_t before = cache_->statistics().damaged;
    const auto session = Load();
    EXPECT_FALSE(session->from_cache()) << "byte " << position;
    EXPECT_EQ(cache_->statistics().damaged, before + 1) << "byte " << position;
    EXPECT_FALSE(fs::exists(entry));
    const auto outputs = session->Run(SampleInputs(), {});
    ASSERT_TRUE(outputs.ok());
    ExpectSameBits(expected, *outputs);
    ASSERT_TRUE(session->SaveToCache().ok());
  }
}

TEST_F(PreparedModelCacheTest, TruncatedEntriesAreDamaged) {
  FirstStart();
  const std::string whole = *ReadFile(Entries()[0].string(), 1 << 30);
  for (const size_t length : {size_t{1}, size_t{63}, size_t{64}, whole.size() - 1}) {
    const fs::path entry = Entries()[0];
    ASSERT_TRUE(WriteFile(entry.string(), whole.substr(0, length)).ok());
    const auto session = Load();
    EXPECT_FALSE(session->from_cache()) << length << " bytes";
    ASSERT_TRUE(session->SaveToCache().ok());
  }
}

TEST_F(PreparedModelCacheTest, ModelThatChangedBeforeItWasSavedIsNotStored) {
  const auto session = Load();
  ASSERT_TRUE(session->Run(SampleInputs(), {}).ok());
  Write(SampleModel(0.02f));
  EXPECT_EQ(session->SaveToCache().code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Entries().empty());
}

TEST_F(PreparedModelCacheTest, EntriesUsedLongestAgoMakeRoom) {
  FirstStart();
  const uint64_t bytes = fs::file_size(Entries()[0]);
  OpenCache(bytes * 5 / 2);
  const std::string first = model_;
  for (const float scale : {0.02f, 0.03f}) {
    model_ = (root_ / StrCat("model", scale, ".onnx")).string();
    Write(SampleModel(scale));
    usleep(20'000);  // file times tell entries apart
    FirstStart();
  }
  EXPECT_EQ(Entries().size(), 2u);
  EXPECT_TRUE(Load()->from_cache());
  model_ = first;
  EXPECT_FALSE(Load()->from_cache());
}

TEST_F(PreparedModelCacheTest, EntryBeyondTheLimitIsNotKept) {
  OpenCache(1000);
  const auto session = Load();
  EXPECT_EQ(session->SaveToCache().code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(Entries().empty());
  EXPECT_EQ(cache_->statistics().not_stored, 1);
}

TEST_F(PreparedModelCacheTest, FolderThatOthersMayWriteIsRefused) {
  const std::string open = (root_ / "open").string();
  ASSERT_EQ(mkdir(open.c_str(), 0777), 0);
  ASSERT_EQ(chmod(open.c_str(), 0777), 0);
  EXPECT_EQ(PreparedModelCache::Open(open, 1 << 20).status().code(),
            StatusCode::kFailedPrecondition);
}

TEST_F(PreparedModelCacheTest, EmptiedFolderIsAnEmptyCache) {
  FirstStart();
  for (const auto& file : fs::directory_iterator(root_ / "cache")) fs::remove(file.path());
  EXPECT_FALSE(Load()->from_cache());
  OpenCache();
  EXPECT_FALSE(Load()->from_cache());
}

TEST_F(PreparedModelCacheTest, ModelsOfTheRepositoryAnswerTheSame) {
  for (const auto& folder : fs::recursive_directory_iterator(EmbeddedModels())) {
    if (folder.path().extension() != ".onnx") continue;
    model_ = folder.path().string();
    const auto first = Load();
    std::vector<Value> inputs;
    for (const TensorSignature& input : first->inputs()) {
      Shape shape;
      for (const Dimension& d : *input.type.shape) shape.Append(d.known() ? d.value : 3);
      ASSERT_EQ(input.type.element, DataType::kFloat);
      inputs.emplace_back(Ramp(shape, 0.1f));
    }
    const auto a = first->Run(inputs, {});
    ASSERT_TRUE(a.ok()) << a.status().ToString();
    ASSERT_TRUE(first->SaveToCache().ok());
    const auto second = Load();
    ASSERT_TRUE(second->from_cache()) << model_;
    const auto b = second->Run(inputs, {});
    ASSERT_TRUE(b.ok()) << b.status().ToString();
    for (size_t i = 0; i < a->size(); ++i) {
      if ((*a)[i].is_tensor()) ExpectSameBits({(*a)[i]}, {(*b)[i]});
    }
  }
}

}  // namespace
}  // namespace onnxd
