// Products by cuBLASLt, on a library of its interface that computes on the host: what our side asks
// of it, and that rows and columns are what ONNX means.
#include "runtime/device/cuda/cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/str_cat.h"
#include "runtime/device/cuda/cuda_device.h"
#include "runtime/providers/gpu/gpu_provider.h"
#include "runtime/tensor/float16.h"
#include "tests/support/declarations.h"
#include "tests/support/device_testing.h"
#if __has_include(<cublasLt.h>)
#include <cublasLt.h>
#endif

namespace onnxd {
namespace {

using testing::HasSubstr;
using testing::SizeIs;

#if __has_include(<cublasLt.h>)
#define ONNXD_SAME(name, parameters)                                                 \
  static_assert(kSameFunction<decltype(cuda::CublasLtApi::name), decltype(&::name)>, \
                #name " is declared otherwise");
ONNXD_CUBLASLT_FUNCTIONS(ONNXD_SAME)
#undef ONNXD_SAME
static_assert(sizeof(cuda::MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(cuda::MatmulHeuristicResult) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(cuda::MatmulHeuristicResult, workspace_bytes) ==
              offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(cuda::MatmulHeuristicResult, state) ==
              offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(cuda::kComputeFloat == CUBLAS_COMPUTE_32F);
static_assert(cuda::kComputeFloatByTf32 == CUBLAS_COMPUTE_32F_FAST_TF32);
static_assert(cuda::kCudaFloat == CUDA_R_32F);
static_assert(cuda::kCudaFloat16 == CUDA_R_16F);
static_assert(cuda::kCudaBfloat16 == CUDA_R_16BF);
static_assert(cuda::kTransposeA == CUBLASLT_MATMUL_DESC_TRANSA);
static_assert(cuda::kTransposeB == CUBLASLT_MATMUL_DESC_TRANSB);
static_assert(cuda::kEpilogue == CUBLASLT_MATMUL_DESC_EPILOGUE);
static_assert(cuda::kBiasPointer == CUBLASLT_MATMUL_DESC_BIAS_POINTER);
static_assert(cuda::kBiasEpilogue == CUBLASLT_EPILOGUE_BIAS);
static_assert(cuda::kReluEpilogue == CUBLASLT_EPILOGUE_RELU);
static_assert((cuda::kReluEpilogue | cuda::kBiasEpilogue) == CUBLASLT_EPILOGUE_RELU_BIAS);
static_assert(cuda::kBatchCount == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
static_assert(cuda::kStridedBatchOffset == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
static_assert(cuda::kMaxWorkspaceBytes == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
static_assert(cuda::kMinAlignmentA == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
static_assert(cuda::kMinAlignmentD == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
#endif

class CublasLtTest : public testing::TestWithParam<DataType> {
 protected:
  void SetUp() override {
    auto driver = cuda::LoadDriver(ONNXD_FAKE_CUDA);
    auto library = cuda::LoadCublasLt(ONNXD_FAKE_CUBLASLT);
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    ASSERT_TRUE(library.ok()) << library.status().ToString();
    driver_ = *driver;
    library_ = *library;
    const auto nvrtc = cuda::OpenNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
    device_ = MakeDevice({});
  }

  std::shared_ptr<GpuDevice> MakeDevice(const CudaOptions& options) {
    return *MakeCudaDevice(driver_, **cuda::OpenNvrtc(), {.cublaslt = &library_}, options);
  }

  // Small whole numbers, of which every type has all and whose sums are exact.
  static std::vector<float> Numbers(int64_t count, int step) {
    std::vector<float> numbers;
    for (int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i * step % 11 - 5));
    return numbers;
  }
  // The fake driver's device memory is the host's.
  DeviceBuffer Upload(const std::vector<float>& numbers) {
    const size_t width = GetParam() == DataType::kFloat ? 4 : 2;
    DeviceBuffer buffer = *device_->Allocate(numbers.size() * width);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (GetParam() == DataType::kFloat) {
        static_cast<float*>(buffer.get())[i] = numbers[i];
      } else {
        static_cast<uint16_t*>(buffer.get())[i] = GetParam() == DataType::kFloat16
                                                      ? FloatToHalfBits(numbers[i])
                                                      : FloatToBfloat16Bits(numbers[i]);
      }
    }
    return buffer;
  }

  cuda::DriverApi driver_;
  cuda::CublasLtApi library_;
  std::shared_ptr<GpuDevice> device_;
};

TEST_P(CublasLtTest, ComputesStacksOfMatricesInEveryOrder) {
  for (int variant = 0; variant < 16; ++variant) {
    LibraryProduct p;
    p.operands = GetParam();
    p.result = DataType::kFloat;
    p.batch = 3;
    p.m = 4;
    p.n = 6;
    p.k = 5;
    p.transpose_a = (variant & 1) != 0;
    p.transpose_b = (variant & 2) != 0;
    p.a_stride = (variant & 4) != 0 ? p.m * p.k : 0;
    p.b_stride = (variant & 8) != 0 ? p.k * p.n : 0;
    const std::vector<float> a = Numbers(p.batch * p.m * p.k, 7),
                             b = Numbers(p.batch * p.k * p.n, 3);
    const DeviceBuffer on_a = Upload(a), on_b = Upload(b);
    const DeviceBuffer y = *device_->Allocate(static_cast<size_t>(p.batch * p.m * p.n) * 4);
    const auto kernels = device_->libraries().at(0)->FindProduct(p);
    ASSERT_THAT(kernels, SizeIs(2));
    EXPECT_THAT(kernels[1].name, HasSubstr("cuBLASLt 130000 #1"));
    for (const LibraryKernel& kernel : kernels) {
      const auto stream = *device_->MakeStream();
      const DeviceBuffer workspace = *device_->Allocate(kernel.workspace_bytes + 1);
      ASSERT_TRUE(kernel
                      .enqueue(static_cast<GpuStream&>(*stream),
                               {on_a.get(), on_b.get(), y.get(), workspace.get()})
                      .ok());
      const auto* got = static_cast<const float*>(y.get());
      for (int64_t batch = 0; batch < p.batch; ++batch) {
        for (int64_t i = 0; i < p.m; ++i) {
          for (int64_t j = 0; j < p.n; ++j) {
            float sum = 0;
            for (int64_t q = 0; q < p.k; ++q) {
              const int64_t in_a = p.transpose_a ? q * p.m + i : i * p.k + q;
              const int64_t in_b = p.transpose_b ? j * p.k + q : q * p.n + j;
              sum += a[static_cast<size_t>(batch * p.a_stride + in_a)] *
                     b[static_cast<size_t>(batch * p.b_stride + in_b)];
            }
            ASSERT_EQ(*got++, sum)
                << "variant " << variant << ", " << batch << " " << i << " " << j;
          }
        }
      }
    }
  }
}

TEST_P(CublasLtTest, AddsARowAndAMatrix) {
  LibraryProduct p;
  p.operands = p.result = GetParam();
  p.batch = 2;
  p.m = 3;
  p.n = 5;
  p.k = 4;
  p.a_stride = p.m * p.k;
  const std::vector<float> a = Numbers(p.batch * p.m * p.k, 7), b = Numbers(p.k * p.n, 3);
  const std::vector<float> row = Numbers(p.n, 2), matrix = Numbers(p.batch * p.m * p.n, 5);
  const DeviceBuffer on_a = Upload(a), on_b = Upload(b), on_row = Upload(row);
  const DeviceBuffer on_matrix = Upload(matrix);
  for (const auto& [adds_row, adds_matrix] :
       {std::pair(true, false), {false, true}, {true, true}, {false, false}}) {
    p.adds_row = adds_row;
    p.adds_matrix = adds_matrix;
    const LibraryKernel kernel = device_->libraries().at(0)->FindProduct(p).at(0);
    EXPECT_EQ(kernel.name.find("+ row") != std::string::npos, adds_row);
    const DeviceBuffer y = Upload(std::vector<float>(matrix.size()));
    const auto stream = *device_->MakeStream();
    const Status done =
        kernel.enqueue(static_cast<GpuStream&>(*stream),
                       {on_a.get(), on_b.get(), y.get(), nullptr, adds_row ? on_row.get() : nullptr,
                        adds_matrix ? on_matrix.get() : nullptr});
    ASSERT_TRUE(done.ok()) << done.ToString();
    std::vector<float> wanted;
    for (int64_t i = 0; i < p.batch * p.m; ++i) {
      for (int64_t j = 0; j < p.n; ++j) {
        float sum = adds_row ? row[static_cast<size_t>(j)] : 0;
        if (adds_matrix) sum += matrix[static_cast<size_t>(i * p.n + j)];
        for (int64_t q = 0; q < p.k; ++q) {
          sum += a[static_cast<size_t>(i * p.k + q)] * b[static_cast<size_t>(q * p.n + j)];
        }
        wanted.push_back(sum);
      }
    }
    const DeviceBuffer expected = Upload(wanted);
    const size_t width = GetParam() == DataType::kFloat ? 4 : 2;
    EXPECT_EQ(std::memcmp(y.get(), expected.get(), wanted.size() * width), 0)
        << adds_row << adds_matrix;
  }
}

TEST_P(CublasLtTest, ItsWorkspaceHasALimit) {
  const auto device = MakeDevice({.max_workspace_size = 1000});
  LibraryProduct p;
  p.operands = p.result = GetParam();
  p.m = p.n = p.k = 2;
  EXPECT_THAT(device->libraries().at(0)->FindProduct(p), SizeIs(1));
}

INSTANTIATE_TEST_SUITE_P(Types, CublasLtTest,
                         testing::Values(DataType::kFloat, DataType::kFloat16, DataType::kBfloat16),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

// The fake driver runs no kernel of ours: what is right here, the library has computed.
class CublasLtSessions : public CublasLtTest {
 protected:
  void ExpectSame(const TestModel& model, const std::vector<Value>& inputs) {
    ExpectSameAsCpu(model, inputs, MakeGpuProvider("cuda", device_), 0);
  }
  static Tensor Of(const Shape& shape, int step) {
    return Tensor::Of<float>(shape, Numbers(shape.ElementCount(), step));
  }
};

TEST_P(CublasLtSessions, MultiplyByIt) {
  for (const auto& [a, b] : {std::pair(Shape{20, 30}, Shape{30, 40}),
                             {Shape{2, 9, 30}, Shape{30, 40}},
                             {Shape{2, 9, 30}, Shape{2, 30, 40}},
                             {Shape{9, 30}, Shape{2, 30, 40}}}) {
    TestModel model;
    SymbolicShape of_a(a.begin(), a.end()), of_b(b.begin(), b.end());
    model.Input("a", DataType::kFloat, of_a).Input("b", DataType::kFloat, of_b);
    model.Node("MatMul", {"a", "b"}, {"y"}).Output("y");
    ExpectSame(model, {Of(a, 7), Of(b, 3)});
  }
}

TEST_P(CublasLtSessions, ConvolvePixelByPixelByIt) {
  TestModel model;
  model.Input("x", DataType::kFloat, {2, 10, 4, 5});
  model.Constant("w", Of(Shape{12, 10, 1, 1}, 3));
  model.Node("Conv", {"x", "w"}, {"y"}).Output("y");
  ExpectSame(model, {Of(Shape{2, 10, 4, 5}, 7)});
}

INSTANTIATE_TEST_SUITE_P(Types, CublasLtSessions, testing::Values(DataType::kFloat),
                         [](const auto& info) { return std::string(DataTypeName(info.param)); });

}  // namespace
}  // namespace onnxd
