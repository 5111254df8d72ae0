// cuDNN's interface over the host's memory, for tests with the driver that has no GPU: convolutions
// of dense images, channels first or last, done at once. It knows a way that is not deterministic,
// one without a workspace and one with; what is asked for as multiply-adds is answered as such.
#include <array>
#include <cstring>
#include <vector>

#include "runtime/device/cuda/cudnn.h"
#include "runtime/tensor/float16.h"

namespace {

using onnxd::cuda::ConvolutionWay;

constexpr int kBadParameter = 2000;
constexpr size_t kWorkspaceBytes = 2048;

struct Tensor {
  int type = 0;
  std::vector<int> dims;
  bool channels_last = false;
};
struct Activation {
  int mode = 0;
};
struct Convolution {
  std::vector<int> pads, strides, dilations;
  int groups = 1, math = 0;
};
struct Handle {
  ::CUstream_st* stream = nullptr;
  bool has_stream = false;
};

template <typename T>
T& As(void* object) {
  return *static_cast<T*>(object);
}

float Get(int type, const void* data, int64_t at) {
  if (type == onnxd::cuda::kCudnnFloat) return static_cast<const float*>(data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  if (type == onnxd::cuda::kCudnnHalf) return onnxd::HalfBitsToFloat(bits);
  const uint32_t word = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}

void Put(int type, void* data, int64_t at, float value) {
  uint32_t word = 0;
  std::memcpy(&word, &value, sizeof(word));
  if (type == onnxd::cuda::kCudnnFloat) {
    static_cast<float*>(data)[at] = value;
  } else {
    static_cast<uint16_t*>(data)[at] = type == onnxd::cuda::kCudnnHalf
                                           ? onnxd::FloatToHalfBits(value)
                                           : static_cast<uint16_t>(word >> 16);
  }
}

// Images, channels, depth, height and width of either rank.
std::array<int, 5> FiveDims(const std::vector<int>& dims, int filler) {
  if (dims.size() == 5) return {dims[0], dims[1], dims[2], dims[3], dims[4]};
  return {dims[0], dims[1], filler, dims[2], dims[3]};
}
std::array<int, 3> ThreeOf(const std::vector<int>& values, int filler) {
  if (values.size() == 3) return {values[0], values[1], values[2]};
  return {filler, values[0], values[1]};
}

// The place of an element.
int64_t At(const Tensor& tensor, int first, int channel, int depth, int row, int column) {
  const auto dims = FiveDims(tensor.dims, 1);
  if (tensor.channels_last) {
    return (((int64_t{first} * dims[2] + depth) * dims[3] + row) * dims[4] + column) * dims[1] +
           channel;
  }
  return (((int64_t{first} * dims[1] + channel) * dims[2] + depth) * dims[3] + row) * dims[4] +
         column;
}

// Calls visit(image element, filter element, result element) for all that meet.
template <typename Visit>
bool ForTaps(const Tensor& image, const Tensor& filter, const Tensor& result, const Convolution& c,
             const Visit& visit) {
  const auto x = FiveDims(image.dims, 1), w = FiveDims(filter.dims, 1),
             y = FiveDims(result.dims, 1);
  const auto pads = ThreeOf(c.pads, 0), strides = ThreeOf(c.strides, 1),
             dilations = ThreeOf(c.dilations, 1);
  if (x[1] != w[1] * c.groups || y[1] != w[0] || x[0] != y[0]) return false;
  for (size_t i = 0; i < 3; ++i) {
    const int left = x[i + 2] + 2 * pads[i] - dilations[i] * (w[i + 2] - 1) - 1;
    if (left < 0 || left / strides[i] + 1 != y[i + 2]) return false;
  }
  const int filters = w[0] / c.groups;
  for (int n = 0; n < y[0]; ++n)
    for (int f = 0; f < y[1]; ++f)
      for (int od = 0; od < y[2]; ++od)
        for (int oh = 0; oh < y[3]; ++oh)
          for (int ow = 0; ow < y[4]; ++ow)
            for (int channel = 0; channel < w[1]; ++channel)
              for (int kd = 0; kd < w[2]; ++kd)
                for (int kh = 0; kh < w[3]; ++kh)
                  for (int kw = 0; kw < w[4]; ++kw) {
                    const int d = od * strides[0] - pads[0] + kd * dilations[0];
                    const int h = oh * strides[1] - pads[1] + kh * dilations[1];
                    const int v = ow * strides[2] - pads[2] + kw * dilations[2];
                    if (d < 0 || h < 0 || v < 0 || d >= x[2] || h >= x[3] || v >= x[4]) continue;
                    visit(At(image, n, f / filters * w[1] + channel, d, h, v),
                          At(filter, f, channel, kd, kh, kw), At(result, n, f, od, oh, ow));
                  }
  return true;
}

int64_t ElementsOf(const Tensor& tensor) {
  int64_t count = 1;
  for (const int dim : tensor.dims) count *= dim;
  return count;
}

int AnswerWays(const void* description, int most, int* count, ConvolutionWay* ways) {
  const int math = static_cast<const Convolution*>(description)->math;
  *count = 0;
  for (const int algorithm : {5, 1, 6}) {
    if (*count >= most) break;
    ways[*count] = {};
    ways[*count].algorithm = algorithm;
    ways[*count].math = math;
    ways[*count].determinism = algorithm == 5 ? 0 : onnxd::cuda::kDeterministic;
    ways[*count].workspace_bytes = algorithm == 6 ? kWorkspaceBytes : 0;
    ++*count;
  }
  return 0;
}

bool IsCall(void* handle, const void* alpha, const void* beta, int algorithm, void* workspace,
            size_t bytes) {
  if (!As<Handle>(handle).has_stream) return false;
  if (bytes != (algorithm == 6 ? kWorkspaceBytes : 0)) return false;
  const bool aligned = reinterpret_cast<uintptr_t>(workspace) % onnxd::kWorkspaceAlignment == 0;
  if (bytes > 0 && !aligned) return false;
  if (bytes > 0) std::memset(workspace, 0x5A, bytes);
  return *static_cast<const float*>(alpha) == 1 && *static_cast<const float*>(beta) == 0;
}

int SetDims(Tensor& tensor, int type, int count, const int* dims) {
  if (count != 4 && count != 5) return kBadParameter;
  tensor.type = type;
  tensor.dims.assign(dims, dims + count);
  return 0;
}

// Of a dense tensor.
std::vector<int> StridesOf(const std::vector<int>& dims, bool channels_last) {
  std::vector<int> strides(dims.size());
  int dense = 1;
  const auto set = [&](size_t axis) {
    strides[axis] = dense;
    dense *= dims[axis];
  };
  if (channels_last) set(1);
  for (size_t axis = dims.size(); axis-- > (channels_last ? 2u : 0u);) set(axis);
  if (channels_last) set(0);
  return strides;
}

// The sums of a convolution; empty where it does not fit.
std::vector<float> Sums(const Tensor& image, const void* x, const Tensor& filter, const void* w,
                        const Tensor& result, const Convolution& convolution) {
  std::vector<float> sums(static_cast<size_t>(ElementsOf(result)));
  const bool fits =
      ForTaps(image, filter, result, convolution, [&](int64_t from, int64_t tap, int64_t to) {
        sums[static_cast<size_t>(to)] += Get(image.type, x, from) * Get(filter.type, w, tap);
      });
  return fits ? sums : std::vector<float>();
}

}  // namespace

#define ANSWER(name, parameters) extern "C" int name parameters

extern "C" size_t cudnnGetVersion() { return 92800; }
ANSWER(cudnnCreate, (void** handle)) {
  *handle = new Handle;
  return 0;
}
ANSWER(cudnnDestroy, (void* handle)) {
  delete static_cast<Handle*>(handle);
  return 0;
}
ANSWER(cudnnSetStream, (void* handle, ::CUstream_st* stream)) {
  As<Handle>(handle) = {stream, true};
  return 0;
}
ANSWER(cudnnCreateTensorDescriptor, (void** made)) {
  *made = new Tensor;
  return 0;
}
ANSWER(cudnnSetTensorNdDescriptor,
       (void* of, int type, int count, const int* dims, const int* strides)) {
  auto& tensor = As<Tensor>(of);
  if (const int code = SetDims(tensor, type, count, dims)) return code;
  const std::vector<int> given(strides, strides + count);
  tensor.channels_last = given != StridesOf(tensor.dims, false);
  return given == StridesOf(tensor.dims, tensor.channels_last) ? 0 : kBadParameter;
}
ANSWER(cudnnDestroyTensorDescriptor, (void* tensor)) {
  delete static_cast<Tensor*>(tensor);
  return 0;
}
ANSWER(cudnnCreateFilterDescriptor, (void** made)) {
  *made = new Tensor;
  return 0;
}
ANSWER(cudnnSetFilterNdDescriptor, (void* of, int type, int format, int count, const int* dims)) {
  As<Tensor>(of).channels_last = format == onnxd::cuda::kChannelsLast;
  return SetDims(As<Tensor>(of), type, count, dims);
}
ANSWER(cudnnDestroyFilterDescriptor, (void* filter)) {
  delete static_cast<Tensor*>(filter);
  return 0;
}
ANSWER(cudnnCreateConvolutionDescriptor, (void** made)) {
  *made = new Convolution;
  return 0;
}
ANSWER(cudnnSetConvolutionNdDescriptor, (void* of, int count, const int* pads, const int* strides,
                                         const int* dilations, int mode, int type)) {
  if (mode != onnxd::cuda::kCrossCorrelation || type != onnxd::cuda::kCudnnFloat) {
    return kBadParameter;
  }
  auto& convolution = As<Convolution>(of);
  convolution.pads.assign(pads, pads + count);
  convolution.strides.assign(strides, strides + count);
  convolution.dilations.assign(dilations, dilations + count);
  return 0;
}
ANSWER(cudnnSetConvolutionGroupCount, (void* of, int groups)) {
  As<Convolution>(of).groups = groups;
  return 0;
}
ANSWER(cudnnSetConvolutionMathType, (void* of, int math)) {
  As<Convolution>(of).math = math;
  return 0;
}
ANSWER(cudnnDestroyConvolutionDescriptor, (void* convolution)) {
  delete static_cast<Convolution*>(convolution);
  return 0;
}
ANSWER(cudnnGetConvolutionForwardAlgorithm_v7, (void*, void*, void*, void* convolution, void*,
                                                int most, int* count, ConvolutionWay* ways)) {
  return AnswerWays(convolution, most, count, ways);
}
ANSWER(cudnnGetConvolutionBackwardDataAlgorithm_v7, (void*, void*, void*, void* convolution, void*,
                                                     int most, int* count, ConvolutionWay* ways)) {
  return AnswerWays(convolution, most, count, ways);
}
ANSWER(cudnnConvolutionForward,
       (void* handle, const void* alpha, void* image, const void* x, void* filter, const void* w,
        void* convolution, int algorithm, void* workspace, size_t bytes, const void* beta,
        void* result, void* y)) {
  if (!IsCall(handle, alpha, beta, algorithm, workspace, bytes)) return kBadParameter;
  const auto& out = As<Tensor>(result);
  const std::vector<float> sums =
      Sums(As<Tensor>(image), x, As<Tensor>(filter), w, out, As<Convolution>(convolution));
  for (size_t i = 0; i < sums.size(); ++i) Put(out.type, y, static_cast<int64_t>(i), sums[i]);
  return sums.empty() ? kBadParameter : 0;
}
ANSWER(cudnnCreateActivationDescriptor, (void** made)) {
  *made = new Activation;
  return 0;
}
ANSWER(cudnnSetActivationDescriptor, (void* of, int mode, int nan, double ceiling)) {
  As<Activation>(of).mode = mode;
  return nan == 0 && ceiling == 0 ? 0 : kBadParameter;
}
ANSWER(cudnnDestroyActivationDescriptor, (void* activation)) {
  delete static_cast<Activation*>(activation);
  return 0;
}
ANSWER(cudnnConvolutionBiasActivationForward,
       (void* handle, const void* alpha, void* image, const void* x, void* filter, const void* w,
        void* convolution, int algorithm, void* workspace, size_t bytes, const void* factor,
        void* matrix, const void* z, void* row, const void* bias, void* activation, void* result,
        void* y)) {
  const float zero = 0;
  if (!IsCall(handle, alpha, &zero, algorithm, workspace, bytes)) return kBadParameter;
  const int mode = As<Activation>(activation).mode;
  const bool relu = mode == onnxd::cuda::kReluActivation;
  const auto &out = As<Tensor>(result), &bias_of = As<Tensor>(row), &z_of = As<Tensor>(matrix);
  const bool is_known = relu || (mode == onnxd::cuda::kNoActivation &&
                                 algorithm == onnxd::cuda::kImplicitPrecomputed);
  if (!is_known || z == nullptr || bias == nullptr || z_of.dims != out.dims ||
      bias_of.dims[1] != out.dims[1] || ElementsOf(bias_of) != out.dims[1]) {
    return kBadParameter;
  }
  const std::vector<float> sums =
      Sums(As<Tensor>(image), x, As<Tensor>(filter), w, out, As<Convolution>(convolution));
  const auto dims = FiveDims(out.dims, 1);
  const int64_t plane = int64_t{dims[2]} * dims[3] * dims[4];
  const float times = *static_cast<const float*>(factor);
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const int64_t channel = out.channels_last ? at % dims[1] : at / plane % dims[1];
    float value = sums[i] + Get(out.type, bias, channel);
    if (times != 0) value += times * Get(out.type, z, at);
    Put(out.type, y, at, relu && value < 0 ? 0 : value);
  }
  return sums.empty() ? kBadParameter : 0;
}
ANSWER(cudnnConvolutionBackwardData,
       (void* handle, const void* alpha, void* filter, const void* w, void* result, const void* dy,
        void* convolution, int algorithm, void* workspace, size_t bytes, const void* beta,
        void* image, void* dx)) {
  if (!IsCall(handle, alpha, beta, algorithm, workspace, bytes)) return kBadParameter;
  const auto &in = As<Tensor>(image), &weights = As<Tensor>(filter), &out = As<Tensor>(result);
  std::vector<float> sums(static_cast<size_t>(ElementsOf(in)));
  const bool fits = ForTaps(
      in, weights, out, As<Convolution>(convolution), [&](int64_t to, int64_t tap, int64_t from) {
        sums[static_cast<size_t>(to)] += Get(out.type, dy, from) * Get(weights.type, w, tap);
      });
  for (size_t i = 0; i < sums.size(); ++i) Put(in.type, dx, static_cast<int64_t>(i), sums[i]);
  return fits ? 0 : kBadParameter;
}
