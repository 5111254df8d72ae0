// Products by warpgroups, emulated in OpenCL: the results of the CPU, whatever the sizes.
#include "runtime/providers/gpu/warpgroup_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

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

  void OfStackedRows() {
    CastModel m(GetParam());
    const std::string a = m.Input({3, 2, 30, 72}), b = m.Input({72, 64});
    m.model().Node("MatMul", {a, b}, {"z"}).Node("Transpose", {"z"}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs());
  }

  void OfATransposedMatrix() {
    Attributes attributes;
    attributes.Set("transB", int64_t{1});
    attributes.Set("alpha", 0.5f);
    CastModel m(GetParam());
    const std::string a = m.Input({70, 64}), b = m.Input({80, 64}), c = m.Input({80});
    m.model().Node("Gemm", {a, b, c}, {"y"}, attributes);
    ExpectSame(m.Answer("y"), m.inputs());
  }

  void WithARowAndGeluAndAMatrix() {
    CastModel m(GetParam());
    const std::string a = m.Input({70, 64}), b = m.Input({64, 72}), row = m.Input({72});
    const std::string matrix = m.Input({70, 72});
    m.model().Node("MatMul", {a, b}, {"product"}).Node("Add", {"product", row}, {"sum"});
    m.model().Node("Gelu", {"sum"}, {"gelu"}, {}, "com.microsoft");
    m.model().Node("Add", {"gelu", matrix}, {"z"}).Node("Transpose", {"z"}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs(), true);
  }

  // With Relu behind them, where `clips`.
  void WithARowAndAMatrix(bool clips) {
    CastModel m(GetParam());
    const std::string a = m.Input({150, 64}), b = m.Input({64, 200}), row = m.Input({200});
    const std::string matrix = m.Input({150, 200});
    m.model().Node("MatMul", {a, b}, {"product"}).Node("Add", {"product", row}, {"sum"});
    m.model().Node("Add", {"sum", matrix}, {"whole"});
    if (clips) m.model().Node("Relu", {"whole"}, {"clipped"});
    m.model().Node("Transpose", {clips ? "clipped" : "whole"}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs(), true);
  }

  void WithARowAndRelu() {
    CastModel m(GetParam());
    const std::string a = m.Input({70, 64}), b = m.Input({64, 72}), row = m.Input({72});
    m.model().Node("MatMul", {a, b}, {"product"}).Node("Add", {"product", row}, {"sum"});
    m.model().Node("Relu", {"sum"}, {"z"}).Node("Transpose", {"z"}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs(), true);
  }

  // Programs that add it to whole rows.
  int ProgramsWithAMatrix() const {
    int count = 0;
    for (const std::string& source : device_->sources()) {
      count += source.find("#define ADDS_MATRIX 1") != std::string::npos ? 1 : 0;
    }
    return count;
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

  // What the program makes of a, [m, k], and b, [k, n] or [n, k].
  Tensor Product(const ProductText& text, int64_t columns, const ProductSizes& sizes,
                 const Tensor& a, const Tensor& b) {
    ProductPlan plan;
    plan.text = text;
    Tensor results = *Tensor::Create(text.y, {sizes.m, sizes.n});
    const auto upload = [&](const Tensor& tensor) {
      const Tensor narrow = *Converted(tensor, text.a);
      return *device_->Upload({static_cast<const std::byte*>(narrow.raw()), narrow.bytes()});
    };
    const DeviceBuffer on_a = upload(a), on_b = upload(b);
    const auto kernel =
        device_->FindKernel(WarpgroupProductSource(plan, false, columns), "warpgroup_product");
    EXPECT_TRUE(kernel.ok()) << kernel.status().ToString();
    const auto maps = MapsOf(*device_, text.b_rows, sizes, columns, on_a.get(), on_b.get());
    EXPECT_TRUE(maps.ok()) << maps.status().ToString();
    if (!kernel.ok() || !maps.ok()) return results;
    const DeviceBuffer y = *device_->Allocate(results.bytes());
    LaunchArguments arguments;
    arguments.Pointer(on_a.get()).Pointer(on_b.get()).Pointer(y.get());
    arguments.Value(sizes.m).Value(sizes.n).Value(sizes.k);
    arguments.Value((sizes.m - 1) / kWarpgroupRows + 1);
    arguments.Value((sizes.n - 1) / columns + 1);
    arguments.Value(maps->a).Value(maps->b);
    const LaunchGrid grid =
        WarpgroupGrid(device_->properties(), device_->dialect(), sizes, columns);
    const auto stream = *device_->MakeStream();
    EXPECT_TRUE(static_cast<GpuStream&>(*stream).Launch(**kernel, grid, arguments).ok());
    EXPECT_TRUE(stream->CopyOut(results.mutable_raw(), y.get(), results.bytes()).ok());
    EXPECT_TRUE(stream->Synchronize().ok());
    return results;
  }

  // As floats, whose sums are exact.
  static Tensor Expected(const ProductSizes& sizes, const Tensor& a, const Tensor& b,
                         bool by_rows) {
    Tensor sums = *Tensor::Create(DataType::kFloat, {sizes.m, sizes.n});
    const float* left = a.data<float>();
    const float* right = b.data<float>();
    for (int64_t i = 0; i < sizes.m; ++i) {
      float* const row = sums.mutable_data<float>() + i * sizes.n;
      std::fill_n(row, sizes.n, 0.0f);
      for (int64_t p = 0; p < sizes.k; ++p) {
        for (int64_t j = 0; j < sizes.n; ++j) {
          row[j] += left[i * sizes.k + p] * right[by_rows ? j * sizes.k + p : p * sizes.n + j];
        }
      }
    }
    return *Converted(*Converted(sums, GetParam()), DataType::kFloat);
  }

  static void ExpectEqual(const Tensor& got, const Tensor& wanted) {
    const int64_t columns = wanted.shape()[1];
    int wrong = 0;
    for (int64_t i = 0; i < wanted.shape().ElementCount(); ++i) {
      const float of_got = got.data<float>()[i], of_wanted = wanted.data<float>()[i];
      if (of_got == of_wanted || ++wrong > 3) continue;
      ADD_FAILURE() << "row " << i / columns << ", column " << i % columns << ": " << of_got
                    << " instead of " << of_wanted;
    }
    EXPECT_EQ(wrong, 0);
  }

  std::shared_ptr<GpuDevice> device_;
};

// The last has several tiles for each group of a device.
TEST_P(WarpgroupProduct, EveryTileIsComputed) {
  device_ = *FindMatrixDevice({.emulate_warpgroup_units = true});
  ASSERT_TRUE(HasRoomForWarpgroups(device_->properties()));
  const bool is_emulated = device_->dialect() == Dialect::kOpenCl;
  for (const ProductSizes& sizes :
       {ProductSizes{1, 150, 264, 72}, ProductSizes{1, 64, 64, 64}, ProductSizes{1, 300, 72, 456},
        is_emulated ? ProductSizes{1, 260, 136, 400} : ProductSizes{1, 2500, 4104, 456}}) {
    for (const bool by_rows : {false, true}) {
      ProductText text;
      text.a = text.b = text.y = GetParam();
      text.accumulator = "f32";
      text.a_rows = true;
      (by_rows ? text.b_rows : text.b_columns) = true;
      ASSERT_TRUE(IsForWarpgroups(text, sizes));
      const Tensor a = Numbers(sizes.m, sizes.k, 3);
      const Tensor b = by_rows ? Numbers(sizes.n, sizes.k, 5) : Numbers(sizes.k, sizes.n, 5);
      const Tensor wanted = Expected(sizes, a, b, by_rows);
      for (const int64_t columns : kWarpgroupColumns) {
        SCOPED_TRACE(StrCat(sizes.m, " by ", sizes.n, ", by rows ", by_rows, ", ", columns,
                            " columns at a time"));
        ExpectEqual(*Converted(Product(text, columns, sizes, a, b), DataType::kFloat), wanted);
      }
    }
  }
}

TEST_P(WarpgroupProduct, OfStackedRowsAndOfATransposedMatrix) {
  OfStackedRows();
  OfATransposedMatrix();
  EXPECT_GE(Programs(), 2);
}

// What follows a product is computed where its sums are.
TEST_P(WarpgroupProduct, WithARowAndGeluAndAMatrixBehindIt) {
  WithARowAndGeluAndAMatrix();
  EXPECT_GE(Programs(), 1);
}

TEST_P(WarpgroupProduct, WithARowAndAMatrixAndReluBehindThem) {
  const int before = ProgramsWithAMatrix();
  WithARowAndRelu();
  EXPECT_EQ(ProgramsWithAMatrix(), before);
  WithARowAndAMatrix(false);
  WithARowAndAMatrix(true);
  EXPECT_EQ(ProgramsWithAMatrix(), before + 2);
}

TEST_P(WarpgroupProduct, LeavesSmallOnesAndWhatVectorsDoNotLoadToOthers) {
  const int before = Programs();
  for (const Shape& sizes : {Shape{80, 68, 64}, Shape{80, 72, 68}, Shape{40, 72, 64}}) {
    CastModel m(GetParam());
    const std::string a = m.Input({sizes[0], sizes[2]}), b = m.Input({sizes[2], sizes[1]});
    m.model().Node("MatMul", {a, b}, {"y"});
    ExpectSame(m.Answer("y"), m.inputs());
  }
  EXPECT_EQ(Programs(), before);
}

// What the emulation runs, tensor cores would: the same sources for NVIDIA's compiler.
TEST_P(WarpgroupProduct, CompilesForTensorCoresWithAllThatFollows) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  OfStackedRows();
  OfATransposedMatrix();
  WithARowAndGeluAndAMatrix();
  WithARowAndAMatrix(true);
  WithARowAndRelu();
  int programs = 0;
  for (const std::string& source : device_->sources()) {
    if (source.find("warpgroup_product(GLOBAL") == std::string::npos) continue;
    ++programs;
    const auto cubin = cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), source), 90);
    EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
  }
  EXPECT_GE(programs, 5);
}

TEST(WarpgroupGrid, HasAPairOfGroupsForEachTwoMultiprocessors) {
  GpuProperties properties;
  properties.multiprocessors = 132;
  properties.room_bytes = 227 << 10;
  EXPECT_TRUE(HasRoomForWarpgroups(properties));
  const auto groups = [&](const ProductSizes& sizes, int64_t columns) {
    return WarpgroupGrid(properties, Dialect::kCuda, sizes, columns).groups[0];
  };
  EXPECT_EQ(groups({1, 8192, 768, 768}, 128), 132u);
  EXPECT_EQ(groups({1, 300, 768, 768}, 128), 24u);
  EXPECT_EQ(groups({1, 300, 768, 768}, 192), 16u);
  properties.room_bytes = 163 << 10;
  EXPECT_FALSE(HasRoomForWarpgroups(properties));
}

INSTANTIATE_TEST_SUITE_P(Types, WarpgroupProduct,
                         testing::Values(DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
