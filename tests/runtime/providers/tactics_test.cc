// Which of several ways of computing a node is taken, and what is kept of it.
#include "runtime/providers/gpu/tactics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "runtime/base/log.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/fused/fused_provider.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/tensor/convert.h"
#include "runtime/tensor/float16.h"
#include "tests/support/cast_model.h"
#include "tests/support/device_testing.h"

namespace onnxd {
namespace {

constexpr const char* kLinger = R"(
KERNEL linger(GLOBAL f32* y, i64 rounds) {
  f32 x = 0.0f;
  for (i64 round = 0; round < rounds; ++round) x = x * 0.5f + 1.0f;
  y[0] = x;
}
)";

class Tactics : public testing::Test {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({.searches_tactics = true});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  // A way that takes its time on the device, and counts how often it was asked to.
  Tactic Way(const std::string& name, int64_t rounds) {
    return {name, [this, name, rounds]() -> Result<PreparedKernel> {
              PreparedKernel prepared;
              prepared.scratch_bytes = 16;
              prepared.compute = [this, name, rounds](const KernelContext& k) -> Status {
                EXPECT_NE(k.input<void>(0), nullptr);
                EXPECT_EQ(k.input<void>(1), nullptr);
                EXPECT_NE(k.output<void>(0), nullptr);
                EXPECT_NE(k.scratch<void>(), nullptr);
                ++runs_[name];
                if (is_named_) return Status::Ok();
                ONNXD_ASSIGN_OR_RETURN(const auto kernel, device_->FindKernel(kLinger, "linger"));
                LaunchArguments arguments;
                arguments.Pointer(k.output<void>(0)).Value(rounds);
                return static_cast<GpuStream&>(k.stream()).Launch(*kernel, {}, arguments);
              };
              return prepared;
            }};
  }
  static Tactic Failing(const std::string& name) {
    return {name, []() -> Result<PreparedKernel> { return Internal("it does not compile"); }};
  }

  // The name of the way that is taken.
  std::string Taken(const TacticQuestion& question, const std::vector<Tactic>& tactics) {
    const Node node;
    const Shape shape{2, 3};
    const OperandInfo given{true, ValueType::Kind::kTensor, DataType::kFloat, &shape, nullptr};
    const std::vector<OperandInfo> inputs = {given, {}}, outputs = {given};
    const PrepareContext context{node, inputs, outputs};
    const auto prepared = PrepareFastest(*device_, context, question, tactics);
    if (!prepared.ok()) return prepared.status().ToString();
    runs_.clear();
    is_named_ = true;
    float memory[6];
    void* const operands[] = {memory, nullptr};
    const KernelContext call(operands, operands, memory, nullptr, nullptr);
    EXPECT_TRUE(prepared->compute(call).ok());
    is_named_ = false;
    return runs_.empty() ? "" : runs_.begin()->first;
  }

  std::shared_ptr<GpuDevice> device_;
  std::map<std::string, int> runs_;
  bool is_named_ = false;  // a way only says which it is
};

constexpr int64_t kQuick = 1, kSlow = 2'000'000;

TEST_F(Tactics, TheFastestIsTakenAndNotTimedAgain) {
  EXPECT_EQ(Taken({"first"}, {Way("slow", kSlow), Way("quick", kQuick)}), "quick");
  // Had they been timed again, the other one would be the fastest.
  EXPECT_EQ(Taken({"first"}, {Way("slow", kQuick), Way("quick", kSlow)}), "quick");
  EXPECT_EQ(Taken({"second"}, {Way("slow", kQuick), Way("quick", kSlow)}), "slow");
}

TEST_F(Tactics, SizesOfOneClassShareAnAnswer) {
  const std::vector<Tactic> then = {Way("first", kQuick), Way("second", kSlow)};
  const std::vector<Tactic> later = {Way("first", kSlow), Way("second", kQuick)};
  EXPECT_EQ(Taken({"rows", {37, 64}}, then), "first");
  EXPECT_EQ(Taken({"rows", {33, 64}}, later), "first");
  EXPECT_EQ(Taken({"columns", {37, 64}}, later), "second") << "another text";
  EXPECT_EQ(Taken({"rows", {41, 64}}, later), "second") << "another class";
  EXPECT_EQ(Taken({"rows", {40, 64}}, later), "second") << "of which eight lie together";
  EXPECT_EQ(Taken({"rows", {37, 64}}, later), "first");
}

TEST_F(Tactics, AnAnswerForOtherSizesIsOneOfTheseWays) {
  EXPECT_EQ(Taken({"sizes", {37}}, {Way("old", kQuick), Way("older", kSlow)}), "old");
  EXPECT_EQ(Taken({"sizes", {38}}, {Way("other", kSlow), Way("older", kQuick)}), "older");
}

TEST_F(Tactics, WhatFailsIsPassedOver) {
  EXPECT_EQ(Taken({"failing"}, {Failing("broken"), Way("slow", kSlow)}), "slow");
  EXPECT_EQ(Taken({"failing"}, {Failing("broken"), Way("slow", kSlow)}), "slow");
}

TEST_F(Tactics, AreTimedAgainWhereThereAreOthers) {
  EXPECT_EQ(Taken({"version"}, {Way("old", kQuick), Way("older", kSlow)}), "old");
  EXPECT_EQ(Taken({"version"}, {Way("old", kSlow), Way("older", kSlow), Way("new", kQuick)}),
            "new");
  EXPECT_EQ(Taken({"version"}, {Way("older", kQuick), Way("new", kSlow)}), "older");
}

TEST_F(Tactics, TellWhatEachTookWhereTheLogIsForThat) {
  testing::internal::CaptureStderr();
  Taken({"untold"}, {Way("slow", kSlow), Way("quick", kQuick)});
  ConfigureLog(LogLevel::kDebug, LogFormat::kText);
  Taken({"source", {2, 3}}, {Way("old", kQuick), Way("new", kQuick)});
  ConfigureLog(LogLevel::kInfo, LogFormat::kText);
  const std::string told = testing::internal::GetCapturedStderr();
  // In any order: one that the machine's noise makes look hopeless comes first.
  EXPECT_THAT(told, testing::ContainsRegex("debug tactics of 2 3:.* old [0-9.e+-]+ us;"));
  EXPECT_THAT(told, testing::ContainsRegex("debug tactics of 2 3:.* new [0-9.e+-]+ us;"));
  EXPECT_THAT(told, testing::Not(testing::HasSubstr("quick")));
}

// An operand at strides reaches beyond as many elements as it has.
TEST_F(Tactics, AreTimedOnMemoryForAllThatStridesReach) {
  device_ = *FindOpenClDevice({.memory_limit = int64_t{1} << 37, .searches_tactics = true});
  const Node node;
  const Shape shape{2, 3};
  const std::vector<int64_t> strides = {1 << 20, 1};
  const std::vector<OperandInfo> inputs = {
      {true, ValueType::Kind::kTensor, DataType::kFloat, &shape, nullptr, &strides}};
  const std::vector<OperandInfo> outputs = {
      {true, ValueType::Kind::kTensor, DataType::kFloat, &shape, nullptr}};
  int64_t used = 0;
  Tactic tactic{"strided", [&]() -> Result<PreparedKernel> {
                  PreparedKernel prepared;
                  prepared.compute = [&](const KernelContext&) {
                    used = device_->statistics().used_bytes;
                    return Status::Ok();
                  };
                  return prepared;
                }};
  const int64_t before = device_->statistics().used_bytes;
  ASSERT_TRUE(
      PrepareFastest(*device_, {node, inputs, outputs}, {"strided"}, {tactic, tactic}).ok());
  EXPECT_GE(used - before, ((1 << 20) + 3) * 4);
}

TEST_F(Tactics, TheFirstIsTakenWhereNoneCanBeTimed) {
  EXPECT_EQ(Taken({"none"}, {Failing("broken"), Failing("broken as well")}),
            "INTERNAL: it does not compile");
}

TEST_F(Tactics, WithoutASearchTheFirstIsTaken) {
  device_ = *FindOpenClDevice({.searches_tactics = false});
  EXPECT_EQ(Taken({"guess"}, {Way("best guess", kSlow), Way("quick", kQuick)}), "best guess");
}

Tensor Numbers(const Shape& shape) {
  Tensor tensor = *Tensor::Create(DataType::kFloat, shape);
  for (int64_t i = 0; i < shape.ElementCount(); ++i) {
    tensor.mutable_data<float>()[i] = static_cast<float>(i % 9 - 4);
  }
  return tensor;
}

// Sizes for which there are several kernels of PoCL: a search changes no result.
TEST_F(Tactics, ProductsAreTheSame) {
  TestModel model;
  model.Input("x", DataType::kFloat, {20, 30}).Input("w", DataType::kFloat, {30, 40});
  model.Node("MatMul", {"x", "w"}, {"y"}).Output("y");
  const std::vector<Value> inputs = {Numbers(Shape{20, 30}), Numbers(Shape{30, 40})};
  std::vector<std::vector<float>> results;
  for (const bool searches : {false, true}) {
    SessionOptions options = DefaultSession();
    ProviderOptions provider_options;
    provider_options.searches_tactics = searches;
    options.providers = *MakeProviders({"opencl", "cpu"}, provider_options);
    const auto session = InferenceSession::FromModel(TestModel(model).model(), options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    EXPECT_EQ((*session)->info().nodes_by_provider.at("opencl"), 1);
    const auto outputs = (*session)->Run(inputs, {});
    ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
    const auto elements = (*outputs)[0].tensor().elements<float>();
    results.emplace_back(elements.begin(), elements.end());
  }
  EXPECT_EQ(results[0], results[1]);
}

// Computes on the host what it is asked for.
class HostLibrary : public DeviceLibrary {
 public:
  std::vector<LibraryKernel> FindProduct(const LibraryProduct& product) override {
    EXPECT_EQ(product.operands, DataType::kFloat);
    const auto p = product;
    LibraryKernel kernel;
    kernel.name = "host";
    kernel.result = product.result;
    kernel.workspace_bytes = 4;
    kernel.enqueue = [this, p](GpuStream& stream, const LibraryOperands& o) -> Status {
      ++calls;
      additions += (p.adds_row ? 1 : 0) + (p.adds_matrix ? 1 : 0);
      EXPECT_NE(o.workspace, nullptr);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(o.workspace) % kWorkspaceAlignment, 0u);
      std::vector<float> a(static_cast<size_t>(p.m * p.k)), b(static_cast<size_t>(p.k * p.n));
      std::vector<float> y;
      std::vector<float> row(p.adds_row ? static_cast<size_t>(p.n) : 0);
      std::vector<float> matrix(p.adds_matrix ? static_cast<size_t>(p.m * p.n) : 0);
      ONNXD_RETURN_IF_ERROR(stream.CopyOut(a.data(), o.a, a.size() * 4));
      ONNXD_RETURN_IF_ERROR(stream.CopyOut(b.data(), o.b, b.size() * 4));
      if (p.adds_row) ONNXD_RETURN_IF_ERROR(stream.CopyOut(row.data(), o.row, row.size() * 4));
      if (p.adds_matrix) {
        ONNXD_RETURN_IF_ERROR(stream.CopyOut(matrix.data(), o.matrix, matrix.size() * 4));
      }
      ONNXD_RETURN_IF_ERROR(stream.Synchronize());
      for (int64_t i = 0; i < p.m; ++i) {
        for (int64_t j = 0; j < p.n; ++j) {
          float sum = p.adds_row ? row[static_cast<size_t>(j)] : 0;
          if (p.adds_matrix) sum += matrix[static_cast<size_t>(i * p.n + j)];
          for (int64_t q = 0; q < p.k; ++q) {
            sum += a[static_cast<size_t>(i * p.k + q)] * b[static_cast<size_t>(q * p.n + j)];
          }
          y.push_back(sum);
        }
      }
      ONNXD_RETURN_IF_ERROR(stream.CopyIn(o.y, y.data(), y.size() * 4));
      return stream.Synchronize();
    };
    return {kernel};
  }

  // Of images of one group, without pads, each filter a pixel: sums of x * w[f, :, 0, 0] at
  // strides. It adds nothing.
  std::vector<LibraryKernel> FindConvolution(const LibraryConvolution& c) override {
    if (c.adds_row || c.adds_matrix || c.relu) return {};
    if (c.kernel != std::array<int64_t, 3>{1, 1, 1}) return {};
    LibraryKernel kernel;
    kernel.name = "host, convolution";
    kernel.result = c.type;
    kernel.enqueue = [this, c](GpuStream& stream, const LibraryOperands& o) -> Status {
      ++calls;
      const size_t width = c.type == DataType::kFloat ? 4 : 2;
      const auto get = [&](const std::vector<std::byte>& from, int64_t i) {
        return c.type == DataType::kFloat
                   ? reinterpret_cast<const float*>(from.data())[i]
                   : HalfBitsToFloat(reinterpret_cast<const uint16_t*>(from.data())[i]);
      };
      const auto bytes = [&](int64_t elements) {
        return std::vector<std::byte>(static_cast<size_t>(elements) * width);
      };
      const int64_t plane = c.input[1] * c.input[2];
      auto w = bytes(c.filters * c.channels), x = bytes(c.images * c.channels * plane);
      auto y = bytes(c.images * c.filters * c.output[1] * c.output[2]);
      ONNXD_RETURN_IF_ERROR(stream.CopyOut(w.data(), o.a, w.size()));
      ONNXD_RETURN_IF_ERROR(stream.CopyOut(x.data(), o.b, x.size()));
      ONNXD_RETURN_IF_ERROR(stream.Synchronize());
      const int64_t pixels = c.output[1] * c.output[2];
      for (int64_t n = 0; n < c.images; ++n) {
        for (int64_t f = 0; f < c.filters; ++f) {
          for (int64_t i = 0; i < pixels; ++i) {
            const int64_t at = c.channels_last ? (n * pixels + i) * c.filters + f
                                               : (n * c.filters + f) * pixels + i;
            const int64_t row = i / c.output[2] * c.strides[1];
            const int64_t column = i % c.output[2] * c.strides[2];
            const int64_t pixel = row * c.input[2] + column;
            float value = 0;
            for (int64_t q = 0; q < c.channels; ++q) {
              const int64_t from = c.channels_last ? (n * plane + pixel) * c.channels + q
                                                   : (n * c.channels + q) * plane + pixel;
              value += get(x, from) * get(w, f * c.channels + q);
            }
            if (c.type == DataType::kFloat) {
              reinterpret_cast<float*>(y.data())[at] = value;
            } else {
              reinterpret_cast<uint16_t*>(y.data())[at] = FloatToHalfBits(value);
            }
          }
        }
      }
      ONNXD_RETURN_IF_ERROR(stream.CopyIn(o.y, y.data(), y.size()));
      return stream.Synchronize();
    };
    return {kernel};
  }
  int calls = 0, additions = 0;  // products and convolutions, rows and matrices added to them
};

// Of floats, and of 16 bits, in which a convolution's sums arrive there.
TEST_F(Tactics, ConvolutionsOfALibraryAreFinishedByAKernel) {
  for (const DataType type : {DataType::kFloat, DataType::kFloat16}) {
    device_ = *FindOpenClDevice({.memory_limit = (int64_t{1} << 32) + static_cast<int64_t>(type)});
    const auto library = std::make_shared<HostLibrary>();
    device_->AddLibrary(library);
    TestModel model;
    const auto constant = [&](const std::string& name, const Shape& shape) {
      model.Constant(name, *Converted(Numbers(shape), type));
    };
    model.Input("x", type, {2, 3, 9, 12});
    constant("w", Shape{12, 3, 1, 1});
    constant("b", Shape{12});
    Attributes strides;
    strides.Set("strides", std::vector<int64_t>{2, 1});
    model.Node("Conv", {"x", "w", "b"}, {"c"}, strides).Node("Relu", {"c"}, {"y"}).Output("y");
    const std::vector<Value> inputs = {*Converted(Numbers(Shape{2, 3, 9, 12}), type)};
    std::vector<Tensor> results;
    for (const char* provider : {"cpu", "opencl", "fused"}) {
      SessionOptions options = DefaultSession();
      if (std::string_view(provider) == "opencl") {
        options.providers.insert(options.providers.begin(), MakeGpuProvider("opencl", device_));
      } else if (std::string_view(provider) == "fused") {
        options.providers.insert(options.providers.begin(), MakeFusedProvider(device_));
      }
      const auto session = InferenceSession::FromModel(TestModel(model).model(), options);
      ASSERT_TRUE(session.ok()) << session.status().ToString();
      const auto outputs = (*session)->Run(inputs, {});
      ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
      results.push_back(*Converted((*outputs)[0].tensor(), DataType::kFloat));
    }
    for (size_t i = 1; i < results.size(); ++i) {
      const auto wanted = results[0].elements<float>(), got = results[i].elements<float>();
      ASSERT_TRUE(std::equal(wanted.begin(), wanted.end(), got.begin(), got.end())) << i;
    }
    EXPECT_EQ(library->calls, 2);
  }
}

// Rows of each number of lanes that is a first guess, and among which the fastest is searched for.
TEST_F(Tactics, RowsHaveAsManyLanesAsAreFastest) {
  for (const bool searches : {false, true}) {
    device_ = *FindOpenClDevice({.memory_limit = int64_t{1} << 34, .searches_tactics = searches});
    for (const int64_t width : {40, 200, 400, 700, 5000}) {
      TestModel model;
      model.Input("x", DataType::kFloat, {3, width}).Constant("s", Numbers(Shape{width}));
      model.Node("LayerNormalization", {"x", "s"}, {"n"}).Node("Relu", {"n"}, {"y"}).Output("y");
      ExpectSameAsCpu(model, {Numbers(Shape{3, width})}, MakeFusedProvider(device_), 1e-5,
                      OptimizationLevel::kAll);
    }
    std::set<std::string> lanes;
    for (const std::string& source : device_->sources()) {
      const std::string_view define = "#define ROW_LANES ";
      if (source.find("KERNEL fused_rows") == std::string::npos) continue;
      lanes.insert(source.substr(source.find(define) + define.size(), 3));
    }
    EXPECT_EQ(lanes.size(), 5u);
  }
}

// The library's sums, and a kernel for what follows: bias, activation, another input.
TEST_F(Tactics, WhatALibraryComputesIsFinishedByAKernel) {
  device_ = *FindOpenClDevice({.memory_limit = int64_t{1} << 33});  // of its own
  const auto library = std::make_shared<HostLibrary>();
  device_->AddLibrary(library);
  TestModel model;
  model.Input("x", DataType::kFloat, {20, 30}).Input("skip", DataType::kFloat, {20, 40});
  model.Constant("w", Numbers(Shape{30, 40})).Constant("b", Numbers(Shape{40}));
  model.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"q"});
  model.Node("Relu", {"q"}, {"r"}).Node("Add", {"r", "skip"}, {"y"}).Output("y");
  const std::vector<Value> inputs = {Numbers(Shape{20, 30}), Numbers(Shape{20, 40})};
  std::vector<std::vector<float>> results;
  for (const bool fused : {false, true}) {
    SessionOptions options = DefaultSession();
    if (fused) options.providers.insert(options.providers.begin(), MakeFusedProvider(device_));
    const auto session = InferenceSession::FromModel(TestModel(model).model(), options);
    ASSERT_TRUE(session.ok()) << session.status().ToString();
    for (int run = 0; run < 2; ++run) {
      const auto outputs = (*session)->Run(inputs, {});
      ASSERT_TRUE(outputs.ok()) << outputs.status().ToString();
      const auto elements = (*outputs)[0].tensor().elements<float>();
      results.emplace_back(elements.begin(), elements.end());
    }
  }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[0], results[3]);
  EXPECT_GT(library->calls, 0);
}

// A row and a residual are added by the library itself, in one call; nothing else is.
TEST_F(Tactics, ALibraryAddsRowsAndResidualsItself) {
  device_ = *FindOpenClDevice({.memory_limit = int64_t{1} << 35});  // of its own
  const auto library = std::make_shared<HostLibrary>();
  device_->AddLibrary(library);
  const auto additions = [&](const TestModel& model, const std::vector<Value>& inputs,
                             const char* provider) {
    library->calls = library->additions = 0;
    const bool fused = std::string_view(provider) == "fused";
    ExpectSameAsCpu(model, inputs,
                    fused ? MakeFusedProvider(device_) : MakeGpuProvider(provider, device_), 1e-6,
                    fused ? OptimizationLevel::kAll : OptimizationLevel::kDisable);
    EXPECT_EQ(library->calls, 1);
    return library->additions;
  };
  const std::vector<Value> inputs = {Numbers(Shape{20, 30}), Numbers(Shape{20, 40})};
  const auto product = [] {
    TestModel model;
    model.Input("x", DataType::kFloat, {20, 30}).Input("skip", DataType::kFloat, {20, 40});
    model.Constant("w", Numbers(Shape{30, 40})).Constant("b", Numbers(Shape{1, 40}));
    return model;
  };
  TestModel both = product();
  both.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"b", "p"}, {"q"});
  both.Node("Add", {"q", "skip"}, {"y"}).Output("y");
  EXPECT_EQ(additions(both, inputs, "fused"), 2);
  TestModel gemm = product();
  gemm.Node("Gemm", {"x", "w", "b"}, {"p"}).Node("Add", {"skip", "p"}, {"y"}).Output("y");
  EXPECT_EQ(additions(gemm, inputs, "fused"), 2);
  TestModel alone = product();
  alone.Node("Gemm", {"x", "w", "skip"}, {"y"}).Output("y");
  EXPECT_EQ(additions(alone, inputs, "opencl"), 1);
  TestModel activated = product();
  activated.Node("Gemm", {"x", "w", "b"}, {"p"}).Node("Relu", {"p"}, {"r"});
  activated.Node("Add", {"r", "skip"}, {"y"}).Output("y");
  EXPECT_EQ(additions(activated, inputs, "fused"), 0);
  // The row that comes first, and a kernel does the rest.
  TestModel partly = product();
  partly.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"q"});
  partly.Node("Sigmoid", {"q"}, {"r"}).Node("Add", {"r", "skip"}, {"y"}).Output("y");
  EXPECT_EQ(additions(partly, inputs, "fused"), 1);
  TestModel read_again = product();
  read_again.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "b"}, {"q"});
  read_again.Node("Sigmoid", {"q"}, {"r"}).Node("Mul", {"r", "p"}, {"y"}).Output("y");
  EXPECT_EQ(additions(read_again, inputs, "fused"), 0);
  TestModel twice = product();
  twice.Node("MatMul", {"x", "w"}, {"p"}).Node("Add", {"p", "skip"}, {"q"});
  twice.Node("Add", {"q", "skip"}, {"y"}).Output("y");
  EXPECT_EQ(additions(twice, inputs, "fused"), 0);
  // The product with a vector is a column: what looks like a row is as many sums.
  TestModel vector;
  vector.Input("x", DataType::kFloat, {20, 30}).Constant("v", Numbers(Shape{30}));
  vector.Constant("c", Numbers(Shape{20}));
  vector.Node("MatMul", {"x", "v"}, {"p"}).Node("Add", {"p", "c"}, {"y"}).Output("y");
  EXPECT_EQ(additions(vector, {Numbers(Shape{20, 30})}, "fused"), 1);
  TestModel number;
  number.Input("x", DataType::kFloat, {30}).Constant("v", Numbers(Shape{30}));
  number.Constant("c", Tensor::Scalar(0.5f)).Node("MatMul", {"x", "v"}, {"p"});
  number.Node("Add", {"p", "c"}, {"y"}).Output("y");
  EXPECT_EQ(additions(number, {Numbers(Shape{30})}, "fused"), 1);
}

// Computes nothing, and remembers of which type sums were wanted.
class AskedLibrary : public DeviceLibrary {
 public:
  std::vector<LibraryKernel> FindProduct(const LibraryProduct& product) override {
    results.insert(product.result);
    return {};
  }
  std::set<DataType> results;
};

// Sums that other nodes read are rounded as the model has it; those within a node stay floats.
TEST_F(Tactics, SumsOfALibraryAreRoundedWhereTheModelRoundsThem) {
  device_ = *FindOpenClDevice({.memory_limit = int64_t{1} << 36});  // of its own
  const auto library = std::make_shared<AskedLibrary>();
  device_->AddLibrary(library);
  CastModel activated(DataType::kFloat16);
  activated.model().Node("MatMul", {activated.Input({20, 32}), activated.Input({32, 24})}, {"p"});
  activated.model().Node("Relu", {"p"}, {"r"}).Node("Transpose", {"r"}, {"t"});
  ExpectSameAsCpu(activated.Answer("t"), activated.inputs(), MakeFusedProvider(device_), 1e-2,
                  OptimizationLevel::kAll);
  EXPECT_EQ(library->results, std::set{DataType::kFloat16});
  library->results.clear();
  CastModel recurrent(DataType::kFloat16);
  Attributes hidden;
  hidden.Set("hidden_size", int64_t{8});
  recurrent.model().Node(
      "LSTM",
      {recurrent.Input({5, 2, 16}), recurrent.Input({1, 32, 16}), recurrent.Input({1, 32, 8})},
      {"y"}, hidden);
  ExpectSameAsCpu(recurrent.Answer("y"), recurrent.inputs(), MakeGpuProvider("opencl", device_),
                  1e-2);
  EXPECT_EQ(library->results, std::set{DataType::kFloat});
}

}  // namespace
}  // namespace onnxd
