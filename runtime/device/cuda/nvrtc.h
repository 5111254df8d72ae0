// NVIDIA's run-time compiler, declared here and opened at run time. NVIDIA, "NVRTC" (CUDA 12 and
// 13); a test compares the declarations with its header where the toolkit is.
#pragma once

#include <cstddef>
#include <string>

#include "runtime/base/status.h"

struct _nvrtcProgram;

namespace onnxd::cuda {

// FUNCTION(name, parameters); all answer a code, 0 for success.
#define ONNXD_NVRTC_FUNCTIONS(FUNCTION)                                           \
  FUNCTION(nvrtcVersion, (int*, int*))                                            \
  FUNCTION(nvrtcCreateProgram, (::_nvrtcProgram**, const char*, const char*, int, \
                                const char* const*, const char* const*))          \
  FUNCTION(nvrtcDestroyProgram, (::_nvrtcProgram**))                              \
  FUNCTION(nvrtcCompileProgram, (::_nvrtcProgram*, int, const char* const*))      \
  FUNCTION(nvrtcGetCUBINSize, (::_nvrtcProgram*, size_t*))                        \
  FUNCTION(nvrtcGetCUBIN, (::_nvrtcProgram*, char*))                              \
  FUNCTION(nvrtcGetProgramLogSize, (::_nvrtcProgram*, size_t*))                   \
  FUNCTION(nvrtcGetProgramLog, (::_nvrtcProgram*, char*))

struct NvrtcApi {
#define ONNXD_NVRTC_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ONNXD_NVRTC_FUNCTIONS(ONNXD_NVRTC_MEMBER)
#undef ONNXD_NVRTC_MEMBER
};

// The library, opened on the first call and kept. kUnavailable says what is missing. Any thread.
Result<const NvrtcApi*> OpenNvrtc();

// Machine code of `source` (CUDA C++) for a compute capability, 90 for 9.0. kInternal with what the
// compiler said. Needs no GPU. Any thread.
Result<std::string> CompileToCubin(const NvrtcApi& nvrtc, const std::string& source,
                                   int compute_capability);

}  // namespace onnxd::cuda
