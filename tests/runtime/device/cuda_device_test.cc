// The CUDA device on a driver that has no GPU (tests/support/fake_cuda): what our side asks of it,
// and what becomes of its failures. What a GPU computes is not tested here.
#include "runtime/device/cuda/cuda_device.h"

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/base/machine.h"
#include "runtime/device/cuda/nvml.h"
#include "runtime/tensor/device_tensor.h"
#include "tests/support/copied_rows.h"
#include "tests/support/test_model.h"
#if __has_include(<cuda.h>) && __has_include(<nvrtc.h>)
#include <cuda.h>
#endif

namespace onnxd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

#if defined(CUDA_VERSION) && CUDA_VERSION >= 12000
// Enumerations are ints here.
template <typename Ours, typename Theirs>
constexpr bool kSame = std::is_same_v<Ours, Theirs> ||
                       (std::is_enum_v<Theirs> && std::is_same_v<Ours, int> &&
                        sizeof(Theirs) == sizeof(int));
template <typename Ours, typename Theirs>
constexpr bool kSameParameters = false;
template <typename... Ours, typename... Theirs>
requires(
    sizeof...(Ours) ==
    sizeof...(Theirs)) constexpr bool kSameParameters<int (*)(Ours...), CUresult (*)(Theirs...)> =
    (kSame<Ours, Theirs> && ...);
#define ONNXD_SAME(name, parameters)                                                              \
  static_assert(kSameParameters<decltype(cuda::DriverApi::name), std::decay_t<decltype(::name)>>, \
                #name " is declared otherwise");
ONNXD_CUDA_FUNCTIONS(ONNXD_SAME)
#undef ONNXD_SAME
static_assert(cuda::kInvalidValue == CUDA_ERROR_INVALID_VALUE);
static_assert(cuda::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(cuda::kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(cuda::kAttributeMultiprocessors == CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
static_assert(cuda::kAttributeLocalBytes == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
static_assert(cuda::kAttributeRoomBytes == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
static_assert(cuda::kFunctionRoomBytes == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(cuda::kAttributeMajor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
static_assert(cuda::kAttributeMinor == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
static_assert(cuda::kStreamNonBlocking == CU_STREAM_NON_BLOCKING);
static_assert(cuda::kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(cuda::kCaptureThreadLocal == CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
static_assert(cuda::kTileOf16Bits == CU_TENSOR_MAP_DATA_TYPE_UINT16);
static_assert(cuda::kTileSwizzle128 == CU_TENSOR_MAP_SWIZZLE_128B);
static_assert(cuda::kTilePromotion256 == CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
static_assert(cuda::kMemoryOfDevice == CU_MEMORYTYPE_DEVICE);
static_assert(sizeof(cuda::RowsCopy) == sizeof(CUDA_MEMCPY2D));
static_assert(offsetof(cuda::MemoryOfRows, pitch) == offsetof(CUDA_MEMCPY2D, srcPitch));
static_assert(offsetof(cuda::MemoryOfRows, address) == offsetof(CUDA_MEMCPY2D, srcDevice));
static_assert(offsetof(cuda::RowsCopy, to) == offsetof(CUDA_MEMCPY2D, dstXInBytes));
static_assert(offsetof(cuda::RowsCopy, bytes) == offsetof(CUDA_MEMCPY2D, WidthInBytes));
static_assert(sizeof(TileMap) == sizeof(CUtensorMap) && alignof(TileMap) >= alignof(CUtensorMap));
#endif

constexpr const char* kTwice = R"(
KERNEL twice(GLOBAL const f32* x, GLOBAL f32* y, i64 count) {
  const i64 i = GLOBAL_INDEX;
  if (i < count) y[i] = x[i] + x[i];
}
KERNEL missing() {}
)";

class CudaDeviceTest : public testing::Test {
 protected:
  void SetUp() override {
    auto driver = cuda::LoadDriver(ONNXD_FAKE_CUDA);
    ASSERT_TRUE(driver.ok()) << driver.status().ToString();
    driver_ = *driver;
    const auto nvrtc = cuda::OpenNvrtc();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.status().ToString();
    auto device = MakeCudaDevice(driver_, **nvrtc, {}, {});
    ASSERT_TRUE(device.ok()) << device.status().ToString();
    device_ = *device;
    stream_ = std::move(*device_->MakeStream());
  }

  template <typename Function>
  Function Fake(const char* name) {
    return reinterpret_cast<Function>(dlsym(dlopen(ONNXD_FAKE_CUDA, RTLD_NOW), name));
  }
  void Fail(const char* call, int code) {
    Fake<void (*)(const char*, int)>("fake_cuda_fail")(call, code);
  }
  int Count(const char* what) { return Fake<int (*)()>(what)(); }

  Status LaunchTwice(const Tensor& x, const Tensor& y, int64_t count, size_t room_bytes = 0) {
    const auto kernel = device_->FindKernel(kTwice, "twice");
    if (!kernel.ok()) return kernel.status();
    LaunchGrid grid = LaunchGrid::Over(count);
    grid.room_bytes = room_bytes;
    return static_cast<GpuStream&>(*stream_).Launch(
        **kernel, grid, LaunchArguments().Pointer(x.raw()).Pointer(y.raw()).Value(count));
  }

  cuda::DriverApi driver_;
  std::shared_ptr<GpuDevice> device_;
  std::unique_ptr<Stream> stream_;
};

TEST_F(CudaDeviceTest, SaysWhatItIs) {
  EXPECT_EQ(device_->name(), "cuda:0");
  EXPECT_EQ(device_->properties().description, "fake");
  EXPECT_EQ(device_->properties().compute_capability, 90);
  EXPECT_EQ(device_->properties().multiprocessors, 132);
}

TEST_F(CudaDeviceTest, DescribesTilesAndSaysWhatTheDriverRefuses) {
  alignas(16) static std::byte matrix[4096];
  const auto map = device_->MakeTileMap(matrix, 16, 128, 16);
  ASSERT_TRUE(map.ok()) << map.status().ToString();
  EXPECT_EQ(map->words[0], 128u);
  EXPECT_EQ(map->words[1], 16u);
  EXPECT_THAT(device_->MakeTileMap(matrix + 2, 16, 128, 16).status().ToString(),
              HasSubstr("cuTensorMapEncodeTiled"));
}

TEST_F(CudaDeviceTest, CompilesForItsArchitectureAndHandsOverArguments) {
  const auto x = CopyToDevice(Floats(Shape{3}, {1, 2, 3}), *device_, *stream_);
  auto y = Tensor::CreateOn(*device_, DataType::kFloat, Shape{3});
  ASSERT_TRUE(LaunchTwice(*x, *y, 3).ok());
  const auto host = CopyToHost(*y, *stream_);
  EXPECT_THAT(host->elements<float>(), ElementsAre(2, 4, 6));
}

TEST_F(CudaDeviceTest, AsksForRoomBeyondWhatAllKernelsHave) {
  const auto room = static_cast<size_t>(device_->properties().room_bytes);
  EXPECT_EQ(room, 227u << 10);
  const auto x = CopyToDevice(Floats(Shape{1}, {3}), *device_, *stream_);
  auto y = Tensor::CreateOn(*device_, DataType::kFloat, Shape{1});
  EXPECT_TRUE(LaunchTwice(*x, *y, 1, room).ok());
  EXPECT_TRUE(LaunchTwice(*x, *y, 1, 100 << 10).ok());
  const Status more = LaunchTwice(*x, *y, 1, room + 1);
  EXPECT_THAT(more.ToString(), HasSubstr("cuFuncSetAttribute"));
  EXPECT_FALSE(device_->lost());
}

TEST_F(CudaDeviceTest, CopiesRowsWithinAndMakesZeros) {
  ExpectRowsAreCopiedWithin(*device_);
  ExpectMuchBecomesZero(*device_);
}

TEST_F(CudaDeviceTest, CopiesRowsOneByOneWhereTheDriverDoesNotTakeTheirPitches) {
  Fail("cuMemcpy2DAsync", cuda::kInvalidValue);
  ExpectRowsAreCopiedWithin(*device_);
  EXPECT_FALSE(device_->lost());
}

TEST_F(CudaDeviceTest, ReplaysWhatItRecorded) {
  auto x = CopyToDevice(Floats(Shape{3}, {1, 2, 3}), *device_, *stream_);
  auto y = Tensor::CreateOn(*device_, DataType::kFloat, Shape{3});
  auto z = Tensor::CreateOn(*device_, DataType::kFloat, Shape{3});
  ASSERT_TRUE(stream_->BeginRecording().ok());
  ASSERT_TRUE(LaunchTwice(*x, *y, 3).ok());
  ASSERT_TRUE(LaunchTwice(*y, *z, 3).ok());
  {
    const auto graph = stream_->EndRecording();
    ASSERT_TRUE(graph.ok());
    for (const float first : {1.0f, 5.0f}) {
      const Tensor again = Floats(Shape{3}, {first, 2, 3});
      ASSERT_TRUE(stream_->CopyIn((*x).mutable_raw(), again.raw(), again.bytes()).ok());
      ASSERT_TRUE(stream_->Replay(**graph).ok());
      EXPECT_THAT(CopyToHost(*z, *stream_)->elements<float>(), ElementsAre(4 * first, 8, 12));
    }
  }
  EXPECT_EQ(Count("fake_cuda_graphs"), 0);
}

TEST_F(CudaDeviceTest, AGraphThatCannotBeMadeLeavesNothing) {
  ASSERT_TRUE(stream_->BeginRecording().ok());
  Fail("cuGraphInstantiate", 801);
  EXPECT_FALSE(stream_->EndRecording().ok());
  EXPECT_EQ(Count("fake_cuda_graphs"), 0);
  EXPECT_FALSE(device_->lost());
}

TEST_F(CudaDeviceTest, GivesBackWhatItTook) {
  const int streams = Count("fake_cuda_streams");
  { auto stream = device_->MakeStream(); }
  EXPECT_EQ(Count("fake_cuda_streams"), streams);
}

TEST_F(CudaDeviceTest, PinnedMemoryIsKeptForTheNextThatAsks) {
  const int before = Count("fake_cuda_pinned");
  void* first = nullptr;
  {
    const auto block = device_->AllocatePinned(100'000);
    ASSERT_TRUE(block.ok()) << block.status().ToString();
    first = block->get();
    EXPECT_EQ(Count("fake_cuda_pinned"), before + 1);
  }
  EXPECT_EQ(Count("fake_cuda_pinned"), before + 1);
  EXPECT_EQ(device_->AllocatePinned(100'000)->get(), first);
  const auto too_much =
      device_->AllocatePinned(static_cast<size_t>(AvailableMemory() / 8) + (size_t{1} << 30));
  EXPECT_EQ(too_much.status().code(), StatusCode::kResourceExhausted);
  EXPECT_FALSE(device_->lost());
}

TEST_F(CudaDeviceTest, NoMemoryIsNoEndOfTheDevice) {
  // Also not without what the allocator keeps.
  Fail("cuMemAlloc", 2);
  const auto buffer = device_->Allocate(size_t{100} << 20);
  EXPECT_TRUE(buffer.ok());  // asked again
  EXPECT_FALSE(device_->lost());
}

TEST_F(CudaDeviceTest, AFailureInAKernelEndsTheDeviceAndSaysSo) {
  Fail("cuStreamSynchronize", 719);
  const Status status = stream_->Synchronize();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA_ERROR_LAUNCH_FAILED (719)"));
  EXPECT_TRUE(device_->lost());
  EXPECT_THAT(std::string(device_->loss().message()), HasSubstr("cuStreamSynchronize failed"));
  EXPECT_EQ(device_->Allocate(1).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(device_->MakeStream().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(device_->FindKernel("KERNEL other() {}", "other").status().code(),
            StatusCode::kUnavailable);
}

TEST_F(CudaDeviceTest, AnEntryPointThatIsNotThereIsNamed) {
  const auto kernel = device_->FindKernel(kTwice, "missing");
  ASSERT_FALSE(kernel.ok());
  EXPECT_THAT(std::string(kernel.status().message()), HasSubstr("missing"));
}

TEST_F(CudaDeviceTest, AGpuThatIsNotThereIsNamed) {
  const auto device = MakeCudaDevice(driver_, **cuda::OpenNvrtc(), {}, {.device_id = 1});
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(device.status().message()), HasSubstr("no GPU 1 of 1"));
}

TEST_F(CudaDeviceTest, ReadsWhatTheManagementLibraryTells) {
  const auto nvml = cuda::LoadNvml(ONNXD_FAKE_CUDA);
  ASSERT_TRUE(nvml.ok()) << nvml.status().ToString();
  const auto readings = cuda::ReadGpu(*nvml, "0000:01:00.0");
  EXPECT_EQ(readings.utilization, 0.75);
  EXPECT_EQ(readings.power_watts, 123.5);
  EXPECT_EQ(readings.used_bytes, 600);
  Fail("nvmlDeviceGetPowerUsage", 3);
  EXPECT_EQ(cuda::ReadGpu(*nvml, "0000:01:00.0").power_watts, std::nullopt);
  EXPECT_EQ(cuda::ReadGpu(*nvml, "another").utilization, std::nullopt);
  EXPECT_EQ(cuda::LoadNvml("libno_such_library.so").status().code(), StatusCode::kUnavailable);
}

TEST_F(CudaDeviceTest, CountsItsMemory) {
  const int64_t before = device_->statistics().used_bytes;
  const auto buffer = device_->Allocate(1 << 20);
  EXPECT_EQ(device_->statistics().used_bytes, before + (1 << 20));
  EXPECT_EQ(device_->statistics().memory_bytes, 1 << 30);
}

TEST(CudaDriver, AMachineWithoutOneSaysSo) {
  const auto driver = cuda::LoadDriver("libno_such_driver.so");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.status().code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("libno_such_driver.so"));
}

TEST(CudaDriver, AnotherLibraryIsNoDriver) {
  const auto driver = cuda::LoadDriver("libm.so.6");
  ASSERT_FALSE(driver.ok());
  EXPECT_THAT(std::string(driver.status().message()), HasSubstr("the driver lacks"));
}

}  // namespace
}  // namespace onnxd
