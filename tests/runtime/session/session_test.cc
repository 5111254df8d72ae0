#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <random>
#include <thread>

#include "runtime/base/str_cat.h"
#include "runtime/session/memory_planner.h"
#include "tests/support/test_model.h"

namespace onnxd {
namespace {

TEST(MemoryPlanner, NeverLetsLiveRequestsOverlap) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    std::vector<StorageRequest> requests;
    for (int i = 0; i < 40; ++i) {
      const int first = static_cast<int>(random() % 30);
      requests.push_back({random() % 1000, first, first + static_cast<int>(random() % 8)});
    }
    const MemoryPlan plan = PlanMemory(requests);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(plan.offsets[i] % kTensorAlignment, 0u);
      EXPECT_LE(plan.offsets[i] + requests[i].bytes, plan.arena_bytes);
      for (size_t j = 0; j < i; ++j) {
        const bool in_time =
            requests[i].first <= requests[j].last && requests[j].first <= requests[i].last;
        const bool in_space = plan.offsets[i] < plan.offsets[j] + requests[j].bytes &&
                              plan.offsets[j] < plan.offsets[i] + requests[i].bytes;
        EXPECT_FALSE(in_time && in_space);
      }
    }
  }
}

TEST(MemoryPlanner, ReusesWhatIsDead) {
  const MemoryPlan plan = PlanMemory({{640, 0, 1}, {640, 1, 2}, {640, 2, 3}, {640, 3, 4}});
  EXPECT_EQ(plan.arena_bytes, 1280u);
}

std::vector<float> RunFloats(const InferenceSession& session, const std::vector<Value>& inputs) {
  const auto outputs = session.Run(inputs, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  const auto elements = (*outputs)[0].tensor().elements<float>();
  return {elements.begin(), elements.end()};
}

TEST(InferenceSession, RunsChainsInPlaceAndKeepsInputs) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n"), 2});
  model.Node("Relu", {"x"}, {"a"}).Node("Neg", {"a"}, {"b"}).Node("Add", {"a", "b"}, {"c"});
  model.Node("Sub", {"c", "x"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const Tensor input = Floats(Shape{2, 2}, {1, -2, 3, -4});
  EXPECT_EQ(RunFloats(**session, {input}), (std::vector<float>{-1, 2, -3, 4}));
  EXPECT_EQ(input.data<float>()[1], -2.0f);
}

TEST(InferenceSession, HandsOutputsThatAreInputsConstantsOrTwins) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Constant("k", Floats(Shape{1}, {7}));
  model.Node("Relu", {"x"}, {"y"});
  model.Output("y").Output("x").Output("k").Output("y");
  for (const auto level : {OptimizationLevel::kDisable, OptimizationLevel::kAll}) {
    const auto session = model.Load(level);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const std::vector<Value> inputs = {Floats(Shape{2}, {-1, 2})};
    const auto outputs = (*session)->Run(inputs, {});
    ASSERT_TRUE(outputs.ok());
    EXPECT_EQ(outputs->at(0).tensor().data<float>()[1], 2.0f);
    EXPECT_EQ((*outputs)[1].tensor().data<float>()[0], -1.0f);
    EXPECT_EQ((*outputs)[2].tensor().data<float>()[0], 7.0f);
    EXPECT_EQ((*outputs)[3].tensor().data<float>()[1], 2.0f);
    EXPECT_NE((*outputs)[0].tensor().raw(), (*outputs)[3].tensor().raw());
  }
}

// Strings reach kernels as a Value, constants as well.
TEST(InferenceSession, HandsConstantTextToKernels) {
  Tensor labels = *Tensor::Create(DataType::kString, Shape{3});
  for (int i = 0; i < 3; ++i) labels.mutable_data<std::string>()[i] = std::string(1, "abc"[i]);
  TestModel model;
  model.Input("i", DataType::kInt64, {2}).Constant("labels", labels);
  model.Node("ArrayFeatureExtractor", {"labels", "i"}, {"y"}, {}, "ai.onnx.ml").Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const auto outputs = (*session)->Run(std::vector<Value>{Ints({2}, {2, 0})}, {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[0].tensor().elements<std::string>()[0], "c");
  EXPECT_EQ((*outputs)[0].tensor().elements<std::string>()[1], "a");
}

TEST(InferenceSession, RunsViewsOfViewsAsOutputs) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 3}).Constant("shape", Ints(Shape{1}, {-1}));
  model.Node("Relu", {"x"}, {"r"}).Node("Reshape", {"r", "shape"}, {"flat"});
  model.Constant("axes", Ints(Shape{1}, {0})).Node("Unsqueeze", {"flat", "axes"}, {"y"});
  model.Output("y").Output("flat").Output("r");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<Value> inputs = {Floats(Shape{2, 3}, {1, -2, 3, -4, 5, -6})};
  const auto outputs = (*session)->Run(inputs, {});
  ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
  EXPECT_EQ((*outputs)[0].tensor().shape(), (Shape{1, 6}));
  EXPECT_EQ((*outputs)[1].tensor().shape(), (Shape{6}));
  for (const Value& output : *outputs) {
    EXPECT_EQ(output.tensor().data<float>()[4], 5.0f);
    EXPECT_EQ(output.tensor().data<float>()[5], 0.0f);
  }
}

// A reshape whose target comes with the request cannot be planned ahead.
TEST(InferenceSession, RunsShapesThatTheDataDecide) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n")});
  model.Input("shape", DataType::kInt64, {2});
  model.Node("Relu", {"x"}, {"r"}).Node("Reshape", {"r", "shape"}, {"m"});
  model.Node("Transpose", {"m"}, {"t"}).Node("MatMul", {"m", "t"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const Tensor x = Floats(Shape{4}, {1, 2, 3, -4});
  EXPECT_EQ(RunFloats(**session, {x, Ints(Shape{2}, {2, 2})}), (std::vector<float>{5, 3, 3, 9}));
  EXPECT_EQ(RunFloats(**session, {x, Ints(Shape{2}, {1, 4})}), (std::vector<float>{14}));
  const std::vector<Value> bad = {x, Ints(Shape{2}, {3, 2})};
  const auto failure = (*session)->Run(bad, {});
  ASSERT_FALSE(failure.ok());
  EXPECT_NE(failure.status().message().find("Reshape"), std::string_view::npos);
  EXPECT_EQ(RunFloats(**session, {x, Ints(Shape{2}, {2, 2})}), (std::vector<float>{5, 3, 3, 9}));
}

TEST(InferenceSession, RunsTheBranchThatTheConditionPicks) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Input("cond", DataType::kBool, SymbolicShape{});
  const auto branch = [](const char* op) {
    auto graph = std::make_shared<Graph>();
    const ValueId in = graph->AddValue("x", ValueType::TensorOf(DataType::kFloat));
    const ValueId out = graph->AddValue(op);
    Node node;
    node.op_type = op;
    node.since_version = 13;
    node.inputs = {in};
    node.outputs = {out};
    graph->captures = {in};
    graph->nodes.push_back(node);
    graph->outputs = {out};
    return graph;
  };
  Attributes branches;
  branches.Set("then_branch", branch("Neg"));
  branches.Set("else_branch", branch("Abs"));
  model.Node("If", {"cond"}, {"chosen"}, branches);
  model.graph().nodes.back().captures = {model.graph().FindValue("x")};
  model.Node("Exp", {"chosen"}, {"e"}).Node("Log", {"e"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const Tensor x = Floats(Shape{2}, {1, -2});
  EXPECT_NEAR(RunFloats(**session, {x, Tensor::Scalar(true)})[1], 2.0f, 1e-6);
  EXPECT_NEAR(RunFloats(**session, {x, Tensor::Scalar(true)})[0], -1.0f, 1e-6);
  EXPECT_NEAR(RunFloats(**session, {x, Tensor::Scalar(false)})[0], 1.0f, 1e-6);
}

TEST(InferenceSession, NamesTheInputThatIsWrong) {
  TestModel model;
  model.Input("a", DataType::kFloat, {Dimension::Symbol("n"), 2});
  model.Input("b", DataType::kFloat, {Dimension::Symbol("n"), 2});
  model.Node("Add", {"a", "b"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok());
  const auto message = [&](std::vector<Value> inputs) {
    return std::string((*session)->Run(inputs, {}).status().message());
  };
  const Tensor good = Floats(Shape{1, 2}, {1, 2});
  EXPECT_EQ(message({good}), "the model takes 2 inputs, got 1");
  EXPECT_EQ(message({good, Floats(Shape{1, 3}, {1, 2, 3})}),
            "input 'b': expected float[n, 2], got float[1, 3]");
  EXPECT_EQ(message({Ints(Shape{1, 2}, {1, 2}), good}),
            "input 'a': expected float[n, 2], got int64[1, 2]");
  EXPECT_EQ(message({good, Floats(Shape{2, 2}, {1, 2, 3, 4})}),
            "dimension 'n' is 1 in input 'a' but 2 in input 'b'");
}

// Half of 1e-38 is denormal: kept, unless the session says otherwise, on every thread of the pool.
TEST(InferenceSession, DenormalsAreKeptUnlessAskedOtherwise) {
  constexpr int64_t kCount = 1 << 20;
  for (const bool as_zero : {false, true}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {kCount})
        .Constant("half", Floats(Shape{}, {0.5f}))
        .Node("Mul", {"x", "half"}, {"y"})
        .Output("y");
    SessionOptions options = DefaultSession();
    options.pool = std::make_shared<ThreadPool>(2);
    options.denormals_as_zero = as_zero;
    const auto session = InferenceSession::FromModel(std::move(model.model()), std::move(options));
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    Tensor x = *Tensor::Create(DataType::kFloat, Shape{kCount});
    std::fill_n(x.mutable_data<float>(), kCount, 1e-38f);
    const auto outputs = (*session)->Run(std::vector<Value>{x}, {});
    ASSERT_TRUE(outputs.ok());
    const auto y = (*outputs)[0].tensor().elements<float>();
    const auto zeros = std::count(y.begin(), y.end(), 0.0f);
    EXPECT_EQ(zeros, as_zero ? kCount : 0);
    volatile float tiny = 1e-38f;
    EXPECT_GT(tiny * 0.5f, 0.0f) << "the caller's own mode stays";
  }
}

TEST(InferenceSession, StopsAtTheDeadlineAndWhenCancelled) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2}).Node("Relu", {"x"}, {"y"}).Output("y");
  const auto session = model.Load();
  const std::vector<Value> inputs = {Floats(Shape{2}, {1, 2})};
  RunOptions late;
  late.deadline = std::chrono::steady_clock::now() - std::chrono::seconds(1);
  EXPECT_EQ((*session)->Run(inputs, late).status().code(), StatusCode::kDeadlineExceeded);
  const std::atomic<bool> cancelled{true};
  RunOptions gone;
  gone.cancelled = &cancelled;
  EXPECT_EQ((*session)->Run(inputs, gone).status().code(), StatusCode::kCancelled);
}

// Calls `work` and counts the turns that another thread of the same processor has meanwhile.
template <typename Work>
int TurnsOfAnotherThreadDuring(Work work) {
  int turns = 0;
  std::thread alone([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<size_t>(sched_getcpu()), &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);  // of both: the other one inherits it
    std::atomic<int> counter{0};
    std::atomic<bool> done{false};
    std::thread other([&] {
      while (!done.load()) {
        ++counter;
        std::this_thread::yield();
      }
    });
    while (counter.load() == 0) std::this_thread::yield();
    counter = 0;
    work();
    turns = counter.load();
    done = true;
    other.join();
  });
  alone.join();
  return turns;
}

TEST(InferenceSession, LetsOtherThreadsRunBetweenStepsWhenAsked) {
  constexpr int kSteps = 200;
  TestModel model;
  model.Input("0", DataType::kFloat, {8});
  for (int i = 0; i < kSteps; ++i) model.Node("Softmax", {StrCat(i)}, {StrCat(i + 1)});
  const auto session = model.Output(StrCat(kSteps)).Load();
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<Value> inputs = {Floats(Shape{8}, {1, 2, 3, 4, 5, 6, 7, 8})};
  RunOptions options;
  options.yield_every = std::chrono::nanoseconds(1);
  const int turns =
      TurnsOfAnotherThreadDuring([&] { EXPECT_TRUE((*session)->Run(inputs, options).ok()); });
  EXPECT_GT(turns, kSteps / 2);
}

TEST(InferenceSession, RefusesWhatNeedsMoreMemoryThanTheBudget) {
  TestModel model;
  model.Input("shape", DataType::kInt64, {1}).Node("ConstantOfShape", {"shape"}, {"a"});
  model.Node("Relu", {"a"}, {"y"}).Output("y");
  SessionOptions options = DefaultSession();
  options.max_run_bytes = 1 << 20;
  const auto session = InferenceSession::FromModel(model.model(), options);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<Value> small = {Ints(Shape{1}, {1000})};
  EXPECT_TRUE((*session)->Run(small, {}).ok());
  for (const int64_t size : {int64_t{1} << 20, int64_t{1} << 40, int64_t{1} << 62, int64_t{-1}}) {
    const std::vector<Value> inputs = {Ints(Shape{1}, {size})};
    EXPECT_FALSE((*session)->Run(inputs, {}).ok()) << size;
  }
}

// Of nodes whose shapes the data decide, only what later ones read is held: here two of twenty.
TEST(InferenceSession, HoldsNoMoreThanLaterNodesRead) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("n")});
  model.Input("taken", DataType::kBool, {Dimension::Symbol("n")});
  model.Node("Compress", {"x", "taken"}, {"v0"});
  for (int i = 0; i < 20; ++i) {
    model.Node(i % 2 == 0 ? "Neg" : "Abs", {StrCat("v", i)}, {StrCat("v", i + 1)});
  }
  model.Node("Add", {"v20", "v0"}, {"y"}).Output("y").Output("v7");
  SessionOptions options = DefaultSession(OptimizationLevel::kDisable);
  constexpr int64_t kCount = 1 << 16, kBytes = kCount * sizeof(float);
  options.max_run_bytes = 5 * kBytes;  // v0, v7, and the step's input and output
  const auto session = InferenceSession::FromModel(std::move(model.model()), options);
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  Tensor x = *Tensor::Create(DataType::kFloat, Shape{kCount});
  Tensor taken = *Tensor::Create(DataType::kBool, Shape{kCount});
  for (int64_t i = 0; i < kCount; ++i) {
    x.mutable_data<float>()[i] = static_cast<float>(i);
    taken.mutable_data<bool>()[i] = i % 8 != 0;
  }
  const std::vector<Value> inputs = {x, taken};
  for (int run = 0; run < 3; ++run) {
    const auto outputs = (*session)->Run(inputs, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    EXPECT_EQ(outputs->at(0).tensor().data<float>()[1], 4);
    EXPECT_EQ(outputs->at(1).tensor().data<float>()[2], -3);
  }
}

TEST(InferenceSession, RefusesABombAtLoadWithoutComputingIt) {
  TestModel model;
  model.Constant("shape", Ints(Shape{1}, {int64_t{10} << 40}))
      .Node("ConstantOfShape", {"shape"}, {"a"});
  model.Node("ReduceSum", {"a"}, {"y"}).Output("y");
  const auto session = model.Load();
  if (session.ok()) {
    EXPECT_EQ((*session)->Run({}, {}).status().code(), StatusCode::kResourceExhausted);
  }
}

TEST(InferenceSession, IndicesOutOfRangeAreErrors) {
  TestModel model;
  model.Input("x", DataType::kFloat, {3}).Input("i", DataType::kInt64, {1});
  model.Node("Gather", {"x", "i"}, {"y"}).Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok());
  const Tensor x = Floats(Shape{3}, {1, 2, 3});
  EXPECT_EQ(RunFloats(**session, {x, Ints(Shape{1}, {-1})}), std::vector<float>{3});
  for (const int64_t index : {int64_t{3}, int64_t{-4}, std::numeric_limits<int64_t>::min()}) {
    const std::vector<Value> inputs = {x, Ints(Shape{1}, {index})};
    const auto outputs = (*session)->Run(inputs, {});
    ASSERT_FALSE(outputs.ok());
    EXPECT_NE(outputs.status().message().find("index"), std::string_view::npos);
  }
}

TEST(InferenceSession, ThreadsThatShareItAgreeWithOne) {
  for (const char* name : {"digits_cnn", "digits_rows"}) {
    SessionOptions options = DefaultSession();
    options.pool = std::make_shared<ThreadPool>(2);
    const auto session =
        InferenceSession::Load((EmbeddedModels() / name / "1" / "model.onnx").string(), options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    const bool image = std::string(name) == "digits_cnn";
    const auto input = [&](int64_t batch) {
      const Shape shape = image ? Shape{batch, 1, 8, 8} : Shape{batch, 8, 8};
      Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
      for (int64_t i = 0; i < shape.ElementCount(); ++i) {
        tensor.mutable_data<float>()[i] = static_cast<float>(i % 17) / 16.0f;
      }
      return tensor;
    };
    std::vector<std::vector<float>> wanted;
    for (int64_t batch = 1; batch <= 4; ++batch)
      wanted.push_back(RunFloats(**session, {input(batch)}));
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (int i = 0; i < 30; ++i) {
          const int64_t batch = 1 + (t + i) % 4;
          if (RunFloats(**session, {input(batch)}) != wanted[static_cast<size_t>(batch - 1)])
            ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong.load(), 0) << name;
  }
}

}  // namespace
}  // namespace onnxd
