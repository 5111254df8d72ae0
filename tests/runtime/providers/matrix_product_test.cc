// Products on matrix units, emulated in OpenCL: the results of the CPU, whatever the sizes.
#include "runtime/providers/gpu/matrix_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/fused/fused_provider.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "tests/support/cast_model.h"
#include "tests/support/device_testing.h"
#include "tests/support/matrix_device.h"

namespace onnxd {
namespace {

using Providers = std::vector<std::shared_ptr<const ExecutionProvider>>;

// What a tile's kernel makes of whole numbers, from operands on the device.
template <typename T>
std::vector<T> RunTile(GpuDevice& device, const ProductText& text, const ProductSizes& sizes,
                       const MatrixTile& tile, const DeviceBuffer& a, const DeviceBuffer& b) {
  std::vector<T> results(static_cast<size_t>(sizes.m * sizes.n));
  const auto kernel =
      device.FindKernel(MatrixProductSource(text, sizes, tile, false), "matrix_product");
  EXPECT_TRUE(kernel.ok()) << kernel.status().ToString();
  if (!kernel.ok()) return results;
  const int64_t down = (sizes.m + tile.rows - 1) / tile.rows;
  const int64_t across = (sizes.n + tile.columns - 1) / tile.columns;
  LaunchGrid grid;
  grid.groups[0] = static_cast<uint32_t>(down * across);
  grid.lanes[0] = static_cast<uint32_t>(tile.lanes());
  const DeviceBuffer y = *device.Allocate(results.size() * sizeof(T));
  LaunchArguments arguments;
  arguments.Pointer(a.get()).Pointer(b.get()).Pointer(y.get());
  arguments.Value(sizes.m).Value(sizes.n).Value(sizes.k).Value(down).Value(across);
  const auto stream = *device.MakeStream();
  EXPECT_TRUE(static_cast<GpuStream&>(*stream).Launch(**kernel, grid, arguments).ok());
  EXPECT_TRUE(stream->CopyOut(results.data(), y.get(), results.size() * sizeof(T)).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
  return results;
}

class MatrixProduct : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({.searches_tactics = true, .emulate_matrix_units = true});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  // As the device computes them, and as the CPU does without any rewriting.
  void ExpectSame(const TestModel& model, const std::vector<Value>& inputs, bool fused = false) {
    ExpectSameAsCpu(model, inputs,
                    fused ? MakeFusedProvider(device_) : MakeGpuProvider("opencl", device_),
                    Tolerance(), OptimizationLevel::kAll);
  }

  // Sums are exact here, but results are rounded to their type, on the CPU after each operator.
  static double Tolerance() {
    if (GetParam() == DataType::kFloat) return 1e-5;
    return GetParam() == DataType::kFloat16 ? 1e-3 : 8e-3;
  }

  bool UsesUnits() const {
    for (const std::string& source : device_->sources()) {
      if (source.find("KERNEL matrix_product") != std::string::npos) return true;
    }
    return false;
  }

  std::shared_ptr<GpuDevice> device_;
};

TEST_P(MatrixProduct, OfMatricesOfAnySize) {
  for (const Shape& sizes : {Shape{16, 16, 16}, Shape{128, 128, 32}, Shape{130, 70, 40},
                             Shape{9, 200, 33}, Shape{65, 64, 1}, Shape{64, 129, 100}}) {
    CastModel m(GetParam());
    const std::string a = m.Input({sizes[0], sizes[2]}), b = m.Input({sizes[2], sizes[1]});
    m.model().Node("MatMul", {a, b}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs());
  }
  EXPECT_TRUE(UsesUnits());
}

TEST_P(MatrixProduct, OfStacksAndOfTransposedMatrices) {
  {
    CastModel m(GetParam());
    const std::string a = m.Input({3, 1, 20, 40}), b = m.Input({2, 40, 24});
    m.model().Node("MatMul", {a, b}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs());
  }
  for (const int transposes : {1, 2, 3}) {
    Attributes attributes;
    attributes.Set("transA", int64_t{transposes & 1});
    attributes.Set("transB", int64_t{transposes >> 1});
    attributes.Set("alpha", 0.5f);
    CastModel m(GetParam());
    const Shape of_a = (transposes & 1) != 0 ? Shape{48, 36} : Shape{36, 48};
    const Shape of_b = (transposes & 2) != 0 ? Shape{30, 48} : Shape{48, 30};
    const std::string a = m.Input(of_a), b = m.Input(of_b), c = m.Input({30});
    m.model().Node("Gemm", {a, b, c}, {"y"}, attributes);
    ExpectSame(m.Answer("y"), m.inputs());
  }
}

TEST_P(MatrixProduct, OfConvolutions) {
  for (const int64_t kernel : {1, 3}) {
    for (const int64_t group : {1, 2}) {
      Attributes attributes;
      attributes.Set("group", group);
      attributes.Set("pads", std::vector<int64_t>(4, kernel / 2));
      attributes.Set("strides", std::vector<int64_t>{kernel == 3 ? 2 : 1, 1});
      CastModel m(GetParam());
      const std::string x = m.Input({2, 8, 9, 10});
      const std::string w = m.Input({24, 8 / group, kernel, kernel}), b = m.Input({24});
      m.model().Node("Conv", {x, w, b}, {"y"}, attributes);
      ExpectSame(m.Answer("y"), m.inputs());
    }
  }
}

TEST_P(MatrixProduct, WithWhatFollowsInTheSameKernel) {
  CastModel m(GetParam());
  const std::string x = m.Input({2, 17, 40}), w = m.Input({40, 24}), b = m.Input({24});
  const std::string skip = m.Input({2, 17, 24});
  m.model().Node("MatMul", {x, w}, {"p"}).Node("Add", {"p", b}, {"q"});
  m.model().Node("Relu", {"q"}, {"r"}).Node("Add", {"r", skip}, {"y"});
  ExpectSame(m.Answer("y"), m.inputs(), true);
}

TEST_P(MatrixProduct, EveryTileComputesTheSame) {
  device_ = *FindMatrixDevice({.searches_tactics = true, .emulate_matrix_units = true});
  ProductText text;
  text.a = text.b = GetParam();
  text.y = DataType::kFloat;
  text.accumulator = "f32";
  text.load_a = "A_GET(a, (i64)i * k + p)";
  text.load_b = "B_GET(b, (i64)p * n + j)";
  text.a_rows = true;
  const ProductSizes sizes{1, 150, 140, 72};
  std::vector<float> a, b;
  for (int64_t i = 0; i < sizes.m * sizes.k; ++i) a.push_back(static_cast<float>(i % 13 - 6));
  for (int64_t i = 0; i < sizes.k * sizes.n; ++i) b.push_back(static_cast<float>(i % 7 - 3));
  const auto upload = [&](const std::vector<float>& values) {
    std::vector<std::byte> bytes;
    for (const float value : values) {
      uint32_t word = 0;
      std::memcpy(&word, &value, sizeof(word));
      size_t width = 4;
      if (GetParam() != DataType::kFloat) width = 2;
      if (GetParam() == DataType::kBfloat16) word >>= 16;
      if (GetParam() == DataType::kFloat16) word = Float16(value).bits;
      const auto* first = reinterpret_cast<const std::byte*>(&word);
      bytes.insert(bytes.end(), first, first + width);
    }
    return *device_->Upload(bytes);
  };
  const DeviceBuffer on_a = upload(a), on_b = upload(b);
  for (const MatrixTile& tile : MatrixTiles()) {
    const auto got = RunTile<float>(*device_, text, sizes, tile, on_a, on_b);
    for (int64_t i = 0; i < sizes.m; ++i) {
      for (int64_t j = 0; j < sizes.n; ++j) {
        float sum = 0;
        for (int64_t p = 0; p < sizes.k; ++p) {
          sum += a[static_cast<size_t>(i * sizes.k + p)] * b[static_cast<size_t>(p * sizes.n + j)];
        }
        // Small whole numbers: every sum is exact.
        ASSERT_EQ(got[static_cast<size_t>(i * sizes.n + j)], sum)
            << "tile " << tile.rows << " by " << tile.columns << ", row " << i << ", column " << j;
      }
    }
  }
}

// What the emulation ran, tensor cores would: the same sources for NVIDIA's compiler.
TEST_P(MatrixProduct, CompilesForTensorCores) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  CastModel m(GetParam());
  const std::string a = m.Input({130, 40}), b = m.Input({40, 70});
  m.model().Node("MatMul", {a, b}, {"y"});
  ExpectSame(m.Answer("y"), m.inputs());
  int compiled = 0;
  for (const std::string& source : device_->sources()) {
    if (source.find("KERNEL matrix_product") == std::string::npos) continue;
    const std::string text = StrCat(Prelude(Dialect::kCuda), source);
    for (const int capability : {80, 90}) {
      const auto cubin = cuda::CompileToCubin(**nvrtc, text, capability);
      EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    }
    ++compiled;
  }
  EXPECT_GT(compiled, 0);
}

// Bytes: types of both sides, and their zero points.
class ByteMatrixProduct : public testing::TestWithParam<std::tuple<bool, bool, int, int>> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({.searches_tactics = true, .emulate_matrix_units = true});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
    std::tie(a_signed_, b_signed_, a_zero_, b_zero_) = GetParam();
  }

  static DataType TypeOf(bool is_signed) { return is_signed ? DataType::kInt8 : DataType::kUint8; }

  // Sums are exact: so are the results.
  void ExpectEqual(const TestModel& model, const std::vector<Value>& inputs) {
    ExpectSameAsCpu(model, inputs, MakeGpuProvider("opencl", device_), 0);
  }

  // m, n, k.
  void ExpectEqualMatrices(const Shape& sizes) {
    const Shape a{sizes[0], sizes[2]}, b{sizes[2], sizes[1]};
    TestModel model(17);
    model.Input("a", TypeOf(a_signed_), ToSymbolic(a)).Input("b", TypeOf(b_signed_), ToSymbolic(b));
    model.Constant("az", Byte(a_signed_, a_zero_)).Constant("bz", Byte(b_signed_, b_zero_));
    model.Node("MatMulInteger", {"a", "b", "az", "bz"}, {"y"}).Output("y");
    ExpectEqual(model, {Bytes(a, a_signed_, 3), Bytes(b, b_signed_, 4)});
  }

  std::shared_ptr<GpuDevice> device_;
  bool a_signed_ = false, b_signed_ = false;
  int a_zero_ = 0, b_zero_ = 0;
};

TEST_P(ByteMatrixProduct, OfMatricesOfAnySize) {
  for (const Shape& sizes : {Shape{16, 16, 64}, Shape{9, 200, 33}, Shape{64, 129, 100}}) {
    ExpectEqualMatrices(sizes);
  }
}

// Zero points one by one, which are not constant.
TEST_P(ByteMatrixProduct, WithAZeroPointForEachRowAndColumn) {
  const Shape a{20, 48}, b{48, 30};
  TestModel model(17);
  model.Input("a", TypeOf(a_signed_), ToSymbolic(a)).Input("b", TypeOf(b_signed_), ToSymbolic(b));
  model.Input("az", TypeOf(a_signed_), {20}).Input("bz", TypeOf(b_signed_), {30});
  model.Node("MatMulInteger", {"a", "b", "az", "bz"}, {"y"}).Output("y");
  ExpectEqual(model, {Bytes(a, a_signed_, 3), Bytes(b, b_signed_, 4),
                      Bytes(Shape{20}, a_signed_, 5), Bytes(Shape{30}, b_signed_, 6)});
}

TEST_P(ByteMatrixProduct, OfConvolutions) {
  for (const int64_t group : {2}) {
    TestModel model(17);
    model.Input("x", TypeOf(a_signed_), {2, 8, 9, 10});
    model.Constant("w", Bytes(Shape{24, 8 / group, 3, 3}, b_signed_, 7));
    model.Constant("xz", Byte(a_signed_, a_zero_)).Constant("wz", Byte(b_signed_, b_zero_));
    Attributes attributes = One("group", group);
    attributes.Set("pads", std::vector<int64_t>{1, 1, 1, 1});
    model.Node("ConvInteger", {"x", "w", "xz", "wz"}, {"y"}, attributes).Output("y");
    ExpectEqual(model, {Bytes(Shape{2, 8, 9, 10}, a_signed_, 8)});
  }
}

TEST_P(ByteMatrixProduct, EveryTileComputesTheSame) {
  device_ = *FindMatrixDevice({.searches_tactics = true, .emulate_matrix_units = true});
  ProductText text;
  text.a = TypeOf(a_signed_);
  text.b = TypeOf(b_signed_);
  text.y = DataType::kInt32;
  text.accumulator = "i32";
  text.load_a = "A_GET(a, (i64)i * k + p)";
  text.load_b = "B_GET(b, (i64)p * n + j)";
  text.a_rows = true;
  if (a_zero_ != 0) text.a_zero = std::to_string(a_zero_);
  if (b_zero_ != 0) text.b_zero = std::to_string(b_zero_);
  for (const ProductSizes& sizes : {ProductSizes{1, 150, 140, 72}, ProductSizes{1, 70, 65, 130}}) {
    const Tensor a = Bytes(Shape{sizes.m, sizes.k}, a_signed_, 3);
    const Tensor b = Bytes(Shape{sizes.k, sizes.n}, b_signed_, 4);
    const auto upload = [&](const Tensor& tensor) {
      return *device_->Upload({static_cast<const std::byte*>(tensor.raw()), tensor.bytes()});
    };
    const DeviceBuffer on_a = upload(a), on_b = upload(b);
    for (const MatrixTile& tile : MatrixTiles()) {
      const auto got = RunTile<int32_t>(*device_, text, sizes, tile, on_a, on_b);
      for (int64_t i = 0; i < sizes.m; ++i) {
        for (int64_t j = 0; j < sizes.n; ++j) {
          int32_t sum = 0;
          for (int64_t p = 0; p < sizes.k; ++p) {
            sum += (static_cast<int32_t>(ElementAt(a, i * sizes.k + p)) - a_zero_) *
                   (static_cast<int32_t>(ElementAt(b, p * sizes.n + j)) - b_zero_);
          }
          ASSERT_EQ(got[static_cast<size_t>(i * sizes.n + j)], sum)
              << "tile " << tile.rows << " by " << tile.columns << ", row " << i << ", column "
              << j;
        }
      }
    }
  }
}

TEST_P(ByteMatrixProduct, CompilesForTensorCores) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  ExpectEqualMatrices({16, 16, 64});
  int compiled = 0;
  for (const std::string& source : device_->sources()) {
    if (source.find("KERNEL matrix_product") == std::string::npos ||
        source.find(a_signed_ ? "matrix_i8_" : "matrix_u8_") == std::string::npos) {
      continue;
    }
    const std::string text = StrCat(Prelude(Dialect::kCuda), source);
    for (const int capability : {80, 90}) {
      const auto cubin = cuda::CompileToCubin(**nvrtc, text, capability);
      EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    }
    if (++compiled == 4) break;
  }
  EXPECT_GT(compiled, 0);
}

INSTANTIATE_TEST_SUITE_P(Types, ByteMatrixProduct,
                         testing::Values(std::tuple(false, true, 0, 0),
                                         std::tuple(false, true, 131, 0),
                                         std::tuple(true, true, -5, 7),
                                         std::tuple(true, false, 0, 120),
                                         std::tuple(false, false, 3, 255)));

INSTANTIATE_TEST_SUITE_P(Types, MatrixProduct,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16, DataType::kFloat),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
