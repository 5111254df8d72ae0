// What a run allocates, counted in this program's own operator new and in the C library's heap.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <string_view>

#include "runtime/base/str_cat.h"
#include "runtime/format/model_writer.h"
#include "tests/support/test_model.h"

namespace {

thread_local bool counting = false;
thread_local int64_t own_allocations = 0;
thread_local int64_t library_allocations = 0;

// oneDNN builds a table of arguments inside each call; that is its own affair.
bool CalledByOneDnn(const void* caller) {
  Dl_info info{};
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr &&
         std::string_view(info.dli_fname).find("libdnnl") != std::string_view::npos;
}

void* CountedAllocation(size_t bytes, const void* caller) {
  if (counting) {
    counting = false;  // dladdr may allocate
    ++(CalledByOneDnn(caller) ? library_allocations : own_allocations);
    counting = true;
  }
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Out of line: the caller's address is asked for, and a compiler that sees free() inside of one but
// not malloc() inside of the other warns of a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  return CountedAllocation(bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void* operator new[](size_t bytes) {
  return CountedAllocation(bytes, __builtin_return_address(0));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, size_t) noexcept { std::free(memory); }

namespace onnxd {
namespace {

template <typename Body>
int64_t OwnAllocations(const Body& body) {
  own_allocations = library_allocations = 0;
  counting = true;
  body();
  counting = false;
  return own_allocations;
}

Tensor Ramp(const Shape& shape) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = static_cast<float>(i % 13) / 13.0f - 0.4f;
  }
  return tensor;
}

// What handing out one float tensor of this shape as the only result takes.
int64_t AllocationsOfOneOutput(const Shape& shape) {
  return OwnAllocations([&] {
    std::vector<Value> outputs(1);
    outputs[0] = *Tensor::Create(DataType::kFloat, shape);
  });
}

// Runs until plan and context exist, then counts one run.
int64_t AllocationsOfRun(const InferenceSession& session, const std::vector<Value>& inputs) {
  for (int i = 0; i < 2; ++i) {
    const auto outputs = session.Run(inputs, {});
    EXPECT_TRUE(outputs.ok()) << outputs.status().ToString();
  }
  return OwnAllocations([&] { EXPECT_TRUE(session.Run(inputs, {}).ok()); });
}

TEST(Allocations, TheCounterCounts) {
  EXPECT_EQ(OwnAllocations([] { delete new int(1); }), 1);
  EXPECT_GT(AllocationsOfOneOutput(Shape{2, 3}), 0);
}

TEST(Allocations, ARunAllocatesItsOutputsAndNothingElse) {
  struct Case {
    const char* model;
    Shape input, output;
  };
  for (const Case& c : {Case{"digits_cnn", Shape{1, 1, 8, 8}, Shape{1, 10}},
                        Case{"digits_rows", Shape{3, 8, 8}, Shape{3, 10}}}) {
    for (const int threads : {1, 2}) {
      SessionOptions options = DefaultSession();
      options.pool = std::make_shared<ThreadPool>(threads);
      const auto session = InferenceSession::Load(
          (EmbeddedModels() / c.model / "1" / "model.onnx").string(), options);
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      EXPECT_EQ(AllocationsOfRun(**session, {Ramp(c.input)}), AllocationsOfOneOutput(c.output))
          << c.model << ", " << threads << " threads";
    }
  }
}

TEST(Allocations, RecurrentLayersAllocateNothingOfTheirOwn) {
  for (const auto& [op, gates] : {std::pair("LSTM", 4), std::pair("GRU", 3), std::pair("RNN", 1)}) {
    TestModel model;
    model.Input("x", DataType::kFloat, {5, 2, 6});
    model.Constant("w", Ramp(Shape{2, gates * 8, 6})).Constant("r", Ramp(Shape{2, gates * 8, 8}));
    Attributes attributes;
    attributes.Set("direction", std::string("bidirectional"));
    attributes.Set("hidden_size", int64_t{8});
    model.Node(op, {"x", "w", "r"}, {"y"}, attributes).Output("y");
    const auto session = model.Load();
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    EXPECT_EQ(AllocationsOfRun(**session, {Ramp(Shape{5, 2, 6})}),
              AllocationsOfOneOutput(Shape{5, 2, 2, 8}))
        << op;
  }
}

// Bytes in use on the C library's heap.
size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

bool MapsFile(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (line.find(path) != std::string::npos) return true;
  }
  return false;
}

// A matrix that the kernel packs, and a convolution's filter: both leave their original behind.
TEST(Allocations, WeightsAreHeldOnce) {
  const std::string path = StrCat(testing::TempDir(), "/weights_are_held_once.onnx");
  size_t weight_bytes = 0;
  {
    const Tensor matrix = Ramp(Shape{2048, 2048}), filter = Ramp(Shape{512, 512, 3, 3});
    weight_bytes = matrix.bytes() + filter.bytes();
    TestModel model;
    model.Input("x", DataType::kFloat, {1, 2048}).Constant("b", matrix);
    model.Node("MatMul", {"x", "b"}, {"y"}).Output("y");
    model.Input("image", DataType::kFloat, {1, 512, 8, 8}).Constant("w", filter);
    model.Node("Conv", {"image", "w"}, {"z"}).Output("z");
    const auto bytes = WriteModel(model.model());
    ASSERT_TRUE(bytes.ok()) << bytes.status().ToString();
    std::ofstream(path, std::ios::binary) << *bytes;
  }
  const size_t before = HeapBytes();
  const auto session = InferenceSession::Load(path, DefaultSession());
  ASSERT_TRUE(session.ok()) << session.status().ToString();
  const std::vector<Value> inputs = {Ramp(Shape{1, 2048}), Ramp(Shape{1, 512, 8, 8})};
  ASSERT_TRUE((*session)->Run(inputs, {}).ok());
  const size_t held = HeapBytes() - before;
  EXPECT_GT(held, weight_bytes * 9 / 10);
  EXPECT_LT(held, weight_bytes * 12 / 10);
  EXPECT_FALSE(MapsFile(path));
  std::filesystem::remove(path);
}

// Plans and contexts are bounded: what another five hundred shapes leave behind is nothing.
TEST(Memory, ThousandShapesLeaveItFlat) {
  TestModel model;
  model.Input("x", DataType::kFloat, {Dimension::Symbol("rows"), 64})
      .Constant("w", Ramp(Shape{64, 64}))
      .Node("MatMul", {"x", "w"}, {"h"})
      .Node("Relu", {"h"}, {"r"})
      .Node("Softmax", {"r"}, {"y"})
      .Output("y");
  const auto session = model.Load();
  ASSERT_TRUE(session.ok());
  size_t half = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t rows = 1 + i * 617 % 1000;  // each once, none in order
    ASSERT_TRUE((*session)->Run(std::vector<Value>{Ramp(Shape{rows, 64})}, {}).ok());
    if (i == 499) half = HeapBytes();
  }
  // 64 plans of 500 rows on average, give or take which ones are kept.
  EXPECT_LT(HeapBytes(), half + (size_t{8} << 20));
}

}  // namespace
}  // namespace onnxd
