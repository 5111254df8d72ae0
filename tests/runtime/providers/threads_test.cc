// Several threads compute what one does, and are the pool's.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>
#include <string>
#include <thread>

#include "tests/support/operator_testing.h"
#include "tests/support/pass_testing.h"

namespace onnxd {
namespace {


std::vector<Value> RunWith(int threads, TestModel model, const std::vector<Value>& inputs) {
  SessionOptions options = DefaultSession();
  options.pool = std::make_shared<ThreadPool>(threads);
  const auto session = InferenceSession::FromModel(std::move(model.model()), options);
  EXPECT_TRUE(session.ok()) << session.status().ToString();
  auto outputs = (*session)->Run(inputs, {});
  EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  return *std::move(outputs);
}

// Large enough that several threads share it; every element has a value of its own.
TEST(Transpose, CopiesTheSameWithAnyNumberOfThreads) {
  const struct {
    Shape shape;
    std::vector<int64_t> order;
  } cases[] = {{Shape{1, 3, 224, 224}, {0, 2, 3, 1}},
               {Shape{2, 50, 40, 33}, {0, 2, 1, 3}},
               {Shape{5, 7, 11, 403}, {3, 1, 2, 0}},
               {Shape{100003, 2}, {1, 0}}};
  for (const auto& c : cases) {
    Tensor x = *Tensor::Create(DataType::kFloat, c.shape);
    for (int64_t i = 0; i < x.ElementCount(); ++i) {
      x.mutable_data<float>()[i] = static_cast<float>(i);
    }
    std::vector<F> results;
    for (const int threads : {1, 3}) {
      TestModel model;
      model.Input("x", DataType::kFloat, {c.shape.dims().begin(), c.shape.dims().end()});
      model.Node("Transpose", {"x"}, {"y"}, With({{"perm", c.order}})).Output("y");
      results.push_back(Elements(RunWith(threads, model, {x})));
    }
    EXPECT_EQ(results[0], results[1]) << c.shape.ToString();
  }
}

// Pieces of one row and of many, of which threads take any bytes.
TEST(Concat, AndSplitCopyTheSameWithAnyNumberOfThreads) {
  for (const Shape& shape : {Shape{1, 200003}, Shape{1111, 307}}) {
    Tensor x = *Tensor::Create(DataType::kFloat, shape);
    std::iota(x.mutable_data<float>(), x.mutable_data<float>() + x.ElementCount(), 0.0f);
    TestModel model;
    model.Input("x", DataType::kFloat, {shape[0], shape[1]});
    model.Constant("sizes", Tensor::Of<int64_t>(Shape{3}, {7, 150, shape[1] - 157}));
    model.Node("Split", {"x", "sizes"}, {"a", "b", "c"}, With({{"axis", int64_t{1}}}));
    model.Node("Concat", {"c", "a", "b"}, {"y"}, With({{"axis", int64_t{1}}})).Output("y");
    for (const int threads : {1, 3}) {
      const auto outputs = RunWith(threads, model, {x});
      const float* y = outputs[0].tensor().data<float>();
      bool same = true;
      for (int64_t i = 0; i < x.ElementCount(); ++i) {
        const int64_t column = i % shape[1];
        same = same && y[i - column + (column + shape[1] - 157) % shape[1]] == x.data<float>()[i];
      }
      EXPECT_TRUE(same) << shape.ToString() << ", threads: " << threads;
    }
  }
}

// Wide layers share each product, narrow ones of two directions are a thread's each.
TEST(Recurrent, ComputesTheSameWithAnyNumberOfThreads) {
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    const int64_t gates = op == std::string("LSTM") ? 4 : op == std::string("GRU") ? 3 : 1;
    for (const int64_t hidden : {24, 400}) {
      for (const int64_t layout : {0, 1}) {
        const int64_t width = gates * hidden;
        TestModel model;
        model.Input("x", DataType::kFloat, {9, 3, 200});
        model.Constant("w", Ramp(Shape{2, width, 200}, 0.001f));
        model.Constant("r", Ramp(Shape{2, width, hidden}, 0.001f));
        model.Constant("b", Ramp(Shape{2, 2 * width}, 0.01f));
        model.Node(op, {"x", "w", "r", "b"}, {"y", "h"},
                   With({{"hidden_size", hidden},
                         {"direction", std::string("bidirectional")},
                         {"layout", layout}}));
        model.Output("y").Output("h");
        const std::vector<Value> inputs = {Ramp(Shape{9, 3, 200}, 0.1f)};
        const auto one = RunWith(1, model, inputs), three = RunWith(3, model, inputs);
        for (const size_t output : {0, 1}) {
          const F expected = Elements(one, output), got = Elements(three, output);
          ASSERT_EQ(got.size(), expected.size());
          for (size_t i = 0; i < got.size(); ++i) {
            ASSERT_NEAR(got[i], expected[i], 1e-5f) << op << " " << hidden << " " << layout;
          }
        }
      }
    }
  }
}

int64_t ThreadsOfThisProcess() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return std::distance(begin(tasks), end(tasks));
}

// What a library computes with is our pool's affair; a thread that meets it first here shows
// whether the library starts more.
TEST(Kernels, StartNoThreadsBesideThePool) {
  int64_t before = 0, after = 0;
  std::thread([&] {
    TestModel model;
    Tensor weights = *Tensor::Create(DataType::kFloat, Shape{64, 64, 3, 3});
    std::fill_n(weights.mutable_data<float>(), weights.ElementCount(), 0.5f);
    Tensor image = *Tensor::Create(DataType::kFloat, Shape{1, 64, 40, 40});
    std::fill_n(image.mutable_data<float>(), image.ElementCount(), 0.5f);
    model.Input("x", DataType::kFloat, {1, 64, 40, 40}).Constant("w", weights);
    model.Node("Conv", {"x", "w"}, {"y"}).Output("y");
    before = ThreadsOfThisProcess();
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    ASSERT_TRUE((*session)->Run(std::vector<Value>{image}, {}).ok());
    after = ThreadsOfThisProcess();
  }).join();
  EXPECT_EQ(before, after);
}

}  // namespace
}  // namespace onnxd
