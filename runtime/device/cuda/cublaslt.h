// The part of cuBLASLt that products need, declared here and opened at run time where it is there.
// NVIDIA, "cuBLAS library", cublasLt API (12 and 13); a test compares the declarations with its
// header where the toolkit is.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/device/device_library.h"

struct CUstream_st;

namespace onnxd::cuda {

// NVIDIA's opaque objects.
using CublasLtHandle = void*;
using MatmulDescription = void*;
using MatrixLayout = void*;
using MatmulPreference = void*;

struct MatmulAlgorithm {
  std::array<uint64_t, 8> data;
};
struct MatmulHeuristicResult {
  MatmulAlgorithm algorithm;
  size_t workspace_bytes;
  int state;  // 0: the others hold
  float waves_count;
  int reserved[4];
};

inline constexpr int kComputeFloat = 68, kComputeFloatByTf32 = 77;
inline constexpr int kCudaFloat = 0, kCudaFloat16 = 2, kCudaBfloat16 = 14;
inline constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7,
                     kBiasPointer = 8;                          // of a MatmulDescription
inline constexpr int kReluEpilogue = 2, kBiasEpilogue = 4;      // 6 for both
inline constexpr int kBatchCount = 5, kStridedBatchOffset = 6;  // of a MatrixLayout
inline constexpr int kMaxWorkspaceBytes = 1, kMinAlignmentA = 5, kMinAlignmentB = 6,
                     kMinAlignmentC = 7, kMinAlignmentD = 8;  // of a MatmulPreference

// FUNCTION(name, parameters); all answer a code, 0 for success. Enumerations are ints here.
#define ONNXD_CUBLASLT_FUNCTIONS(FUNCTION)                                                     \
  FUNCTION(cublasLtCreate, (CublasLtHandle*))                                                  \
  FUNCTION(cublasLtDestroy, (CublasLtHandle))                                                  \
  FUNCTION(cublasLtMatmulDescCreate, (MatmulDescription*, int, int))                           \
  FUNCTION(cublasLtMatmulDescSetAttribute, (MatmulDescription, int, const void*, size_t))      \
  FUNCTION(cublasLtMatmulDescDestroy, (MatmulDescription))                                     \
  FUNCTION(cublasLtMatrixLayoutCreate, (MatrixLayout*, int, uint64_t, uint64_t, int64_t))      \
  FUNCTION(cublasLtMatrixLayoutSetAttribute, (MatrixLayout, int, const void*, size_t))         \
  FUNCTION(cublasLtMatrixLayoutDestroy, (MatrixLayout))                                        \
  FUNCTION(cublasLtMatmulPreferenceCreate, (MatmulPreference*))                                \
  FUNCTION(cublasLtMatmulPreferenceSetAttribute, (MatmulPreference, int, const void*, size_t)) \
  FUNCTION(cublasLtMatmulPreferenceDestroy, (MatmulPreference))                                \
  FUNCTION(cublasLtMatmulAlgoGetHeuristic,                                                     \
           (CublasLtHandle, MatmulDescription, MatrixLayout, MatrixLayout, MatrixLayout,       \
            MatrixLayout, MatmulPreference, int, MatmulHeuristicResult*, int*))                \
  FUNCTION(cublasLtMatmul,                                                                     \
           (CublasLtHandle, MatmulDescription, const void*, const void*, MatrixLayout,         \
            const void*, MatrixLayout, const void*, const void*, MatrixLayout, void*,          \
            MatrixLayout, const MatmulAlgorithm*, void*, size_t, ::CUstream_st*))

struct CublasLtApi {
#define ONNXD_CUBLASLT_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ONNXD_CUBLASLT_FUNCTIONS(ONNXD_CUBLASLT_MEMBER)
#undef ONNXD_CUBLASLT_MEMBER
  size_t (*cublasLtGetVersion)() = nullptr;
};

// The functions of the library at `path`. kUnavailable says what is missing.
Result<CublasLtApi> LoadCublasLt(const std::string& path);

// That of this machine, opened on the first call and kept. Any thread.
Result<const CublasLtApi*> OpenCublasLt();

struct CublasLtOptions {
  bool use_tf32 = false;
  size_t max_workspace_bytes = 0;
};

// `api` must outlive it. `enter` makes the device's context current on the calling thread;
// `stream_of` gives the driver's stream.
std::shared_ptr<DeviceLibrary> MakeCublasLtLibrary(
    const CublasLtApi& api, const CublasLtOptions& options, std::function<void()> enter,
    std::function<::CUstream_st*(GpuStream&)> stream_of);

}  // namespace onnxd::cuda
