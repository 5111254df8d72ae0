#include "runtime/device/opencl/opencl_device.h"

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/base/str_cat.h"
#include "runtime/device/caching_allocator.h"
#include "runtime/device/opencl/opencl_api.h"
#include "runtime/tensor/tensor.h"

namespace onnxd {
namespace {

using opencl::Api;
using opencl::StatusOf;

constexpr size_t kFailureBytes = 4 * sizeof(uint32_t);
// Smaller copies from the host are staged, so that the caller need not wait for what is before
// them.
constexpr size_t kMostStaged = 256 << 10;

// What the objects of one device share.
struct Shared {
  const Api* api;
  opencl::DeviceId device;
  opencl::Context context;
  std::atomic<bool> lost = false;
  std::mutex mutex;
  Status loss;  // guarded by mutex

  Status Check(opencl::Int code, const char* call) {
    Status status = StatusOf(code, call);
    if (code == opencl::kDeviceNotAvailable && !lost.exchange(true)) {
      std::lock_guard lock(mutex);
      loss = status;
    }
    return status;
  }
};

class OpenClKernel : public DeviceKernel {
 public:
  OpenClKernel(opencl::Program program, std::string name)
      : program_(program), name_(std::move(name)) {}
  opencl::Program program() const { return program_; }
  const std::string& name() const { return name_; }

 private:
  const opencl::Program program_;
  const std::string name_;
};

class OpenClStream : public GpuStream {
 public:
  OpenClStream(std::shared_ptr<Shared> shared, opencl::CommandQueue queue, DeviceBuffer failure)
      : shared_(std::move(shared)), queue_(queue), failure_(std::move(failure)) {}
  ~OpenClStream() override {
    (void)Synchronize();
    for (const auto& [kernel, object] : kernels_) shared_->api->clReleaseKernel(object);
    shared_->api->clReleaseCommandQueue(queue_);
  }

  Status CopyIn(void* to, const void* from, size_t bytes) override {
    ONNXD_RETURN_IF_ERROR(CheckNotRecording());
    if (bytes > kMostStaged) return Copy(to, from, bytes, true);
    auto staged = std::make_unique<std::byte[]>(bytes);
    std::memcpy(staged.get(), from, bytes);
    staged_.push_back(std::move(staged));
    return Copy(to, staged_.back().get(), bytes, false);
  }
  Status CopyOut(void* to, const void* from, size_t bytes) override {
    ONNXD_RETURN_IF_ERROR(CheckNotRecording());
    return Copy(to, from, bytes, false);
  }
  Status CopyWithin(void* to, const void* from, size_t bytes) override {
    if (recording_ != nullptr) {
      recording_->commands.push_back([=, this] { return CopyWithin(to, from, bytes); });
      return Status::Ok();
    }
    return Copy(to, from, bytes, false);
  }

  Status Zero(void* to, size_t bytes) override {
    ONNXD_RETURN_IF_ERROR(CheckNotRecording());
    if (bytes == 0) return Status::Ok();
    constexpr std::byte kZero{};
    return shared_->Check(shared_->api->clEnqueueSVMMemFill(queue_, to, &kZero, sizeof(kZero),
                                                            bytes, 0, nullptr, nullptr),
                          "clEnqueueSVMMemFill");
  }

  // A list of calls: OpenCL 3.0's command buffers are an extension that few drivers have.
  Status BeginRecording() override {
    ONNXD_RETURN_IF_ERROR(CheckNotRecording());
    recording_ = std::make_unique<CommandList>();
    return Status::Ok();
  }
  Result<std::unique_ptr<DeviceGraph>> EndRecording() override {
    if (recording_ == nullptr) return FailedPrecondition("nothing is recorded");
    return std::unique_ptr<DeviceGraph>(std::move(recording_));
  }
  Status Replay(const DeviceGraph& graph) override {
    ONNXD_RETURN_IF_ERROR(CheckNotRecording());
    for (const auto& command : static_cast<const CommandList&>(graph).commands) {
      ONNXD_RETURN_IF_ERROR(command());
    }
    return Status::Ok();
  }

  Status Synchronize() override {
    ONNXD_RETURN_IF_ERROR(CheckNotRecording());
    const Status status = shared_->Check(shared_->api->clFinish(queue_), "clFinish");
    staged_.clear();
    return status;
  }

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
    if (recording_ != nullptr) {
      recording_->commands.push_back(
          [=, this, &kernel] { return Launch(kernel, grid, arguments); });
      return Status::Ok();
    }
    const Api& api = *shared_->api;
    ONNXD_ASSIGN_OR_RETURN(const opencl::Kernel object,
                           ObjectOf(static_cast<const OpenClKernel&>(kernel)));
    for (size_t i = 0; i < arguments.size(); ++i) {
      const auto index = static_cast<opencl::Uint>(i);
      if (arguments[i].is_pointer) {
        void* address;
        std::memcpy(&address, arguments[i].value, sizeof(address));
        ONNXD_RETURN_IF_ERROR(shared_->Check(api.clSetKernelArgSVMPointer(object, index, address),
                                             "clSetKernelArgSVMPointer"));
      } else {
        ONNXD_RETURN_IF_ERROR(shared_->Check(
            api.clSetKernelArg(object, index, arguments[i].bytes, arguments[i].value),
            "clSetKernelArg"));
      }
    }
    size_t all[3], lanes[3];
    for (size_t axis = 0; axis < 3; ++axis) {
      lanes[axis] = grid.lanes[axis];
      all[axis] = size_t{grid.groups[axis]} * grid.lanes[axis];
    }
    return shared_->Check(
        api.clEnqueueNDRangeKernel(queue_, object, 3, nullptr, all, lanes, 0, nullptr, nullptr),
        "clEnqueueNDRangeKernel");
  }

 private:
  struct CommandList : DeviceGraph {
    std::vector<std::function<Status()>> commands;
  };

  Status CheckNotRecording() const {
    return recording_ == nullptr ? Status::Ok() : FailedPrecondition("the stream is recording");
  }

  Status Copy(void* to, const void* from, size_t bytes, bool wait) {
    if (bytes == 0) return Status::Ok();
    return shared_->Check(shared_->api->clEnqueueSVMMemcpy(queue_, wait ? 1 : 0, to, from, bytes, 0,
                                                           nullptr, nullptr),
                          "clEnqueueSVMMemcpy");
  }

  // Arguments belong to the object, so each stream has its own.
  Result<opencl::Kernel> ObjectOf(const OpenClKernel& kernel) {
    opencl::Kernel& object = kernels_[&kernel];
    if (object == nullptr) {
      opencl::Int code = 0;
      object = shared_->api->clCreateKernel(kernel.program(), kernel.name().c_str(), &code);
      ONNXD_RETURN_IF_ERROR(shared_->Check(code, "clCreateKernel").WithContext(kernel.name()));
    }
    return object;
  }

  const std::shared_ptr<Shared> shared_;
  const opencl::CommandQueue queue_;
  const DeviceBuffer failure_;
  std::unordered_map<const OpenClKernel*, opencl::Kernel> kernels_;
  std::vector<std::unique_ptr<std::byte[]>> staged_;
  std::unique_ptr<CommandList> recording_;
};

std::string TextOf(const Api& api, opencl::DeviceId device, opencl::Uint what) {
  char text[512] = {};
  api.clGetDeviceInfo(device, what, sizeof(text) - 1, text, nullptr);
  return text;
}

class OpenClDevice : public GpuDevice {
 public:
  OpenClDevice(std::shared_ptr<Shared> shared, std::string name, GpuProperties properties,
               size_t memory_limit)
      : shared_(std::move(shared)), name_(std::move(name)), properties_(std::move(properties)) {
    allocator_ = std::make_shared<CachingAllocator>(
        CachingAllocator::Source{
            [shared = shared_](size_t bytes) {
              return shared->api->clSVMAlloc(shared->context, opencl::kMemReadWrite, bytes, 0);
            },
            [shared = shared_](void* block) { shared->api->clSVMFree(shared->context, block); }},
        memory_limit);
  }

  std::string_view name() const override { return name_; }
  Dialect dialect() const override { return Dialect::kOpenCl; }
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
    return statistics;
  }

  Result<DeviceBuffer> Allocate(size_t bytes) override {
    auto buffer = allocator_->Allocate(bytes);
    if (!buffer.ok()) return buffer.status().WithContext(name_);
    return buffer;
  }

  // OpenCL has no such memory apart from buffers that are mapped: copies are staged by the driver.
  Result<std::shared_ptr<void>> AllocatePinned(size_t bytes) override {
    const Buffer buffer = AllocateBuffer(bytes);
    if (buffer == nullptr) return ResourceExhausted(StrCat("no memory for ", bytes, " bytes"));
    return std::shared_ptr<void>(buffer, buffer.get());
  }

  Result<std::unique_ptr<Stream>> MakeStream() override {
    opencl::Int code = 0;
    const opencl::CommandQueue queue =
        shared_->api->clCreateCommandQueue(shared_->context, shared_->device, 0, &code);
    ONNXD_RETURN_IF_ERROR(shared_->Check(code, "clCreateCommandQueue"));
    ONNXD_ASSIGN_OR_RETURN(DeviceBuffer failure, Allocate(kFailureBytes));
    auto stream = std::make_unique<OpenClStream>(shared_, queue, failure);
    const uint32_t none[4] = {};
    ONNXD_RETURN_IF_ERROR(stream->CopyIn(failure.get(), none, sizeof(none)));
    return std::unique_ptr<Stream>(std::move(stream));
  }

 protected:
  class OpenClProgram : public Program {
   public:
    explicit OpenClProgram(opencl::Program program) : program_(program) {}
    Result<std::shared_ptr<const DeviceKernel>> FindKernel(const std::string& name) override {
      return std::shared_ptr<const DeviceKernel>(std::make_shared<OpenClKernel>(program_, name));
    }

   private:
    const opencl::Program program_;  // lives as long as the process
  };

  Result<std::unique_ptr<Program>> Compile(const std::string& text, std::string* binary) override {
    const char* source = text.c_str();
    opencl::Int code = 0;
    const opencl::Program program =
        shared_->api->clCreateProgramWithSource(shared_->context, 1, &source, nullptr, &code);
    ONNXD_RETURN_IF_ERROR(shared_->Check(code, "clCreateProgramWithSource"));
    ONNXD_ASSIGN_OR_RETURN(auto built, Build(program));
    if (binary != nullptr) *binary = BinaryOf(program);
    return built;
  }

  Result<std::unique_ptr<Program>> LoadBinary(const std::string& binary) override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(binary.data());
    const size_t size = binary.size();
    opencl::Int code = 0, own = 0;
    const opencl::Program program = shared_->api->clCreateProgramWithBinary(
        shared_->context, 1, &shared_->device, &size, &bytes, &own, &code);
    ONNXD_RETURN_IF_ERROR(shared_->Check(code, "clCreateProgramWithBinary"));
    return Build(program);
  }

  std::string CompilerIdentity() const override {
    return StrCat(properties_.description, "\n",
                  TextOf(*shared_->api, shared_->device, opencl::kDeviceVersion), "\n",
                  TextOf(*shared_->api, shared_->device, opencl::kDriverVersion));
  }

 private:
  Result<std::unique_ptr<Program>> Build(opencl::Program program) {
    const Api& api = *shared_->api;
    opencl::Int code = api.clBuildProgram(program, 1, &shared_->device, "-w", nullptr, nullptr);
    if (code != opencl::kSuccess) {
      std::string log(4096, '\0');
      size_t length = 0;
      api.clGetProgramBuildInfo(program, shared_->device, opencl::kProgramBuildLog, log.size(),
                                log.data(), &length);
      log.resize(std::min(length, log.size()));
      api.clReleaseProgram(program);
      return Internal(StrCat(name_, ": a kernel does not compile (code ", code, "): ", log));
    }
    return std::unique_ptr<Program>(std::make_unique<OpenClProgram>(program));
  }

  // Of its one device; empty where it has none.
  std::string BinaryOf(opencl::Program program) const {
    const Api& api = *shared_->api;
    size_t size = 0;
    if (api.clGetProgramInfo(program, opencl::kProgramBinarySizes, sizeof(size), &size, nullptr) !=
        opencl::kSuccess) {
      return {};
    }
    std::string binary(size, '\0');
    char* bytes = binary.data();
    const opencl::Int code =
        api.clGetProgramInfo(program, opencl::kProgramBinaries, sizeof(bytes), &bytes, nullptr);
    return code == opencl::kSuccess ? binary : std::string();
  }

  const std::shared_ptr<Shared> shared_;
  const std::string name_;
  const GpuProperties properties_;
  std::shared_ptr<CachingAllocator> allocator_;
};

template <typename T>
T InfoOf(const Api& api, opencl::DeviceId device, opencl::Uint what) {
  T value = {};
  api.clGetDeviceInfo(device, what, sizeof(value), &value, nullptr);
  return value;
}

// GPUs of all platforms, or all other devices where there is none.
std::vector<opencl::DeviceId> ListDevices(const Api& api) {
  opencl::PlatformId platforms[16];
  opencl::Uint count = 0;
  if (api.clGetPlatformIDs(16, platforms, &count) != opencl::kSuccess) return {};
  for (const opencl::Bitfield type : {opencl::kDeviceTypeGpu, opencl::kDeviceTypeAll}) {
    std::vector<opencl::DeviceId> devices;
    for (opencl::Uint i = 0; i < std::min<opencl::Uint>(count, 16); ++i) {
      opencl::DeviceId found[64];
      opencl::Uint devices_found = 0;
      if (api.clGetDeviceIDs(platforms[i], type, 64, found, &devices_found) != opencl::kSuccess) {
        continue;
      }
      devices.insert(devices.end(), found, found + std::min<opencl::Uint>(devices_found, 64));
    }
    if (!devices.empty()) return devices;
  }
  return {};
}

GpuProperties PropertiesOf(const Api& api, opencl::DeviceId device) {
  GpuProperties properties;
  properties.description = TextOf(api, device, opencl::kDeviceName);
  properties.memory_bytes =
      static_cast<int64_t>(InfoOf<uint64_t>(api, device, opencl::kDeviceGlobalMemSize));
  properties.multiprocessors =
      static_cast<int>(InfoOf<opencl::Uint>(api, device, opencl::kDeviceMaxComputeUnits));
  properties.local_bytes =
      static_cast<int64_t>(InfoOf<uint64_t>(api, device, opencl::kDeviceLocalMemSize));
  properties.room_bytes = properties.local_bytes;
  properties.computes_double =
      InfoOf<opencl::Bitfield>(api, device, opencl::kDeviceDoubleFpConfig) != 0;
  return properties;
}

Result<std::shared_ptr<GpuDevice>> MakeDevice(const OpenClOptions& options) {
  ONNXD_ASSIGN_OR_RETURN(const Api* api, opencl::OpenApi());
  const std::vector<opencl::DeviceId> devices = ListDevices(*api);
  if (options.device_id < 0 || static_cast<size_t>(options.device_id) >= devices.size()) {
    return Unavailable(
        StrCat("OpenCL: there is no device ", options.device_id, " of ", devices.size()));
  }
  const opencl::DeviceId device = devices[static_cast<size_t>(options.device_id)];
  GpuProperties properties = PropertiesOf(*api, device);
  properties.has_matrix_units = properties.use_tf32 = options.emulate_matrix_units;
  properties.has_warpgroup_units = options.emulate_warpgroup_units;
  const auto shared_memory = InfoOf<opencl::Bitfield>(*api, device, opencl::kDeviceSvmCapabilities);
  if ((shared_memory & opencl::kDeviceSvmCoarseGrainBuffer) == 0) {
    return Unavailable(StrCat("OpenCL: ", properties.description, " has no shared virtual memory"));
  }
  auto shared = std::make_shared<Shared>();
  shared->api = api;
  shared->device = device;
  opencl::Int code = 0;
  shared->context = api->clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code);
  ONNXD_RETURN_IF_ERROR(StatusOf(code, "clCreateContext"));
  return std::shared_ptr<GpuDevice>(
      std::make_shared<OpenClDevice>(std::move(shared), StrCat("opencl:", options.device_id),
                                     properties, static_cast<size_t>(options.memory_limit)));
}

}  // namespace

Result<std::shared_ptr<GpuDevice>> FindOpenClDevice(const OpenClOptions& options) {
  static std::mutex mutex;
  static auto* const devices = new std::map<OpenClOptions, std::shared_ptr<GpuDevice>>();
  std::lock_guard lock(mutex);
  std::shared_ptr<GpuDevice>& device = (*devices)[options];
  if (device == nullptr) {
    ONNXD_ASSIGN_OR_RETURN(device, MakeDevice(options));
    device->set_searches_tactics(options.searches_tactics);
  }
  return device;
}

}  // namespace onnxd
