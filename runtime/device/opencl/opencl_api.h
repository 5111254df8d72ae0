// The part of OpenCL that devices need, declared here and opened at run time, so that the program
// neither builds nor starts with a library of it. Khronos, "The OpenCL Specification", version 3.0;
// a test compares the declarations with its headers where they are installed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "runtime/base/status.h"

// Khronos' names for its objects, which are behind pointers.
struct _cl_platform_id;
struct _cl_device_id;
struct _cl_context;
struct _cl_command_queue;
struct _cl_program;
struct _cl_kernel;
struct _cl_event;

namespace onnxd::opencl {

using PlatformId = ::_cl_platform_id*;
using DeviceId = ::_cl_device_id*;
using Context = ::_cl_context*;
using CommandQueue = ::_cl_command_queue*;
using Program = ::_cl_program*;
using Kernel = ::_cl_kernel*;
using Event = ::_cl_event*;
using Int = int32_t;
using Uint = uint32_t;
using Bitfield = uint64_t;

inline constexpr Int kSuccess = 0;
inline constexpr Int kDeviceNotAvailable = -2;
inline constexpr Int kMemObjectAllocationFailure = -4;
inline constexpr Int kOutOfResources = -5;
inline constexpr Int kOutOfHostMemory = -6;
inline constexpr Bitfield kDeviceTypeGpu = 1 << 2;
inline constexpr Bitfield kDeviceTypeAll = 0xFFFFFFFF;
inline constexpr Uint kDeviceMaxComputeUnits = 0x1002;
inline constexpr Uint kDeviceType = 0x1000;
inline constexpr Uint kDeviceGlobalMemSize = 0x101F;
inline constexpr Uint kDeviceLocalMemSize = 0x1023;
inline constexpr Uint kDeviceName = 0x102B;
inline constexpr Uint kDriverVersion = 0x102D;
inline constexpr Uint kDeviceVersion = 0x102F;
inline constexpr Uint kDeviceDoubleFpConfig = 0x1032;
inline constexpr Uint kDeviceSvmCapabilities = 0x1053;
inline constexpr Bitfield kDeviceSvmCoarseGrainBuffer = 1 << 0;
inline constexpr Bitfield kMemReadWrite = 1 << 0;
inline constexpr Uint kProgramBinarySizes = 0x1165;
inline constexpr Uint kProgramBinaries = 0x1166;
inline constexpr Uint kProgramBuildLog = 0x1183;

// FUNCTION(result, name, parameters)
#define ONNXD_OPENCL_FUNCTIONS(FUNCTION)                                                           \
  FUNCTION(Int, clGetPlatformIDs, (Uint, PlatformId*, Uint*))                                      \
  FUNCTION(Int, clGetDeviceIDs, (PlatformId, Bitfield, Uint, DeviceId*, Uint*))                    \
  FUNCTION(Int, clGetDeviceInfo, (DeviceId, Uint, size_t, void*, size_t*))                         \
  FUNCTION(Context, clCreateContext,                                                               \
           (const intptr_t*, Uint, const DeviceId*,                                                \
            void (*)(const char*, const void*, size_t, void*), void*, Int*))                       \
  FUNCTION(CommandQueue, clCreateCommandQueue, (Context, DeviceId, Bitfield, Int*))                \
  FUNCTION(Int, clReleaseCommandQueue, (CommandQueue))                                             \
  FUNCTION(Int, clFinish, (CommandQueue))                                                          \
  FUNCTION(Int, clFlush, (CommandQueue))                                                           \
  FUNCTION(void*, clSVMAlloc, (Context, Bitfield, size_t, Uint))                                   \
  FUNCTION(void, clSVMFree, (Context, void*))                                                      \
  FUNCTION(Int, clEnqueueSVMMemcpy,                                                                \
           (CommandQueue, Uint, void*, const void*, size_t, Uint, const Event*, Event*))           \
  FUNCTION(Int, clEnqueueSVMMemFill,                                                               \
           (CommandQueue, void*, const void*, size_t, size_t, Uint, const Event*, Event*))         \
  FUNCTION(Program, clCreateProgramWithSource, (Context, Uint, const char**, const size_t*, Int*)) \
  FUNCTION(Program, clCreateProgramWithBinary,                                                     \
           (Context, Uint, const DeviceId*, const size_t*, const unsigned char**, Int*, Int*))     \
  FUNCTION(Int, clGetProgramInfo, (Program, Uint, size_t, void*, size_t*))                         \
  FUNCTION(Int, clBuildProgram,                                                                    \
           (Program, Uint, const DeviceId*, const char*, void (*)(Program, void*), void*))         \
  FUNCTION(Int, clGetProgramBuildInfo, (Program, DeviceId, Uint, size_t, void*, size_t*))          \
  FUNCTION(Int, clReleaseProgram, (Program))                                                       \
  FUNCTION(Kernel, clCreateKernel, (Program, const char*, Int*))                                   \
  FUNCTION(Int, clReleaseKernel, (Kernel))                                                         \
  FUNCTION(Int, clSetKernelArg, (Kernel, Uint, size_t, const void*))                               \
  FUNCTION(Int, clSetKernelArgSVMPointer, (Kernel, Uint, const void*))                             \
  FUNCTION(Int, clEnqueueNDRangeKernel,                                                            \
           (CommandQueue, Kernel, Uint, const size_t*, const size_t*, const size_t*, Uint,         \
            const Event*, Event*))

struct Api {
#define ONNXD_OPENCL_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  ONNXD_OPENCL_FUNCTIONS(ONNXD_OPENCL_MEMBER)
#undef ONNXD_OPENCL_MEMBER
};

// The library, opened on the first call and kept. kUnavailable says what is missing. Any thread.
Result<const Api*> OpenApi();

// The failure of a call as a Status; kUnavailable for a device that is gone.
Status StatusOf(Int code, const char* call);

}  // namespace onnxd::opencl
