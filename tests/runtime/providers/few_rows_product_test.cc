// Products of few rows on a device, where lanes share a column: the results of the CPU.
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/nvrtc.h"
#include "runtime/device/opencl/opencl_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "tests/support/cast_model.h"
#include "tests/support/device_testing.h"

namespace onnxd {
namespace {

class FewRowsProduct : public testing::Test {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
  }

  void ExpectSame(const TestModel& model, const std::vector<Value>& inputs, double tolerance) {
    ExpectSameAsCpu(model, inputs, MakeGpuProvider("opencl", device_), tolerance);
  }

  std::vector<std::string> Programs() const {
    std::vector<std::string> programs;
    for (const std::string& source : device_->sources()) {
      if (source.find("#define SLICES") != std::string::npos) programs.push_back(source);
    }
    return programs;
  }

  std::shared_ptr<GpuDevice> device_;
};

TEST_F(FewRowsProduct, OfMatricesAndStacksOfThem) {
  for (const DataType type : {DataType::kFloat, DataType::kFloat16, DataType::kDouble}) {
    for (const int64_t rows : {1, 3, 8}) {
      for (const Shape& batch : {Shape{}, Shape{3}}) {
        Shape left = batch, right = batch;
        left.Append(rows), left.Append(100), right.Append(100), right.Append(70);
        CastModel m(type);
        const std::string a = m.Input(left), b = m.Input(right);
        m.model().Node("MatMul", {a, b}, {"y"});
        ExpectSame(m.Answer("y"), m.inputs(), type == DataType::kFloat16 ? 1e-3 : 1e-5);
      }
    }
  }
  EXPECT_GE(Programs().size(), 9u);
}

TEST_F(FewRowsProduct, OfTransposedMatricesWithABias) {
  Attributes attributes;
  attributes.Set("transB", int64_t{1});
  attributes.Set("alpha", 0.5f);
  for (const int64_t columns : {33, 64}) {
    CastModel m(DataType::kFloat);
    const std::string a = m.Input({2, 130}), b = m.Input({columns, 130}), c = m.Input({columns});
    m.model().Node("Gemm", {a, b, c}, {"y"}, attributes);
    ExpectSame(m.Answer("y"), m.inputs(), 1e-5);
  }
  EXPECT_GE(Programs().size(), 1u);
}

TEST_F(FewRowsProduct, OfBytesLessTheirZeroPoints) {
  TestModel model(21);
  Tensor a = *Tensor::Create(DataType::kUint8, {4, 90}),
         b = *Tensor::Create(DataType::kInt8, {90, 50});
  for (int64_t i = 0; i < 4 * 90; ++i) a.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  for (int64_t i = 0; i < 90 * 50; ++i) b.mutable_data<int8_t>()[i] = static_cast<int8_t>(i * 11);
  model.Input("a", DataType::kUint8, {4, 90}).Input("b", DataType::kInt8, {90, 50});
  model.Constant("az", Tensor::Of<uint8_t>(Shape{}, {13}));
  model.Constant("bz", Tensor::Of<int8_t>(Shape{}, {-5}));
  model.Node("MatMulInteger", {"a", "b", "az", "bz"}, {"y"}).Output("y");
  ExpectSame(model, {a, b}, 0);
  EXPECT_GE(Programs().size(), 1u);
}

TEST_F(FewRowsProduct, OfCodesInBlocks) {
  Attributes attributes;
  attributes.Set("K", int64_t{128});
  attributes.Set("N", int64_t{40});
  attributes.Set("bits", int64_t{4});
  attributes.Set("block_size", int64_t{32});
  TestModel model(21);
  Tensor codes = *Tensor::Create(DataType::kUint8, {40, 4, 16});
  for (int64_t i = 0; i < codes.ElementCount(); ++i) {
    codes.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
  }
  model.Input("x", DataType::kFloat, {2, 128}).Constant("b", codes);
  model.Constant("s", Waves({40, 4}, 1));
  model.Node("MatMulNBits", {"x", "b", "s"}, {"y"}, attributes, "com.microsoft").Output("y");
  ExpectSame(model, {Waves({2, 128}, 0)}, 1e-5);
  EXPECT_GE(Programs().size(), 1u);
}

TEST_F(FewRowsProduct, CompilesForCuda) {
  const auto nvrtc = cuda::OpenNvrtc();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
  CastModel m(DataType::kFloat16);
  const std::string a = m.Input({5, 100}), b = m.Input({100, 70});
  m.model().Node("MatMul", {a, b}, {"y"});
  ExpectSame(m.Answer("y"), m.inputs(), 1e-3);
  const auto programs = Programs();
  ASSERT_FALSE(programs.empty());
  for (const int capability : {80, 90}) {
    const auto cubin =
        cuda::CompileToCubin(**nvrtc, StrCat(Prelude(Dialect::kCuda), programs[0]), capability);
    EXPECT_TRUE(cubin.ok()) << cubin.status().ToString();
  }
}

}  // namespace
}  // namespace onnxd
