// The part of NVIDIA's driver that devices need, declared here and opened at run time, so that the
// program neither builds nor starts with a library of it. NVIDIA, "CUDA Driver API" (12 and 13); a
// test compares the declarations with its header where the toolkit is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/status.h"

// NVIDIA's names for its objects, which are behind pointers.
struct CUctx_st;
struct CUstream_st;
struct CUmod_st;
struct CUfunc_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUtensorMap_st;
struct CUDA_MEMCPY2D_st;

namespace onnxd::cuda {

using DevicePointer = unsigned long long;
using DeviceOrdinal = int;

inline constexpr int kSuccess = 0;
inline constexpr int kInvalidValue = 1;
inline constexpr int kOutOfMemory = 2;
inline constexpr int kNoDevice = 100;
inline constexpr int kAttributeMultiprocessors = 16;
inline constexpr int kAttributeLocalBytes = 8;
inline constexpr int kAttributeRoomBytes = 97;
inline constexpr int kFunctionRoomBytes = 8;
inline constexpr int kAttributeMajor = 75;
inline constexpr int kAttributeMinor = 76;
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kTileOf16Bits = 1;
inline constexpr int kTileSwizzle128 = 3;
inline constexpr int kTilePromotion256 = 3;

// What is behind a CUDA_MEMCPY2D_st.
struct MemoryOfRows {
  size_t x = 0, y = 0;
  int kind = 0;
  const void* on_host = nullptr;
  DevicePointer address = 0;
  void* array = nullptr;
  size_t pitch = 0;
};
struct RowsCopy {
  MemoryOfRows from, to;
  size_t bytes = 0, rows = 0;
};
inline constexpr int kMemoryOfDevice = 2;

// FUNCTION(name, parameters); all answer a code, 0 for success. Enumerations are ints here.
#define ONNXD_CUDA_FUNCTIONS(FUNCTION)                                                           \
  FUNCTION(cuInit, (unsigned))                                                                   \
  FUNCTION(cuDriverGetVersion, (int*))                                                           \
  FUNCTION(cuDeviceGetCount, (int*))                                                             \
  FUNCTION(cuDeviceGet, (DeviceOrdinal*, int))                                                   \
  FUNCTION(cuDeviceGetName, (char*, int, DeviceOrdinal))                                         \
  FUNCTION(cuDeviceTotalMem_v2, (size_t*, DeviceOrdinal))                                        \
  FUNCTION(cuDeviceGetAttribute, (int*, int, DeviceOrdinal))                                     \
  FUNCTION(cuDeviceGetPCIBusId, (char*, int, DeviceOrdinal))                                     \
  FUNCTION(cuDevicePrimaryCtxRetain, (::CUctx_st**, DeviceOrdinal))                              \
  FUNCTION(cuCtxSetCurrent, (::CUctx_st*))                                                       \
  FUNCTION(cuCtxGetStreamPriorityRange, (int*, int*))                                            \
  FUNCTION(cuMemGetInfo_v2, (size_t*, size_t*))                                                  \
  FUNCTION(cuMemAlloc_v2, (DevicePointer*, size_t))                                              \
  FUNCTION(cuMemFree_v2, (DevicePointer))                                                        \
  FUNCTION(cuMemAllocHost_v2, (void**, size_t))                                                  \
  FUNCTION(cuMemFreeHost, (void*))                                                               \
  FUNCTION(cuMemcpyHtoDAsync_v2, (DevicePointer, const void*, size_t, ::CUstream_st*))           \
  FUNCTION(cuMemcpyDtoHAsync_v2, (void*, DevicePointer, size_t, ::CUstream_st*))                 \
  FUNCTION(cuMemcpyDtoDAsync_v2, (DevicePointer, DevicePointer, size_t, ::CUstream_st*))         \
  FUNCTION(cuMemcpy2DAsync_v2, (const ::CUDA_MEMCPY2D_st*, ::CUstream_st*))                      \
  FUNCTION(cuMemsetD8Async, (DevicePointer, unsigned char, size_t, ::CUstream_st*))              \
  FUNCTION(cuStreamCreateWithPriority, (::CUstream_st**, unsigned, int))                         \
  FUNCTION(cuStreamDestroy_v2, (::CUstream_st*))                                                 \
  FUNCTION(cuStreamSynchronize, (::CUstream_st*))                                                \
  FUNCTION(cuStreamWaitEvent, (::CUstream_st*, ::CUevent_st*, unsigned))                         \
  FUNCTION(cuStreamBeginCapture_v2, (::CUstream_st*, int))                                       \
  FUNCTION(cuStreamEndCapture, (::CUstream_st*, ::CUgraph_st**))                                 \
  FUNCTION(cuGraphInstantiateWithFlags, (::CUgraphExec_st**, ::CUgraph_st*, unsigned long long)) \
  FUNCTION(cuGraphLaunch, (::CUgraphExec_st*, ::CUstream_st*))                                   \
  FUNCTION(cuGraphExecDestroy, (::CUgraphExec_st*))                                              \
  FUNCTION(cuGraphDestroy, (::CUgraph_st*))                                                      \
  FUNCTION(cuEventCreate, (::CUevent_st**, unsigned))                                            \
  FUNCTION(cuEventRecord, (::CUevent_st*, ::CUstream_st*))                                       \
  FUNCTION(cuEventDestroy_v2, (::CUevent_st*))                                                   \
  FUNCTION(cuModuleLoadData, (::CUmod_st**, const void*))                                        \
  FUNCTION(cuModuleUnload, (::CUmod_st*))                                                        \
  FUNCTION(cuModuleGetFunction, (::CUfunc_st**, ::CUmod_st*, const char*))                       \
  FUNCTION(cuFuncSetAttribute, (::CUfunc_st*, int, int))                                         \
  FUNCTION(cuLaunchKernel, (::CUfunc_st*, unsigned, unsigned, unsigned, unsigned, unsigned,      \
                            unsigned, unsigned, ::CUstream_st*, void**, void**))                 \
  FUNCTION(cuTensorMapEncodeTiled,                                                               \
           (::CUtensorMap_st*, int, uint32_t, void*, const uint64_t*, const uint64_t*,           \
            const uint32_t*, const uint32_t*, int, int, int, int))                               \
  FUNCTION(cuGetErrorName, (int, const char**))

struct DriverApi {
#define ONNXD_CUDA_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ONNXD_CUDA_FUNCTIONS(ONNXD_CUDA_MEMBER)
#undef ONNXD_CUDA_MEMBER
};

// The functions of the driver's library at `path`, initialised. kUnavailable says what is missing:
// a machine without a driver, or with one that finds no GPU.
Result<DriverApi> LoadDriver(const std::string& path);

// The driver of this machine, opened on the first call and kept. Any thread.
Result<const DriverApi*> OpenDriver();

// Whether nothing works on the device after this failure, until its context is made anew.
bool IsFatal(int code);

// The failure of a call as a Status: kUnavailable where the device is lost, kResourceExhausted
// without memory.
Status StatusOf(const DriverApi& driver, int code, const char* call);

}  // namespace onnxd::cuda
