// The part of cuDNN that convolutions need, declared here and opened at run time where it is there.
// NVIDIA, "cuDNN API reference", cudnn_ops and cudnn_cnn (8 and 9); a test compares the
// declarations with its header where that is.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/status.h"
#include "runtime/device/device_library.h"

struct CUstream_st;

namespace onnxd::cuda {

// NVIDIA's opaque objects.
using CudnnHandle = void*;
using TensorDescription = void*;
using FilterDescription = void*;
using ConvolutionDescription = void*;
using ActivationDescription = void*;

// What is known of one way; the same for both directions.
struct ConvolutionWay {
  int algorithm;
  int status;  // 0: the others hold
  float milliseconds;
  size_t workspace_bytes;
  int determinism;
  int math;
  int reserved[3];
};

inline constexpr int kCudnnFloat = 0, kCudnnHalf = 2, kCudnnBfloat16 = 9;
inline constexpr int kChannelsFirst = 0, kChannelsLast = 1;
inline constexpr int kReluActivation = 1, kNoActivation = 5;
inline constexpr int kImplicitPrecomputed = 1;  // of ConvolutionWay::algorithm
inline constexpr int kCrossCorrelation = 1;
inline constexpr int kDeterministic = 1;
// Of floats: what the library likes, TF32 included; only multiply-adds of floats.
inline constexpr int kDefaultMath = 0, kTensorMath = 1, kMultiplyAddMath = 3;

// FUNCTION(name, parameters); all answer a code, 0 for success. Enumerations are ints here.
#define ONNXD_CUDNN_FUNCTIONS(FUNCTION)                                                           \
  FUNCTION(cudnnCreate, (CudnnHandle*))                                                           \
  FUNCTION(cudnnDestroy, (CudnnHandle))                                                           \
  FUNCTION(cudnnSetStream, (CudnnHandle, ::CUstream_st*))                                         \
  FUNCTION(cudnnCreateTensorDescriptor, (TensorDescription*))                                     \
  FUNCTION(cudnnSetTensorNdDescriptor, (TensorDescription, int, int, const int*, const int*))     \
  FUNCTION(cudnnDestroyTensorDescriptor, (TensorDescription))                                     \
  FUNCTION(cudnnCreateFilterDescriptor, (FilterDescription*))                                     \
  FUNCTION(cudnnSetFilterNdDescriptor, (FilterDescription, int, int, int, const int*))            \
  FUNCTION(cudnnDestroyFilterDescriptor, (FilterDescription))                                     \
  FUNCTION(cudnnCreateConvolutionDescriptor, (ConvolutionDescription*))                           \
  FUNCTION(cudnnSetConvolutionNdDescriptor,                                                       \
           (ConvolutionDescription, int, const int*, const int*, const int*, int, int))           \
  FUNCTION(cudnnSetConvolutionGroupCount, (ConvolutionDescription, int))                          \
  FUNCTION(cudnnSetConvolutionMathType, (ConvolutionDescription, int))                            \
  FUNCTION(cudnnDestroyConvolutionDescriptor, (ConvolutionDescription))                           \
  FUNCTION(cudnnCreateActivationDescriptor, (ActivationDescription*))                             \
  FUNCTION(cudnnSetActivationDescriptor, (ActivationDescription, int, int, double))               \
  FUNCTION(cudnnDestroyActivationDescriptor, (ActivationDescription))                             \
  FUNCTION(                                                                                       \
      cudnnConvolutionBiasActivationForward,                                                      \
      (CudnnHandle, const void*, TensorDescription, const void*, FilterDescription, const void*,  \
       ConvolutionDescription, int, void*, size_t, const void*, TensorDescription, const void*,   \
       TensorDescription, const void*, ActivationDescription, TensorDescription, void*))          \
  FUNCTION(cudnnGetConvolutionForwardAlgorithm_v7,                                                \
           (CudnnHandle, TensorDescription, FilterDescription, ConvolutionDescription,            \
            TensorDescription, int, int*, ConvolutionWay*))                                       \
  FUNCTION(cudnnConvolutionForward, (CudnnHandle, const void*, TensorDescription, const void*,    \
                                     FilterDescription, const void*, ConvolutionDescription, int, \
                                     void*, size_t, const void*, TensorDescription, void*))       \
  FUNCTION(cudnnGetConvolutionBackwardDataAlgorithm_v7,                                           \
           (CudnnHandle, FilterDescription, TensorDescription, ConvolutionDescription,            \
            TensorDescription, int, int*, ConvolutionWay*))                                       \
  FUNCTION(                                                                                       \
      cudnnConvolutionBackwardData,                                                               \
      (CudnnHandle, const void*, FilterDescription, const void*, TensorDescription, const void*,  \
       ConvolutionDescription, int, void*, size_t, const void*, TensorDescription, void*))

struct CudnnApi {
#define ONNXD_CUDNN_MEMBER(name, parameters) int(*name) parameters = nullptr;
  ONNXD_CUDNN_FUNCTIONS(ONNXD_CUDNN_MEMBER)
#undef ONNXD_CUDNN_MEMBER
  size_t (*cudnnGetVersion)() = nullptr;
};

// The functions of the library at `path`. kUnavailable says what is missing.
Result<CudnnApi> LoadCudnn(const std::string& path);

// That of this machine, opened on the first call and kept. Any thread.
Result<const CudnnApi*> OpenCudnn();

struct CudnnOptions {
  bool use_tf32 = false;
  size_t max_workspace_bytes = 0;
};

// `open` is called when a convolution is first asked for, and may answer null; what it answers must
// outlive the library. `enter` makes the device's context current on the calling thread;
// `stream_of` gives the driver's stream.
std::shared_ptr<DeviceLibrary> MakeCudnnLibrary(
    std::function<const CudnnApi*()> open, const CudnnOptions& options, std::function<void()> enter,
    std::function<::CUstream_st*(GpuStream&)> stream_of);

}  // namespace onnxd::cuda
