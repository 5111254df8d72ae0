#include "runtime/device/cuda/cuda_device.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>

#include "runtime/base/machine.h"
#include "runtime/base/str_cat.h"
#include "runtime/device/caching_allocator.h"
#include "runtime/device/cuda/nvml.h"

namespace onnxd {
namespace {

using cuda::DevicePointer;
using cuda::DriverApi;
using cuda::kSuccess;

DevicePointer ToDevice(const void* address) { return reinterpret_cast<DevicePointer>(address); }

// What the objects of one device share.
struct Shared {
  const DriverApi& driver;
  ::CUctx_st* context = nullptr;
  int stream_priority = 0;
  std::atomic<bool> lost = false;
  std::mutex mutex;
  Status loss;  // guarded by mutex

  explicit Shared(const DriverApi& d) : driver(d) {}

  // Every call belongs to the context that is current on its thread.
  void Enter() const {
    thread_local ::CUctx_st* current = nullptr;
    if (current == context) return;
    if (driver.cuCtxSetCurrent(context) == kSuccess) current = context;
  }

  Status Check(int code, const char* call) {
    Status status = cuda::StatusOf(driver, code, call);
    if (cuda::IsFatal(code)) {
      std::lock_guard lock(mutex);
      if (loss.ok()) loss = status;
      lost = true;
    }
    return status;
  }
};

class CudaKernel : public DeviceKernel {
 public:
  explicit CudaKernel(::CUfunc_st* function) : function_(function) {}
  ::CUfunc_st* function() const { return function_; }

  // More than every device has, the driver gives to kernels that have asked for it.
  int AskForRoom(const DriverApi& driver, size_t bytes) const {
    if (bytes <= room_bytes_) return kSuccess;
    const int code =
        driver.cuFuncSetAttribute(function_, cuda::kFunctionRoomBytes, static_cast<int>(bytes));
    if (code == kSuccess) room_bytes_ = bytes;
    return code;
  }

 private:
  ::CUfunc_st* const function_;
  mutable std::atomic<size_t> room_bytes_ = size_t{48} << 10;
};

class CudaGraph : public DeviceGraph {
 public:
  CudaGraph(std::shared_ptr<Shared> shared, ::CUgraphExec_st* graph)
      : shared_(std::move(shared)), graph_(graph) {}
  ~CudaGraph() override {
    shared_->Enter();
    shared_->driver.cuGraphExecDestroy(graph_);
  }
  ::CUgraphExec_st* graph() const { return graph_; }

 private:
  const std::shared_ptr<Shared> shared_;
  ::CUgraphExec_st* const graph_;
};

class CudaStream : public GpuStream {
 public:
  CudaStream(std::shared_ptr<Shared> shared, ::CUstream_st* stream, DeviceBuffer failure)
      : shared_(std::move(shared)), stream_(stream), failure_(std::move(failure)) {}
  ~CudaStream() override {
    (void)Synchronize();
    shared_->driver.cuStreamDestroy_v2(stream_);
  }

  // From memory that is not pinned the driver copies what it needs before it returns.
  Status CopyIn(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return Status::Ok();
    shared_->Enter();
    return shared_->Check(shared_->driver.cuMemcpyHtoDAsync_v2(ToDevice(to), from, bytes, stream_),
                          "cuMemcpyHtoDAsync");
  }
  Status CopyOut(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return Status::Ok();
    shared_->Enter();
    return shared_->Check(shared_->driver.cuMemcpyDtoHAsync_v2(to, ToDevice(from), bytes, stream_),
                          "cuMemcpyDtoHAsync");
  }
  Status CopyWithin(void* to, const void* from, size_t bytes) override {
    if (bytes == 0) return Status::Ok();
    shared_->Enter();
    return shared_->Check(
        shared_->driver.cuMemcpyDtoDAsync_v2(ToDevice(to), ToDevice(from), bytes, stream_),
        "cuMemcpyDtoDAsync");
  }

  Status CopyRowsWithin(const CopiedRows& rows) override {
    if (rows.bytes == 0 || rows.rows == 0) return Status::Ok();
    cuda::RowsCopy copy;
    copy.from.kind = copy.to.kind = cuda::kMemoryOfDevice;
    copy.from.address = ToDevice(rows.from);
    copy.from.pitch = rows.from_pitch;
    copy.to.address = ToDevice(rows.to);
    copy.to.pitch = rows.to_pitch;
    copy.bytes = rows.bytes;
    copy.rows = rows.rows;
    shared_->Enter();
    const int code = shared_->driver.cuMemcpy2DAsync_v2(
        reinterpret_cast<const ::CUDA_MEMCPY2D_st*>(&copy), stream_);
    // Drivers need not take all pitches within a device.
    if (code == cuda::kInvalidValue) return GpuStream::CopyRowsWithin(rows);
    return shared_->Check(code, "cuMemcpy2DAsync");
  }
  Status Zero(void* to, size_t bytes) override {
    if (bytes == 0) return Status::Ok();
    shared_->Enter();
    return shared_->Check(shared_->driver.cuMemsetD8Async(ToDevice(to), 0, bytes, stream_),
                          "cuMemsetD8Async");
  }

  Status Synchronize() override {
    shared_->Enter();
    return shared_->Check(shared_->driver.cuStreamSynchronize(stream_), "cuStreamSynchronize");
  }

  Status BeginRecording() override {
    shared_->Enter();
    return shared_->Check(
        shared_->driver.cuStreamBeginCapture_v2(stream_, cuda::kCaptureThreadLocal),
        "cuStreamBeginCapture");
  }
  Result<std::unique_ptr<DeviceGraph>> EndRecording() override {
    shared_->Enter();
    ::CUgraph_st* captured = nullptr;
    ONNXD_RETURN_IF_ERROR(shared_->Check(shared_->driver.cuStreamEndCapture(stream_, &captured),
                                         "cuStreamEndCapture"));
    ::CUgraphExec_st* graph = nullptr;
    const Status made = shared_->Check(
        shared_->driver.cuGraphInstantiateWithFlags(&graph, captured, 0), "cuGraphInstantiate");
    shared_->driver.cuGraphDestroy(captured);
    ONNXD_RETURN_IF_ERROR(made);
    return std::unique_ptr<DeviceGraph>(std::make_unique<CudaGraph>(shared_, graph));
  }
  Status Replay(const DeviceGraph& graph) override {
    shared_->Enter();
    return shared_->Check(
        shared_->driver.cuGraphLaunch(static_cast<const CudaGraph&>(graph).graph(), stream_),
        "cuGraphLaunch");
  }

  ::CUstream_st* stream() const { return stream_; }

  void* failure_word() const override { return failure_.get(); }
  Result<DeviceFailure> TakeFailure() override {
    uint32_t words[4] = {};
    ONNXD_RETURN_IF_ERROR(CopyOut(words, failure_.get(), sizeof(words)));
    ONNXD_RETURN_IF_ERROR(Synchronize());
    if (words[0] == 0) return DeviceFailure{};
    const uint32_t none[4] = {};
    ONNXD_RETURN_IF_ERROR(CopyIn(failure_.get(), none, sizeof(none)));
    return DeviceFailure{words[0] - 1, words[1],
                         static_cast<int64_t>(uint64_t{words[3]} << 32 | words[2])};
  }

  Status Launch(const DeviceKernel& kernel, const LaunchGrid& grid,
                const LaunchArguments& arguments) override {
    shared_->Enter();
    void* values[LaunchArguments::kMostArguments];
    for (size_t i = 0; i < arguments.size(); ++i) {
      values[i] = const_cast<std::byte*>(arguments[i].value);
    }
    const auto& cuda_kernel = static_cast<const CudaKernel&>(kernel);
    ONNXD_RETURN_IF_ERROR(shared_->Check(cuda_kernel.AskForRoom(shared_->driver, grid.room_bytes),
                                         "cuFuncSetAttribute"));
    return shared_->Check(shared_->driver.cuLaunchKernel(
                              cuda_kernel.function(), grid.groups[0], grid.groups[1],
                              grid.groups[2], grid.lanes[0], grid.lanes[1], grid.lanes[2],
                              static_cast<unsigned>(grid.room_bytes), stream_, values, nullptr),
                          "cuLaunchKernel");
  }

 private:
  const std::shared_ptr<Shared> shared_;
  ::CUstream_st* const stream_;
  const DeviceBuffer failure_;
};

// Of pinned memory, which the system cannot take back: enough for some batches of images, and an
// eighth of what this process may have, for caches of keys and values that come and go.
size_t MostPinned() {
  constexpr int64_t kLeast = int64_t{1} << 30;
  return static_cast<size_t>(std::max(kLeast, AvailableMemory() / 8));
}

class CudaDevice : public GpuDevice {
 public:
  CudaDevice(std::shared_ptr<Shared> shared, const cuda::NvrtcApi& nvrtc, std::string name,
             GpuProperties properties, size_t memory_limit, std::string bus_id)
      : shared_(std::move(shared)),
        nvrtc_(nvrtc),
        name_(std::move(name)),
        properties_(std::move(properties)),
        bus_id_(std::move(bus_id)) {
    allocator_ = std::make_shared<CachingAllocator>(
        CachingAllocator::Source{[shared = shared_](size_t bytes) -> void* {
                                   shared->Enter();
                                   DevicePointer made = 0;
                                   const int code = shared->driver.cuMemAlloc_v2(&made, bytes);
                                   if (!shared->Check(code, "cuMemAlloc").ok()) return nullptr;
                                   return reinterpret_cast<void*>(made);
                                 },
                                 [shared = shared_](void* block) {
                                   shared->Enter();
                                   shared->driver.cuMemFree_v2(ToDevice(block));
                                 }},
        memory_limit);
    pinned_ = std::make_shared<CachingAllocator>(
        CachingAllocator::Source{[shared = shared_](size_t bytes) -> void* {
                                   shared->Enter();
                                   void* made = nullptr;
                                   const int code = shared->driver.cuMemAllocHost_v2(&made, bytes);
                                   return shared->Check(code, "cuMemAllocHost").ok() ? made
                                                                                     : nullptr;
                                 },
                                 [shared = shared_](void* block) {
                                   shared->Enter();
                                   shared->driver.cuMemFreeHost(block);
                                 }},
        MostPinned());
  }

  std::string_view name() const override { return name_; }
  Dialect dialect() const override { return Dialect::kCuda; }
  const GpuProperties& properties() const override { return properties_; }
  bool lost() const override { return shared_->lost; }
  Status loss() const override {
    std::lock_guard lock(shared_->mutex);
    return shared_->loss;
  }
  DeviceStatistics statistics() const override {
    DeviceStatistics statistics;
    statistics.memory_bytes = properties_.memory_bytes;
    const CachingAllocator::Usage usage = allocator_->usage();
    statistics.used_bytes = static_cast<int64_t>(usage.used);
    statistics.kept_bytes = static_cast<int64_t>(usage.kept);
    const auto nvml = cuda::OpenNvml();
    if (!nvml.ok() || bus_id_.empty()) return statistics;
    const cuda::GpuReadings readings = cuda::ReadGpu(**nvml, bus_id_);
    statistics.utilization = readings.utilization;
    statistics.power_watts = readings.power_watts;
    statistics.total_bytes = readings.used_bytes;
    return statistics;
  }

  Result<TileMap> MakeTileMap(const void* base, int64_t rows, int64_t columns,
                              int64_t tile_rows) const override {
    TileMap map;
    const uint64_t extents[] = {static_cast<uint64_t>(columns), static_cast<uint64_t>(rows)};
    const uint64_t row_bytes[] = {2 * extents[0]};
    const uint32_t tile[] = {64, static_cast<uint32_t>(tile_rows)}, dense[] = {1, 1};
    shared_->Enter();
    const int code = shared_->driver.cuTensorMapEncodeTiled(
        reinterpret_cast<::CUtensorMap_st*>(&map), cuda::kTileOf16Bits, 2, const_cast<void*>(base),
        extents, row_bytes, tile, dense, 0, cuda::kTileSwizzle128, cuda::kTilePromotion256, 0);
    ONNXD_RETURN_IF_ERROR(shared_->Check(code, "cuTensorMapEncodeTiled"));
    return map;
  }

  Result<DeviceBuffer> Allocate(size_t bytes) override {
    ONNXD_RETURN_IF_ERROR(CheckAlive());
    auto buffer = allocator_->Allocate(bytes);
    if (!buffer.ok()) return buffer.status().WithContext(name_);
    return buffer;
  }

  Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) override {
    ONNXD_RETURN_IF_ERROR(CheckAlive());
    auto buffer = pinned_->Allocate(bytes);
    if (!buffer.ok()) return buffer.status().WithContext(StrCat(name_, ", pinned memory"));
    return buffer;
  }

  Result<std::unique_ptr<Stream>> MakeStream() override {
    ONNXD_RETURN_IF_ERROR(CheckAlive());
    shared_->Enter();
    ONNXD_ASSIGN_OR_RETURN(DeviceBuffer failure, Allocate(4 * sizeof(uint32_t)));
    ::CUstream_st* made = nullptr;
    ONNXD_RETURN_IF_ERROR(
        shared_->Check(shared_->driver.cuStreamCreateWithPriority(&made, cuda::kStreamNonBlocking,
                                                                  shared_->stream_priority),
                       "cuStreamCreateWithPriority"));
    auto stream = std::make_unique<CudaStream>(shared_, made, failure);
    const uint32_t none[4] = {};
    ONNXD_RETURN_IF_ERROR(stream->CopyIn(failure.get(), none, sizeof(none)));
    return std::unique_ptr<Stream>(std::move(stream));
  }

 protected:
  class CudaProgram : public Program {
   public:
    CudaProgram(std::shared_ptr<Shared> shared, ::CUmod_st* module)
        : shared_(std::move(shared)), module_(module) {}

    Result<std::shared_ptr<const DeviceKernel>> FindKernel(const std::string& name) override {
      shared_->Enter();
      ::CUfunc_st* function = nullptr;
      ONNXD_RETURN_IF_ERROR(
          shared_
              ->Check(shared_->driver.cuModuleGetFunction(&function, module_, name.c_str()),
                      "cuModuleGetFunction")
              .WithContext(name));
      return std::shared_ptr<const DeviceKernel>(std::make_shared<CudaKernel>(function));
    }

   private:
    const std::shared_ptr<Shared> shared_;
    ::CUmod_st* const module_;  // lives as long as the process
  };

  Result<std::unique_ptr<Program>> Compile(const std::string& text, std::string* binary) override {
    ONNXD_RETURN_IF_ERROR(CheckAlive());
    ONNXD_ASSIGN_OR_RETURN(std::string cubin,
                           cuda::CompileToCubin(nvrtc_, text, properties_.compute_capability));
    ONNXD_ASSIGN_OR_RETURN(auto program, LoadBinary(cubin));
    if (binary != nullptr) *binary = std::move(cubin);
    return program;
  }

  // Cubins hold for a compute capability, whatever the driver.
  std::string CompilerIdentity() const override {
    int major = 0, minor = 0;
    nvrtc_.nvrtcVersion(&major, &minor);
    return StrCat("nvrtc ", major, ".", minor, " sm_", properties_.compute_capability);
  }

  Result<std::unique_ptr<Program>> LoadBinary(const std::string& cubin) override {
    ONNXD_RETURN_IF_ERROR(CheckAlive());
    shared_->Enter();
    ::CUmod_st* module = nullptr;
    ONNXD_RETURN_IF_ERROR(shared_->Check(shared_->driver.cuModuleLoadData(&module, cubin.data()),
                                         "cuModuleLoadData"));
    return std::unique_ptr<Program>(std::make_unique<CudaProgram>(shared_, module));
  }

 private:
  Status CheckAlive() const {
    if (!shared_->lost) return Status::Ok();
    return Unavailable(StrCat(name_, " is lost: ", loss().message()));
  }

  const std::shared_ptr<Shared> shared_;
  const cuda::NvrtcApi& nvrtc_;
  const std::string name_;
  const GpuProperties properties_;
  const std::string bus_id_;
  std::shared_ptr<CachingAllocator> allocator_;
  std::shared_ptr<CachingAllocator> pinned_;  // the host's memory
};

Result<GpuProperties> PropertiesOf(const DriverApi& driver, cuda::DeviceOrdinal device) {
  GpuProperties properties;
  char name[256] = {};
  driver.cuDeviceGetName(name, sizeof(name) - 1, device);
  properties.description = name;
  size_t bytes = 0;
  driver.cuDeviceTotalMem_v2(&bytes, device);
  properties.memory_bytes = static_cast<int64_t>(bytes);
  const auto attribute = [&](int what) {
    int value = 0;
    driver.cuDeviceGetAttribute(&value, what, device);
    return value;
  };
  properties.multiprocessors = attribute(cuda::kAttributeMultiprocessors);
  properties.local_bytes = attribute(cuda::kAttributeLocalBytes);
  properties.room_bytes = attribute(cuda::kAttributeRoomBytes);
  properties.compute_capability =
      attribute(cuda::kAttributeMajor) * 10 + attribute(cuda::kAttributeMinor);
  if (properties.compute_capability < 70) {
    return Unavailable(StrCat("CUDA: ", properties.description, " has compute capability ",
                              properties.compute_capability / 10, ".",
                              properties.compute_capability % 10, ", 7.0 is needed"));
  }
  properties.has_matrix_units = properties.compute_capability >= 80;
  properties.has_warpgroup_units = properties.compute_capability == 90;
  return properties;
}

}  // namespace

Result<std::shared_ptr<GpuDevice>> MakeCudaDevice(const DriverApi& driver,
                                                  const cuda::NvrtcApi& nvrtc,
                                                  const CudaLibraries& libraries,
                                                  const CudaOptions& options) {
  auto shared = std::make_shared<Shared>(driver);
  int count = 0;
  ONNXD_RETURN_IF_ERROR(shared->Check(driver.cuDeviceGetCount(&count), "cuDeviceGetCount"));
  if (options.device_id < 0 || options.device_id >= count) {
    return Unavailable(StrCat("CUDA: there is no GPU ", options.device_id, " of ", count));
  }
  cuda::DeviceOrdinal device = 0;
  ONNXD_RETURN_IF_ERROR(
      shared->Check(driver.cuDeviceGet(&device, options.device_id), "cuDeviceGet"));
  ONNXD_ASSIGN_OR_RETURN(GpuProperties properties, PropertiesOf(driver, device));
  properties.use_tf32 = options.use_tf32;
  ONNXD_RETURN_IF_ERROR(shared->Check(driver.cuDevicePrimaryCtxRetain(&shared->context, device),
                                      "cuDevicePrimaryCtxRetain"));
  shared->Enter();
  int least = 0, greatest = 0;
  ONNXD_RETURN_IF_ERROR(shared->Check(driver.cuCtxGetStreamPriorityRange(&least, &greatest),
                                      "cuCtxGetStreamPriorityRange"));
  shared->stream_priority = std::clamp(options.stream_priority, greatest, least);
  char bus_id[64] = {};
  if (driver.cuDeviceGetPCIBusId(bus_id, sizeof(bus_id) - 1, device) != kSuccess) bus_id[0] = 0;
  auto made = std::make_shared<CudaDevice>(shared, nvrtc, StrCat("cuda:", options.device_id),
                                           std::move(properties),
                                           static_cast<size_t>(options.memory_limit), bus_id);
  made->set_searches_tactics(options.searches_tactics);
  const auto enter = [shared] { shared->Enter(); };
  const auto stream_of = [](GpuStream& stream) {
    return static_cast<CudaStream&>(stream).stream();
  };
  const auto workspace = static_cast<size_t>(options.max_workspace_size);
  if (libraries.cublaslt != nullptr) {
    made->AddLibrary(cuda::MakeCublasLtLibrary(*libraries.cublaslt, {options.use_tf32, workspace},
                                               enter, stream_of));
  }
  if (libraries.open_cudnn) {
    made->AddLibrary(cuda::MakeCudnnLibrary(libraries.open_cudnn, {options.use_tf32, workspace},
                                            enter, stream_of));
  }
  return std::shared_ptr<GpuDevice>(std::move(made));
}

Result<std::shared_ptr<GpuDevice>> FindCudaDevice(const CudaOptions& options) {
  static std::mutex mutex;
  static auto* const devices = new std::map<CudaOptions, std::shared_ptr<GpuDevice>>();
  std::lock_guard lock(mutex);
  const auto found = devices->find(options);
  if (found != devices->end()) return found->second;
  ONNXD_ASSIGN_OR_RETURN(const DriverApi* driver, cuda::OpenDriver());
  ONNXD_ASSIGN_OR_RETURN(const cuda::NvrtcApi* nvrtc, cuda::OpenNvrtc());
  const auto cublaslt = cuda::OpenCublasLt();
  const auto open_cudnn = [] {
    const auto cudnn = cuda::OpenCudnn();
    return cudnn.ok() ? *cudnn : nullptr;
  };
  const CudaLibraries libraries{cublaslt.ok() ? *cublaslt : nullptr, open_cudnn};
  ONNXD_ASSIGN_OR_RETURN(auto device, MakeCudaDevice(*driver, *nvrtc, libraries, options));
  devices->emplace(options, device);
  return device;
}

}  // namespace onnxd
