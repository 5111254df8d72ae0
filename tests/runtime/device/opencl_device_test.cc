// The OpenCL device, on whatever OpenCL this machine has: PoCL in CI.
#include "runtime/device/opencl/opencl_device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "runtime/base/str_cat.h"
#include "runtime/device/opencl/opencl_api.h"
#include "runtime/tensor/device_tensor.h"
#include "tests/support/copied_rows.h"
#include "tests/support/test_model.h"
#if __has_include(<CL/cl.h>)
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#endif

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

#if __has_include(<CL/cl.h>)
// The declarations that are compiled in say what Khronos' headers say.
#define ONNXD_SAME(result, name, parameters)                                                       \
  static_assert(std::is_same_v<decltype(opencl::Api::name), std::add_pointer_t<decltype(::name)>>, \
                #name " is declared otherwise");
ONNXD_OPENCL_FUNCTIONS(ONNXD_SAME)
#undef ONNXD_SAME
static_assert(opencl::kDeviceNotAvailable == CL_DEVICE_NOT_AVAILABLE);
static_assert(opencl::kMemObjectAllocationFailure == CL_MEM_OBJECT_ALLOCATION_FAILURE);
static_assert(opencl::kOutOfResources == CL_OUT_OF_RESOURCES);
static_assert(opencl::kOutOfHostMemory == CL_OUT_OF_HOST_MEMORY);
static_assert(opencl::kDeviceTypeGpu == CL_DEVICE_TYPE_GPU);
static_assert(opencl::kDeviceTypeAll == CL_DEVICE_TYPE_ALL);
static_assert(opencl::kDeviceMaxComputeUnits == CL_DEVICE_MAX_COMPUTE_UNITS);
static_assert(opencl::kDeviceGlobalMemSize == CL_DEVICE_GLOBAL_MEM_SIZE);
static_assert(opencl::kDeviceLocalMemSize == CL_DEVICE_LOCAL_MEM_SIZE);
static_assert(opencl::kDeviceName == CL_DEVICE_NAME);
static_assert(opencl::kDeviceDoubleFpConfig == CL_DEVICE_DOUBLE_FP_CONFIG);
static_assert(opencl::kDeviceSvmCapabilities == CL_DEVICE_SVM_CAPABILITIES);
static_assert(opencl::kDeviceSvmCoarseGrainBuffer == CL_DEVICE_SVM_COARSE_GRAIN_BUFFER);
static_assert(opencl::kMemReadWrite == CL_MEM_READ_WRITE);
static_assert(opencl::kDriverVersion == CL_DRIVER_VERSION);
static_assert(opencl::kDeviceVersion == CL_DEVICE_VERSION);
static_assert(opencl::kProgramBinarySizes == CL_PROGRAM_BINARY_SIZES);
static_assert(opencl::kProgramBinaries == CL_PROGRAM_BINARIES);
static_assert(opencl::kProgramBuildLog == CL_PROGRAM_BUILD_LOG);
#endif

class OpenClDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto device = FindOpenClDevice({});
    if (!device.ok()) GTEST_SKIP() << device.status().ToString();
    device_ = *device;
    stream_ = std::move(*device_->MakeStream());
  }

  std::vector<float> OnHost(const Tensor& tensor) {
    const auto host = CopyToHost(tensor, *stream_);
    EXPECT_TRUE(host.ok()) << host.status().ToString();
    const auto elements = host->elements<float>();
    return {elements.begin(), elements.end()};
  }
  GpuStream& stream() { return static_cast<GpuStream&>(*stream_); }

  std::shared_ptr<GpuDevice> device_;
  std::unique_ptr<Stream> stream_;
};

constexpr const char* kTwice = R"(
KERNEL twice(GLOBAL const f32* x, GLOBAL f32* y, i64 count) {
  const i64 i = GLOBAL_INDEX;
  if (i < count) y[i] = x[i] + x[i];
}
)";

TEST_F(OpenClDeviceTest, RunsAKernelOnWhatWasCopiedThere) {
  const auto kernel = device_->FindKernel(kTwice, "twice");
  ASSERT_TRUE(kernel.ok()) << kernel.status().ToString();
  const auto x = CopyToDevice(Floats(Shape{3}, {1, 2, 3}), *device_, *stream_);
  auto y = Tensor::CreateOn(*device_, DataType::kFloat, Shape{3});
  ASSERT_TRUE(x.ok() && y.ok());
  ASSERT_TRUE(stream()
                  .Launch(**kernel, LaunchGrid::Over(3),
                          LaunchArguments().Pointer(x->raw()).Pointer(y->raw()).Value(int64_t{3}))
                  .ok());
  EXPECT_THAT(OnHost(*y), ElementsAre(2, 4, 6));
}

TEST_F(OpenClDeviceTest, AKernelIsCompiledOnce) {
  EXPECT_EQ(*device_->FindKernel(kTwice, "twice"), *device_->FindKernel(kTwice, "twice"));
}

TEST_F(OpenClDeviceTest, WhatDoesNotCompileSaysWhatTheCompilerSaid) {
  const auto kernel = device_->FindKernel("KERNEL broken() { nonsense }", "broken");
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.status().code(), StatusCode::kInternal);
  EXPECT_THAT(kernel.status().message(), HasSubstr("nonsense"));
}

TEST_F(OpenClDeviceTest, AFailureInAKernelIsTakenOnceAndTheFirstWins) {
  const auto kernel = device_->FindKernel(
      "KERNEL refuse(GLOBAL u32* failure, u32 step, i64 value) {\n"
      "  RAISE(failure, step, 3u, value);\n}\n",
      "refuse");
  ASSERT_TRUE(kernel.ok()) << kernel.status().ToString();
  for (const int64_t value : {-5, 9}) {
    LaunchArguments arguments;
    arguments.Pointer(stream_->failure_word()).Value(uint32_t{17}).Value(value);
    ASSERT_TRUE(stream().Launch(**kernel, LaunchGrid{}, arguments).ok());
  }
  const auto failure = stream_->TakeFailure();
  ASSERT_TRUE(failure.ok());
  EXPECT_EQ(failure->step, 17u);
  EXPECT_EQ(failure->code, 3u);
  EXPECT_EQ(failure->value, -5);
  EXPECT_EQ(stream_->TakeFailure()->code, 0u);
}

TEST_F(OpenClDeviceTest, StructuresHalvesAndLocalMemoryAreWhatTheDialectSays) {
  const auto kernel = device_->FindKernel(R"(
KERNEL mixed(GLOBAL const u16* halves, Dims dims, GLOBAL f32* out) {
  LOCAL f32 shared[4];
  shared[LANE(0)] = f16_to_f32(halves[LANE(0)]) * (f32)dims.at[7];
  BARRIER();
  const f32 neighbour = shared[(LANE(0) + 1) % 4];
  out[LANE(0)] = bf16_to_f32(f32_to_bf16(f16_to_f32(f32_to_f16(neighbour))));
}
)",
                                          "mixed");
  ASSERT_TRUE(kernel.ok()) << kernel.status().ToString();
  Tensor halves = *Tensor::Create(DataType::kFloat16, Shape{4});
  for (int i = 0; i < 4; ++i) halves.mutable_data<Float16>()[i] = Float16(0.5f * (i + 1));
  const auto in = CopyToDevice(halves, *device_, *stream_);
  auto out = Tensor::CreateOn(*device_, DataType::kFloat, Shape{4});
  DeviceDims dims;
  dims.values[7] = 10;
  LaunchGrid grid;
  grid.lanes[0] = 4;
  ASSERT_TRUE(stream()
                  .Launch(**kernel, grid,
                          LaunchArguments().Pointer(in->raw()).Value(dims).Pointer(out->raw()))
                  .ok());
  EXPECT_THAT(OnHost(*out), ElementsAre(10, 15, 20, 5));
}

TEST_F(OpenClDeviceTest, TheHostMayWriteOverWhatItCopiedIn) {
  auto y = Tensor::CreateOn(*device_, DataType::kFloat, Shape{2});
  float values[2] = {1, 2};
  ASSERT_TRUE(stream_->CopyIn(y->mutable_raw(), values, sizeof(values)).ok());
  values[0] = 100;
  EXPECT_THAT(OnHost(*y), ElementsAre(1, 2));
}

TEST_F(OpenClDeviceTest, CopiesRowsWithinAndMakesZeros) {
  ExpectRowsAreCopiedWithin(*device_);
  ExpectMuchBecomesZero(*device_);
}

TEST_F(OpenClDeviceTest, StreamsWorkAtOnce) {
  const auto kernel = *device_->FindKernel(kTwice, "twice");
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      auto stream = std::move(*device_->MakeStream());
      const auto x = static_cast<float>(t + 1);
      auto tensor = *CopyToDevice(Floats(Shape{2}, {x, x}), *device_, *stream);
      for (int i = 0; i < 20; ++i) {
        ASSERT_TRUE(
            static_cast<GpuStream&>(*stream)
                .Launch(
                    *kernel, LaunchGrid::Over(2),
                    LaunchArguments().Pointer(tensor.raw()).Pointer(tensor.raw()).Value(int64_t{2}))
                .ok());
      }
      const auto host = CopyToHost(tensor, *stream);
      ASSERT_TRUE(host.ok());
      EXPECT_EQ(host->data<float>()[1], x * 1048576);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(OpenClDeviceTest, EqualConstantsAreThereOnce) {
  Tensor large = *Tensor::Create(DataType::kFloat, Shape{32 << 10});
  std::fill_n(large.mutable_data<float>(), 32 << 10, 3.0f);
  Tensor other = *Tensor::Create(DataType::kFloat, Shape{32 << 10});
  std::fill_n(other.mutable_data<float>(), 32 << 10, 3.0f);
  const auto first = ShareOnDevice(large, *device_, *stream_);
  const auto second = ShareOnDevice(other, *device_, *stream_);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_EQ(first->raw(), second->raw());
  other.mutable_data<float>()[5] = 4;
  EXPECT_NE(ShareOnDevice(other, *device_, *stream_)->raw(), first->raw());
}

TEST(OpenCl, ADeviceThatIsNotThereIsNamed) {
  const auto device = FindOpenClDevice({.device_id = 1000, .memory_limit = 0});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace onnxd
