// A driver of NVIDIA's interface without a GPU, for tests of what our side does with it: memory is
// the host's, work is done at once, and the one kernel it runs is `twice(x, y, count)`. A test may
// ask it to fail at a call.
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>

#include "runtime/device/cuda/cuda_driver.h"

namespace {

std::map<std::string, int> failures;  // by call; taken once
int allocations = 0, pinned = 0, streams = 0;

int Answer(const char* call) {
  const auto found = failures.find(call);
  if (found == failures.end()) return 0;
  const int code = found->second;
  failures.erase(found);
  return code;
}

struct Function {
  std::string name;
};

}  // namespace

// Whatever is not said otherwise succeeds and does nothing.
#define ANSWER(name, parameters) extern "C" int name parameters

extern "C" void fake_cuda_fail(const char* call, int code) { failures[call] = code; }
extern "C" int fake_cuda_allocations() { return allocations; }
extern "C" int fake_cuda_pinned() { return pinned; }
extern "C" int fake_cuda_streams() { return streams; }

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
  *value = what == 75 ? 9 : what == 76 ? 0 : what == 16 ? 132 : 49152;
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
  *address = reinterpret_cast<unsigned long long>(std::malloc(bytes));
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
ANSWER(cuStreamSynchronize, (::CUstream_st*)) { return Answer("cuStreamSynchronize"); }
ANSWER(cuStreamWaitEvent, (::CUstream_st*, ::CUevent_st*, unsigned)) { return 0; }
ANSWER(cuStreamBeginCapture_v2, (::CUstream_st*, int)) { return 0; }
ANSWER(cuStreamEndCapture, (::CUstream_st*, ::CUgraph_st**)) { return 0; }
ANSWER(cuGraphInstantiateWithFlags, (::CUgraphExec_st**, ::CUgraph_st*, unsigned long long)) {
  return 0;
}
ANSWER(cuGraphLaunch, (::CUgraphExec_st*, ::CUstream_st*)) { return 0; }
ANSWER(cuGraphExecDestroy, (::CUgraphExec_st*)) { return 0; }
ANSWER(cuGraphDestroy, (::CUgraph_st*)) { return 0; }
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
  static Function made;
  made.name = name;
  *function = reinterpret_cast<::CUfunc_st*>(&made);
  return made.name == "missing" ? 500 : 0;
}
ANSWER(cuLaunchKernel, (::CUfunc_st * function, unsigned groups, unsigned, unsigned, unsigned lanes,
                        unsigned, unsigned, unsigned, ::CUstream_st*, void** arguments, void**)) {
  if (const int code = Answer("cuLaunchKernel")) return code;
  if (reinterpret_cast<Function*>(function)->name != "twice") return 1;
  const float* x = *static_cast<float**>(arguments[0]);
  float* y = *static_cast<float**>(arguments[1]);
  const long long count = *static_cast<long long*>(arguments[2]);
  for (long long i = 0; i < count && i < static_cast<long long>(groups) * lanes; ++i) {
    y[i] = x[i] + x[i];
  }
  return 0;
}
ANSWER(cuGetErrorName, (int code, const char** name)) {
  *name = code == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
          : code == 2 ? "CUDA_ERROR_OUT_OF_MEMORY"
                      : nullptr;
  return 0;
}
