#include "runtime/device/cuda/cudnn.h"

#include <dlfcn.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/base/checked_math.h"
#include "runtime/base/str_cat.h"

namespace onnxd::cuda {
namespace {

constexpr int kMostWays = 8;

int CudnnTypeOf(DataType type) {
  if (type == DataType::kFloat16) return kCudnnHalf;
  return type == DataType::kBfloat16 ? kCudnnBfloat16 : kCudnnFloat;
}

Status Failed(const char* call, int code) {
  return Internal(StrCat("cuDNN: ", call, " failed with code ", code));
}

// Sizes as the library counts them, which is a convolution forwards: one that is transposed makes
// its image of its result.
struct Sizes {
  std::vector<int> image, filter, result;
  std::vector<int> pads, strides, dilations;
  int groups;
};

// Images, channels and spatial axes; those that are 1 throughout are left out, but for two.
std::optional<std::vector<int>> Dims(int64_t first, int64_t second,
                                     const std::array<int64_t, 3>& spatial, size_t skipped) {
  std::vector<int> dims;
  int64_t elements = 1;
  const auto add = [&](int64_t dim) {
    const auto product = CheckedMultiply(elements, dim);
    if (dim < 1 || !product || *product > INT32_MAX) return false;
    elements = *product;
    dims.push_back(static_cast<int>(dim));
    return true;
  };
  if (!add(first) || !add(second)) return std::nullopt;
  for (size_t i = skipped; i < spatial.size(); ++i) {
    if (!add(spatial[i])) return std::nullopt;
  }
  return dims;
}

// Nothing where the library cannot say it: sizes beyond its integers, or windows that end
// elsewhere than pads of the same size on both sides make them end.
std::optional<Sizes> SizesOf(const LibraryConvolution& c) {
  const auto& image = c.transposed ? c.output : c.input;
  const auto& result = c.transposed ? c.input : c.output;
  const bool is_flat =
      image[0] == 1 && result[0] == 1 && c.kernel[0] == 1 && c.pads[0] == 0 && c.strides[0] == 1;
  const size_t skipped = is_flat ? 1 : 0;
  Sizes sizes;
  for (size_t i = skipped; i < 3; ++i) {
    const int64_t reach = c.dilations[i] * (c.kernel[i] - 1);
    const int64_t left = image[i] + 2 * c.pads[i] - reach - 1;
    if (c.pads[i] < 0 || left < 0 || left / c.strides[i] + 1 != result[i]) return std::nullopt;
    if (std::max({c.pads[i], c.strides[i], c.dilations[i]}) > INT32_MAX) return std::nullopt;
    sizes.pads.push_back(static_cast<int>(c.pads[i]));
    sizes.strides.push_back(static_cast<int>(c.strides[i]));
    sizes.dilations.push_back(static_cast<int>(c.dilations[i]));
  }
  const int64_t channels = c.transposed ? c.filters : c.channels;  // of the image, in a group
  const int64_t filters = c.transposed ? c.channels : c.filters;
  auto of_image = Dims(c.images, channels * c.groups, image, skipped);
  auto of_filter = Dims(filters * c.groups, channels, c.kernel, skipped);
  auto of_result = Dims(c.images, filters * c.groups, result, skipped);
  if (!of_image || !of_filter || !of_result) return std::nullopt;
  sizes.image = *std::move(of_image);
  sizes.filter = *std::move(of_filter);
  sizes.result = *std::move(of_result);
  sizes.groups = static_cast<int>(c.groups);
  return sizes;
}

// Whether more is asked for than the sums.
bool Finishes(const LibraryConvolution& c) { return c.adds_row || c.adds_matrix || c.relu; }

// The objects of one convolution with one kind of mathematics.
class Convolution {
 public:
  static Result<std::shared_ptr<Convolution>> Make(const CudnnApi& api, const Sizes& sizes,
                                                   const LibraryConvolution& asked, int math) {
    auto made =
        std::shared_ptr<Convolution>(new Convolution(api, asked.transposed, asked.channels_last));
    const int type = CudnnTypeOf(asked.type);
    ONNXD_RETURN_IF_ERROR(made->Describe(sizes, type, math));
    if (Finishes(asked)) ONNXD_RETURN_IF_ERROR(made->DescribeFinish(sizes, type, asked.relu));
    return made;
  }
  ~Convolution() {
    if (image_ != nullptr) api_.cudnnDestroyTensorDescriptor(image_);
    if (result_ != nullptr) api_.cudnnDestroyTensorDescriptor(result_);
    if (filter_ != nullptr) api_.cudnnDestroyFilterDescriptor(filter_);
    if (description_ != nullptr) api_.cudnnDestroyConvolutionDescriptor(description_);
    if (row_ != nullptr) api_.cudnnDestroyTensorDescriptor(row_);
    if (activation_ != nullptr) api_.cudnnDestroyActivationDescriptor(activation_);
  }
  Convolution(const Convolution&) = delete;
  Convolution& operator=(const Convolution&) = delete;

  // The best first.
  std::vector<ConvolutionWay> Ways(CudnnHandle handle) const {
    std::vector<ConvolutionWay> ways(kMostWays);
    int count = 0;
    const int code =
        transposed_
            ? api_.cudnnGetConvolutionBackwardDataAlgorithm_v7(
                  handle, filter_, result_, description_, image_, kMostWays, &count, ways.data())
            : api_.cudnnGetConvolutionForwardAlgorithm_v7(handle, image_, filter_, description_,
                                                          result_, kMostWays, &count, ways.data());
    ways.resize(code == 0 ? static_cast<size_t>(std::clamp(count, 0, kMostWays)) : size_t{0});
    return ways;
  }

  // On the stream that the handle was set to.
  Status Enqueue(CudnnHandle handle, const ConvolutionWay& way, const LibraryOperands& o) const {
    const float one = 1, zero = 0;
    if (transposed_) {
      const int code = api_.cudnnConvolutionBackwardData(handle, &one, filter_, o.a, result_, o.b,
                                                         description_, way.algorithm, o.workspace,
                                                         way.workspace_bytes, &zero, image_, o.y);
      return code == 0 ? Status::Ok() : Failed("cudnnConvolutionBackwardData", code);
    }
    if (activation_ != nullptr) {
      // The library reads what it adds also where the factor is zero.
      const int code = api_.cudnnConvolutionBiasActivationForward(
          handle, &one, image_, o.b, filter_, o.a, description_, way.algorithm, o.workspace,
          way.workspace_bytes, o.matrix != nullptr ? &one : &zero, result_,
          o.matrix != nullptr ? o.matrix : o.y, row_, o.row, activation_, result_, o.y);
      return code == 0 ? Status::Ok() : Failed("cudnnConvolutionBiasActivationForward", code);
    }
    const int code = api_.cudnnConvolutionForward(handle, &one, image_, o.b, filter_, o.a,
                                                  description_, way.algorithm, o.workspace,
                                                  way.workspace_bytes, &zero, result_, o.y);
    return code == 0 ? Status::Ok() : Failed("cudnnConvolutionForward", code);
  }

 private:
  Convolution(const CudnnApi& api, bool transposed, bool channels_last)
      : api_(api), transposed_(transposed), channels_last_(channels_last) {}

  Status Describe(const Sizes& s, int type, int math) {
    ONNXD_RETURN_IF_ERROR(DescribeTensor(s.image, type, image_));
    ONNXD_RETURN_IF_ERROR(DescribeTensor(s.result, type, result_));
    int code = api_.cudnnCreateFilterDescriptor(&filter_);
    if (code == 0) {
      code = api_.cudnnSetFilterNdDescriptor(filter_, type,
                                             channels_last_ ? kChannelsLast : kChannelsFirst,
                                             static_cast<int>(s.filter.size()), s.filter.data());
    }
    if (code != 0) return Failed("cudnnSetFilterNdDescriptor", code);
    code = api_.cudnnCreateConvolutionDescriptor(&description_);
    if (code == 0) {
      code = api_.cudnnSetConvolutionNdDescriptor(
          description_, static_cast<int>(s.pads.size()), s.pads.data(), s.strides.data(),
          s.dilations.data(), kCrossCorrelation, kCudnnFloat);
    }
    if (code == 0) code = api_.cudnnSetConvolutionGroupCount(description_, s.groups);
    if (code == 0) code = api_.cudnnSetConvolutionMathType(description_, math);
    return code == 0 ? Status::Ok() : Failed("cudnnSetConvolutionNdDescriptor", code);
  }

  Status DescribeFinish(const Sizes& s, int type, bool relu) {
    std::vector<int> row(s.result.size(), 1);
    row[1] = s.result[1];
    ONNXD_RETURN_IF_ERROR(DescribeTensor(row, type, row_));
    int code = api_.cudnnCreateActivationDescriptor(&activation_);
    if (code == 0) {
      code = api_.cudnnSetActivationDescriptor(activation_, relu ? kReluActivation : kNoActivation,
                                               0, 0.0);
    }
    return code == 0 ? Status::Ok() : Failed("cudnnSetActivationDescriptor", code);
  }

  Status DescribeTensor(const std::vector<int>& dims, int type, TensorDescription& tensor) {
    std::vector<int> strides(dims.size(), 1);
    const size_t last = dims.size() - 1;
    if (channels_last_) {
      strides[last] = dims[1];
      for (size_t i = last; i > 2; --i) strides[i - 1] = strides[i] * dims[i];
      strides[0] = strides[2] * dims[2];
    } else {
      for (size_t i = last; i > 0; --i) strides[i - 1] = strides[i] * dims[i];
    }
    int code = api_.cudnnCreateTensorDescriptor(&tensor);
    if (code == 0) {
      code = api_.cudnnSetTensorNdDescriptor(tensor, type, static_cast<int>(dims.size()),
                                             dims.data(), strides.data());
    }
    return code == 0 ? Status::Ok() : Failed("cudnnSetTensorNdDescriptor", code);
  }

  const CudnnApi& api_;
  const bool transposed_, channels_last_;
  TensorDescription image_ = nullptr, result_ = nullptr, row_ = nullptr;
  ActivationDescription activation_ = nullptr;  // null: y is the sums
  FilterDescription filter_ = nullptr;
  ConvolutionDescription description_ = nullptr;
};

class CudnnLibrary : public DeviceLibrary {
 public:
  CudnnLibrary(std::function<const CudnnApi*()> open, const CudnnOptions& options,
               std::function<void()> enter, std::function<::CUstream_st*(GpuStream&)> stream_of)
      : open_(std::move(open)),
        options_(options),
        enter_(std::move(enter)),
        stream_of_(std::move(stream_of)) {}
  CudnnLibrary(const CudnnLibrary&) = delete;
  CudnnLibrary& operator=(const CudnnLibrary&) = delete;
  ~CudnnLibrary() override {
    if (handle_ == nullptr) return;
    enter_();
    api_->cudnnDestroy(handle_);
  }

  std::vector<LibraryKernel> FindConvolution(const LibraryConvolution& c) override {
    const auto sizes = SizesOf(c);
    // What is added needs a row; and a library's transposed convolutions are the sums alone.
    if (!sizes || (Finishes(c) && (!c.adds_row || c.transposed))) return {};
    enter_();
    std::lock_guard lock(mutex_);
    if (!Opened()) return {};
    const auto asked = Convolution::Make(*api_, *sizes, c, MathOf(c.type));
    if (!asked.ok()) return {};
    std::vector<LibraryKernel> kernels;
    for (const ConvolutionWay& way : (*asked)->Ways(handle_)) {
      if (!IsAllowed(way, c.type)) continue;
      // The only one without an activation.
      if (Finishes(c) && !c.relu && way.algorithm != kImplicitPrecomputed) continue;
      auto made = Convolution::Make(*api_, *sizes, c, way.math);
      if (!made.ok()) continue;
      kernels.push_back(KernelOf(std::move(*made), way, c));
    }
    return kernels;
  }

 private:
  bool Opened() {
    if (tried_) return handle_ != nullptr;
    tried_ = true;
    api_ = open_();
    if (api_ != nullptr && api_->cudnnCreate(&handle_) != 0) handle_ = nullptr;
    return handle_ != nullptr;
  }

  int MathOf(DataType type) const {
    if (type != DataType::kFloat) return kTensorMath;
    return options_.use_tf32 ? kDefaultMath : kMultiplyAddMath;
  }

  // The same sums each time, and of floats no less exact than wanted.
  bool IsAllowed(const ConvolutionWay& way, DataType type) const {
    if (way.status != 0 || way.determinism != kDeterministic) return false;
    if (way.workspace_bytes > options_.max_workspace_bytes) return false;
    const bool exact = type == DataType::kFloat && !options_.use_tf32;
    return !exact || way.math == kMultiplyAddMath;
  }

  LibraryKernel KernelOf(std::shared_ptr<const Convolution> convolution, const ConvolutionWay& way,
                         const LibraryConvolution& c) {
    LibraryKernel kernel;
    kernel.name = StrCat("cuDNN ", api_->cudnnGetVersion(), " ", way.algorithm, "/", way.math,
                         c.adds_row ? " + row" : "", c.adds_matrix ? " + matrix" : "",
                         c.relu ? ", relu" : "");
    kernel.result = c.type;
    kernel.workspace_bytes = way.workspace_bytes;
    kernel.enqueue = [=, this](GpuStream& stream, const LibraryOperands& operands) {
      enter_();
      std::lock_guard lock(mutex_);  // the handle has one stream at a time
      const int code = api_->cudnnSetStream(handle_, stream_of_(stream));
      if (code != 0) return Failed("cudnnSetStream", code);
      return convolution->Enqueue(handle_, way, operands);
    };
    return kernel;
  }

  const std::function<const CudnnApi*()> open_;
  const CudnnOptions options_;
  const std::function<void()> enter_;
  const std::function<::CUstream_st*(GpuStream&)> stream_of_;
  std::mutex mutex_;
  bool tried_ = false;  // this and what follows are guarded by mutex_
  const CudnnApi* api_ = nullptr;
  CudnnHandle handle_ = nullptr;
};

// The library opens its parts when a function first needs one, and ends the process where one is
// missing.
bool HasParts(int version) {
  static constexpr const char* kOf9[] = {
      "ops", "graph", "cnn", "heuristic", "engines_precompiled", "engines_runtime_compiled"};
  static constexpr const char* kOf8[] = {"ops_infer", "cnn_infer"};
  const auto there = [&](const char* part) {
    const std::string name = StrCat("libcudnn_", part, ".so.", version);
    return dlopen(name.c_str(), RTLD_LAZY | RTLD_LOCAL) != nullptr;
  };
  return version == 9 ? std::all_of(std::begin(kOf9), std::end(kOf9), there)
                      : std::all_of(std::begin(kOf8), std::end(kOf8), there);
}

Result<CudnnApi> OpenAny() {
  for (const int version : {9, 8}) {
    auto api = LoadCudnn(StrCat("libcudnn.so.", version));
    if (!api.ok()) continue;
    if (HasParts(version)) return api;
    return Unavailable(StrCat("CUDA: parts of libcudnn.so.", version, " cannot be opened"));
  }
  return Unavailable("CUDA: cannot open libcudnn.so.9 or .8");
}

}  // namespace

Result<CudnnApi> LoadCudnn(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable(StrCat("CUDA: cannot open ", path));
  CudnnApi api;
  const char* missing = nullptr;
#define ONNXD_CUDNN_LOAD(name, parameters)                                \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  if (api.name == nullptr) missing = #name;
  ONNXD_CUDNN_FUNCTIONS(ONNXD_CUDNN_LOAD)
  ONNXD_CUDNN_LOAD(cudnnGetVersion, ())
#undef ONNXD_CUDNN_LOAD
  if (missing != nullptr) return Unavailable(StrCat("CUDA: ", path, " lacks ", missing));
  return api;
}

Result<const CudnnApi*> OpenCudnn() {
  static const Result<CudnnApi> api = OpenAny();
  if (!api.ok()) return api.status();
  return &*api;
}

std::shared_ptr<DeviceLibrary> MakeCudnnLibrary(
    std::function<const CudnnApi*()> open, const CudnnOptions& options, std::function<void()> enter,
    std::function<::CUstream_st*(GpuStream&)> stream_of) {
  return std::make_shared<CudnnLibrary>(std::move(open), options, std::move(enter),
                                        std::move(stream_of));
}

}  // namespace onnxd::cuda
