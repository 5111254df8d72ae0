// Products by warpgroups, emulated in OpenCL: the results of the CPU, whatever the sizes.
#include "runtime/providers/gpu/warpgroup_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/fused/fused_provider.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/tensor/convert.h"
#include "tests/support/cast_model.h"
#include "tests/support/device_testing.h"
#include "tests/support/matrix_device.h"

namespace onnxd {
namespace {

class WarpgroupProduct : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({.emulate_warpgroup_units = true});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  // As the device computes them, and as the CPU does without any rewriting.
  void ExpectSame(const TestModel& model, const std::vector<Value>& inputs, bool fused = false) {
    ExpectSameAsCpu(model, inputs,
                    fused ? MakeFusedProvider(device_) : MakeGpuProvider("opencl", device_),
                    GetParam() == DataType::kFloat16 ? 2e-3 : 1.6e-2, OptimizationLevel::kAll);
  }

  int Programs() const {
    int count = 0;
    for (const std::string& source : device_->sources()) {
      count += source.find("warpgroup_product(GLOBAL") != std::string::npos ? 1 : 0;
    }
    return count;
  }

  // Small whole numbers, [rows, columns].
  static Tensor Numbers(int64_t rows, int64_t columns, int64_t seed) {
    Tensor wide = *Tensor::Create(DataType::kFloat, {rows, columns});
    for (int64_t i = 0; i < rows * columns; ++i) {
      wide.mutable_data<float>()[i] = static_cast<float>((i * seed + i / columns) % 7 - 3);
    }
    return wide;
  }

  // What a tile's program makes of a, [m, k], and b, [k, n] or [n, k].
  std::vector<float> RunTile(const ProductText& text, const ProductSizes& sizes,
                             const WarpgroupTile& tile, const Tensor& a, const Tensor& b) {
    std::vector<float> results(static_cast<size_t>(sizes.m * sizes.n));
    const auto upload = [&](const Tensor& tensor) {
      const Tensor narrow = *Converted(tensor, text.a);
      return *device_->Upload({static_cast<const std::byte*>(narrow.raw()), narrow.bytes()});
    };
    const DeviceBuffer on_a = upload(a), on_b = upload(b);
    const auto kernel =
        device_->FindKernel(WarpgroupProductSource(text, tile, false), "warpgroup_product");
    EXPECT_TRUE(kernel.ok()) << kernel.status().ToString();
    if (!kernel.ok()) return results;
    const int64_t down = (sizes.m + tile.rows() - 1) / tile.rows();
    const int64_t across = (sizes.n + tile.columns - 1) / tile.columns;
    LaunchGrid grid;
    grid.groups[0] = static_cast<uint32_t>(down * across);
    grid.lanes[0] = static_cast<uint32_t>(tile.lanes());
    grid.room_bytes = static_cast<size_t>(tile.room_bytes());
    const size_t bytes = results.size() * sizeof(float);
    const DeviceBuffer y = *device_->Allocate(bytes);
    LaunchArguments arguments;
    arguments.Pointer(on_a.get()).Pointer(on_b.get()).Pointer(y.get());
    arguments.Value(sizes.m).Value(sizes.n).Value(sizes.k).Value(down).Value(across);
    const auto stream = *device_->MakeStream();
    EXPECT_TRUE(static_cast<GpuStream&>(*stream).Launch(**kernel, grid, arguments).ok());
    EXPECT_TRUE(stream->CopyOut(results.data(), y.get(), bytes).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return results;
  }

  std::shared_ptr<GpuDevice> device_;
};

TEST_P(WarpgroupProduct, EveryTileComputesTheSame) {
  device_ = *FindMatrixDevice({.emulate_warpgroup_units = true});
  std::vector<WarpgroupTile> tiles = WarpgroupTiles(device_->properties());
  ASSERT_EQ(tiles.size(), 4u) << "this device has room for " << device_->properties().room_bytes;
  tiles.push_back({1, 1, 64, 5, 1});
  for (const bool by_rows : {false, true}) {
    ProductText text;
    text.a = text.b = GetParam();
    text.y = DataType::kFloat;
    text.accumulator = "f32";
    text.a_rows = true;
    (by_rows ? text.b_rows : text.b_columns) = true;
    for (const ProductSizes& sizes : {ProductSizes{1, 150, 264, 72}, ProductSizes{1, 64, 64, 64},
                                      ProductSizes{1, 3, 8, 8}, ProductSizes{1, 129, 40, 456}}) {
      ASSERT_TRUE(IsForWarpgroups(text, sizes));
      const Tensor a = Numbers(sizes.m, sizes.k, 3);
      const Tensor b = by_rows ? Numbers(sizes.n, sizes.k, 5) : Numbers(sizes.k, sizes.n, 5);
      for (const WarpgroupTile& tile : tiles) {
        const std::vector<float> got = RunTile(text, sizes, tile, a, b);
        for (int64_t i = 0; i < sizes.m; ++i) {
          for (int64_t j = 0; j < sizes.n; ++j) {
            double sum = 0;
            for (int64_t p = 0; p < sizes.k; ++p) {
              sum += ElementAt(a, i * sizes.k + p) *
                     ElementAt(b, by_rows ? j * sizes.k + p : p * sizes.n + j);
            }
            // Every sum is exact.
            ASSERT_EQ(got[static_cast<size_t>(i * sizes.n + j)], sum)
                << "tile " << tile.rows() << " by " << tile.columns << ", by rows " << by_rows
                << ", row " << i << ", column " << j << " of " << sizes.m << " by " << sizes.n;
          }
        }
      }
    }
  }
}

TEST_P(WarpgroupProduct, OfStacksAndOfATransposedMatrix) {
  {
    CastModel m(GetParam());
    const std::string a = m.Input({3, 1, 20, 40}), b = m.Input({2, 40, 24});
    m.model().Node("MatMul", {a, b}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs());
  }
  Attributes attributes;
  attributes.Set("transB", int64_t{1});
  attributes.Set("alpha", 0.5f);
  CastModel m(GetParam());
  const std::string a = m.Input({36, 48}), b = m.Input({32, 48}), c = m.Input({32});
  m.model().Node("Gemm", {a, b, c}, {"y"}, attributes);
  ExpectSame(m.Answer("y"), m.inputs());
  EXPECT_GE(Programs(), 2);
}

// What follows a product is computed where its sums are.
TEST_P(WarpgroupProduct, WithARowAndGeluAndAMatrixBehindIt) {
  CastModel m(GetParam());
  const std::string a = m.Input({70, 64}), b = m.Input({64, 72}), row = m.Input({72});
  const std::string matrix = m.Input({70, 72});
  m.model().Node("MatMul", {a, b}, {"product"}).Node("Add", {"product", row}, {"sum"});
  m.model().Node("Gelu", {"sum"}, {"gelu"}, {}, "com.microsoft");
  m.model().Node("Add", {"gelu", matrix}, {"y"});
  const int before = Programs();
  ExpectSame(m.Answer("y"), m.inputs(), true);
  EXPECT_GT(Programs(), before);
}

TEST_P(WarpgroupProduct, LeavesWhatVectorsDoNotLoadToOthers) {
  const int before = Programs();
  for (const Shape& sizes : {Shape{20, 20, 64}, Shape{20, 24, 30}}) {
    CastModel m(GetParam());
    const std::string a = m.Input({sizes[0], sizes[2]}), b = m.Input({sizes[2], sizes[1]});
    m.model().Node("MatMul", {a, b}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs());
  }
  EXPECT_EQ(Programs(), before);
}

// What the emulation ran, tensor cores would: the same sources for NVIDIA's compiler.
TEST_P(WarpgroupProduct, CompilesForTensorCores) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  for (const bool by_rows : {false, true}) {
    ProductText text;
    text.a = text.b = text.y = GetParam();
    text.accumulator = "f32";
    (by_rows ? text.b_rows : text.b_columns) = true;
    GpuProperties properties;
    properties.room_bytes = 227 << 10;
    for (const WarpgroupTile& tile : WarpgroupTiles(properties)) {
      const auto cubin = cuda::CompileToCubin(
          **nvrtc, StrCat(Prelude(Dialect::kCuda), WarpgroupProductSource(text, tile, false)), 90);
      EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
    }
  }
}

TEST(WarpgroupTiles, AreThoseThatTheDeviceHasRoomFor) {
  GpuProperties properties;
  properties.room_bytes = 100 << 10;
  const std::vector<WarpgroupTile> tiles = WarpgroupTiles(properties);
  ASSERT_EQ(tiles.size(), 2u);
  for (const WarpgroupTile& tile : tiles) EXPECT_LE(tile.room_bytes(), properties.room_bytes);
  properties.room_bytes = 48 << 10;
  EXPECT_TRUE(WarpgroupTiles(properties).empty());
}

INSTANTIATE_TEST_SUITE_P(Types, WarpgroupProduct,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
