// A driver of NVIDIA's interface without a GPU, for tests of what our side does with it: memory is
// the host's, work is done at once, and the one kernel it runs is `twice(x, y, count)`. A test may
// ask it to fail at a call. With FAKE_CUDA_LOST=FILE other kernels do nothing, and the device is
// lost once FILE is there. It is NVML as well.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/device/cuda/cuda_driver.h"
#include "runtime/device/cuda/nvml.h"

namespace {

std::map<std::string, int> failures;  // by call; taken once
std::atomic<int> allocations = 0, pinned = 0, streams = 0;
std::mutex mutex;

int Answer(const char* call) {
  std::lock_guard lock(mutex);
  const auto found = failures.find(call);
  if (found == failures.end()) return 0;
  const int code = found->second;
  failures.erase(found);
  return code;
}

const char* LostFile() {
  static const char* const file = std::getenv("FAKE_CUDA_LOST");
  return file;
}

struct Function {
  std::string name;
  unsigned room_bytes = 49152;  // of local memory that a launch may ask for
};

// Kernels of a stream between the beginning and the end of a capture; of any of the thread here.
using Captured = std::vector<std::function<void()>>;
thread_local Captured* capturing = nullptr;
std::atomic<int> graphs = 0;

}  // namespace

// Whatever is not said otherwise succeeds and does nothing.
#define ANSWER(name, parameters) extern "C" int name parameters

extern "C" void fake_cuda_fail(const char* call, int code) { failures[call] = code; }
extern "C" int fake_cuda_allocations() { return allocations; }
extern "C" int fake_cuda_pinned() { return pinned; }
extern "C" int fake_cuda_streams() { return streams; }
extern "C" int fake_cuda_graphs() { return graphs; }

ANSWER(cuInit, (unsigned)) { return Answer("cuInit"); }
ANSWER(cuDriverGetVersion, (int* version)) {
  *version = 13000;
  return 0;
}
ANSWER(cuDeviceGetCount, (int* count)) {
  *count = 1;
  return Answer("cuDeviceGetCount");
}
ANSWER(cuDeviceGet, (int* device, int ordinal)) {
  *device = ordinal;
  return 0;
}
ANSWER(cuDeviceGetName, (char* name, int bytes, int)) {
  std::strncpy(name, "fake", static_cast<size_t>(bytes));
  return 0;
}
ANSWER(cuDeviceTotalMem_v2, (size_t * bytes, int)) {
  *bytes = size_t{1} << 30;
  return 0;
}
ANSWER(cuDeviceGetAttribute, (int* value, int what, int)) {
  *value = what == 75 ? 9 : what == 76 ? 0 : what == 16 ? 132 : what == 97 ? 232448 : 49152;
  return 0;
}
ANSWER(cuDeviceGetPCIBusId, (char* text, int bytes, int)) {
  std::strncpy(text, "0000:01:00.0", static_cast<size_t>(bytes));
  return 0;
}
ANSWER(cuDevicePrimaryCtxRetain, (::CUctx_st * *context, int)) {
  static char made;
  *context = reinterpret_cast<::CUctx_st*>(&made);
  return 0;
}
ANSWER(cuCtxSetCurrent, (::CUctx_st*)) { return 0; }
ANSWER(cuCtxGetStreamPriorityRange, (int* least, int* greatest)) {
  *least = 0;
  *greatest = -5;
  return 0;
}
ANSWER(cuMemGetInfo_v2, (size_t * free, size_t* total)) {
  *free = *total = size_t{1} << 30;
  return 0;
}
ANSWER(cuMemAlloc_v2, (unsigned long long* address, size_t bytes)) {
  if (const int code = Answer("cuMemAlloc")) return code;
  ++allocations;
  *address =
      reinterpret_cast<unsigned long long>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  return 0;
}
ANSWER(cuMemFree_v2, (unsigned long long address)) {
  --allocations;
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
ANSWER(cuMemAllocHost_v2, (void** block, size_t bytes)) {
  if (const int code = Answer("cuMemAllocHost")) return code;
  ++pinned;
  *block = std::malloc(bytes);
  return 0;
}
ANSWER(cuMemFreeHost, (void* block)) {
  --pinned;
  std::free(block);
  return 0;
}
ANSWER(cuMemcpyHtoDAsync_v2,
       (unsigned long long to, const void* from, size_t bytes, ::CUstream_st*)) {
  if (const int code = Answer("cuMemcpyHtoDAsync")) return code;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
ANSWER(cuMemcpyDtoHAsync_v2, (void* to, unsigned long long from, size_t bytes, ::CUstream_st*)) {
  std::memcpy(to, reinterpret_cast<void*>(from), bytes);
  return 0;
}
ANSWER(cuMemcpyDtoDAsync_v2,
       (unsigned long long to, unsigned long long from, size_t bytes, ::CUstream_st*)) {
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes);
  return 0;
}
ANSWER(cuMemcpy2DAsync_v2, (const ::CUDA_MEMCPY2D_st* described, ::CUstream_st*)) {
  if (const int code = Answer("cuMemcpy2DAsync")) return code;
  const auto& copy = *reinterpret_cast<const onnxd::cuda::RowsCopy*>(described);
  for (size_t row = 0; row < copy.rows; ++row) {
    std::memmove(reinterpret_cast<void*>(copy.to.address + row * copy.to.pitch),
                 reinterpret_cast<void*>(copy.from.address + row * copy.from.pitch), copy.bytes);
  }
  return 0;
}
ANSWER(cuMemsetD8Async, (unsigned long long to, unsigned char byte, size_t bytes, ::CUstream_st*)) {
  std::memset(reinterpret_cast<void*>(to), byte, bytes);
  return 0;
}
ANSWER(cuStreamCreateWithPriority, (::CUstream_st * *stream, unsigned, int)) {
  ++streams;
  *stream = reinterpret_cast<::CUstream_st*>(new char);
  return 0;
}
ANSWER(cuStreamDestroy_v2, (::CUstream_st * stream)) {
  --streams;
  delete reinterpret_cast<char*>(stream);
  return 0;
}
ANSWER(cuStreamSynchronize, (::CUstream_st*)) {
  if (LostFile() != nullptr && access(LostFile(), F_OK) == 0) return 719;
  return Answer("cuStreamSynchronize");
}
ANSWER(cuStreamWaitEvent, (::CUstream_st*, ::CUevent_st*, unsigned)) { return 0; }
ANSWER(cuStreamBeginCapture_v2, (::CUstream_st*, int)) {
  capturing = new Captured;
  return Answer("cuStreamBeginCapture");
}
ANSWER(cuStreamEndCapture, (::CUstream_st*, ::CUgraph_st** graph)) {
  *graph = reinterpret_cast<::CUgraph_st*>(capturing);
  ++graphs;
  capturing = nullptr;
  return 0;
}
ANSWER(cuGraphInstantiateWithFlags,
       (::CUgraphExec_st * *made, ::CUgraph_st* graph, unsigned long long)) {
  if (const int code = Answer("cuGraphInstantiate")) return code;
  *made = reinterpret_cast<::CUgraphExec_st*>(new Captured(*reinterpret_cast<Captured*>(graph)));
  ++graphs;
  return 0;
}
ANSWER(cuGraphLaunch, (::CUgraphExec_st * graph, ::CUstream_st*)) {
  for (const auto& kernel : *reinterpret_cast<Captured*>(graph)) kernel();
  return Answer("cuGraphLaunch");
}
ANSWER(cuGraphExecDestroy, (::CUgraphExec_st * graph)) {
  delete reinterpret_cast<Captured*>(graph);
  --graphs;
  return 0;
}
ANSWER(cuGraphDestroy, (::CUgraph_st * graph)) {
  delete reinterpret_cast<Captured*>(graph);
  --graphs;
  return 0;
}
ANSWER(cuEventCreate, (::CUevent_st**, unsigned)) { return 0; }
ANSWER(cuEventRecord, (::CUevent_st*, ::CUstream_st*)) { return 0; }
ANSWER(cuEventDestroy_v2, (::CUevent_st*)) { return 0; }
ANSWER(cuModuleLoadData, (::CUmod_st * *module, const void* image)) {
  if (std::memcmp(image,
                  "\x7f"
                  "ELF",
                  4) != 0)
    return 200;
  static char made;
  *module = reinterpret_cast<::CUmod_st*>(&made);
  return Answer("cuModuleLoadData");
}
ANSWER(cuModuleUnload, (::CUmod_st*)) { return 0; }
ANSWER(cuModuleGetFunction, (::CUfunc_st * *function, ::CUmod_st*, const char* name)) {
  static auto* const made = new std::map<std::string, Function>();
  std::lock_guard lock(mutex);
  Function& found = (*made)[name];
  found.name = name;
  *function = reinterpret_cast<::CUfunc_st*>(&found);
  return found.name == "missing" ? 500 : 0;
}
ANSWER(cuFuncSetAttribute, (::CUfunc_st * function, int what, int value)) {
  if (what != 8 || value > 232448) return 1;
  reinterpret_cast<Function*>(function)->room_bytes = static_cast<unsigned>(value);
  return Answer("cuFuncSetAttribute");
}
ANSWER(cuTensorMapEncodeTiled,
       (::CUtensorMap_st * map, int, uint32_t, void* base, const uint64_t* extents,
        const uint64_t* row_bytes, const uint32_t*, const uint32_t*, int, int, int, int)) {
  if (reinterpret_cast<uintptr_t>(base) % 16 != 0 || row_bytes[0] % 16 != 0) return 1;
  std::memcpy(map, extents, 2 * sizeof(uint64_t));
  return Answer("cuTensorMapEncodeTiled");
}
ANSWER(cuLaunchKernel,
       (::CUfunc_st * function, unsigned groups, unsigned, unsigned, unsigned lanes, unsigned,
        unsigned, unsigned room_bytes, ::CUstream_st*, void** arguments, void**)) {
  if (const int code = Answer("cuLaunchKernel")) return code;
  if (room_bytes > reinterpret_cast<Function*>(function)->room_bytes) return 1;
  if (reinterpret_cast<Function*>(function)->name != "twice") return LostFile() ? 0 : 1;
  const float* x = *static_cast<float**>(arguments[0]);
  float* y = *static_cast<float**>(arguments[1]);
  const long long count = *static_cast<long long*>(arguments[2]);
  const auto twice = [=] {
    for (long long i = 0; i < count && i < static_cast<long long>(groups) * lanes; ++i) {
      y[i] = x[i] + x[i];
    }
  };
  if (capturing != nullptr) {
    capturing->push_back(twice);
  } else {
    twice();
  }
  return 0;
}
ANSWER(cuGetErrorName, (int code, const char** name)) {
  *name = code == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
                      : nullptr;
  return 0;
}

// NVRTC asks the driver for what nobody documents, and goes without.
ANSWER(cuGetExportTable, (const void** table, const void*)) {
  *table = nullptr;
  return 801;
}

ANSWER(nvmlInit_v2, ()) { return 0; }
ANSWER(nvmlDeviceGetHandleByPciBusId_v2, (const char* bus_id, ::nvmlDevice_st** device)) {
  static char made;
  *device = reinterpret_cast<::nvmlDevice_st*>(&made);
  return std::strcmp(bus_id, "0000:01:00.0") == 0 ? 0 : 6;
}
ANSWER(nvmlDeviceGetUtilizationRates,
       (::nvmlDevice_st*, onnxd::cuda::NvmlUtilization* utilization)) {
  *utilization = {75, 20};
  return 0;
}
ANSWER(nvmlDeviceGetMemoryInfo, (::nvmlDevice_st*, onnxd::cuda::NvmlMemory* memory)) {
  *memory = {1000, 400, 600};
  return 0;
}
ANSWER(nvmlDeviceGetPowerUsage, (::nvmlDevice_st*, unsigned* milliwatts)) {
  *milliwatts = 123500;
  return Answer("nvmlDeviceGetPowerUsage");
}
