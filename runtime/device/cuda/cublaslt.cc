#include "runtime/device/cuda/cublaslt.h"

#include <dlfcn.h>

#include <mutex>
#include <utility>

#include "runtime/base/str_cat.h"

namespace onnxd::cuda {
namespace {

constexpr int kMostWays = 8;
constexpr uint32_t kAlignment = 64;  // LibraryOperands
// Where a row would be, for those who choose a way before there is one.
constexpr uintptr_t kAnyAddress = 4096;

int CudaTypeOf(DataType type) {
  if (type == DataType::kFloat16) return kCudaFloat16;
  return type == DataType::kBfloat16 ? kCudaBfloat16 : kCudaFloat;
}

Status Failed(const char* call, int code) {
  return Internal(StrCat("cuBLASLt: ", call, " failed with code ", code));
}

// The objects of one product. The library counts by columns: its c, of n by m, is the transpose of
// what is wanted, and so are its operands, whose order is the other way round.
class Matmul {
 public:
  static Result<std::shared_ptr<Matmul>> Make(const CublasLtApi& api, const LibraryProduct& product,
                                              bool use_tf32) {
    auto matmul = std::shared_ptr<Matmul>(new Matmul(api));
    ONNXD_RETURN_IF_ERROR(matmul->Describe(product, use_tf32));
    return matmul;
  }
  ~Matmul() {
    for (MatrixLayout layout : {left_, right_, result_}) {
      if (layout != nullptr) api_.cublasLtMatrixLayoutDestroy(layout);
    }
    if (description_ != nullptr) api_.cublasLtMatmulDescDestroy(description_);
  }
  Matmul(const Matmul&) = delete;
  Matmul& operator=(const Matmul&) = delete;

  // The best first.
  std::vector<MatmulHeuristicResult> Ways(CublasLtHandle handle,
                                          uint64_t max_workspace_bytes) const {
    MatmulPreference preference = nullptr;
    if (api_.cublasLtMatmulPreferenceCreate(&preference) != 0) return {};
    api_.cublasLtMatmulPreferenceSetAttribute(preference, kMaxWorkspaceBytes, &max_workspace_bytes,
                                              sizeof(max_workspace_bytes));
    for (const int side : {kMinAlignmentA, kMinAlignmentB, kMinAlignmentC, kMinAlignmentD}) {
      api_.cublasLtMatmulPreferenceSetAttribute(preference, side, &kAlignment, sizeof(kAlignment));
    }
    std::vector<MatmulHeuristicResult> ways(kMostWays);
    int count = 0;
    const int code =
        api_.cublasLtMatmulAlgoGetHeuristic(handle, description_, left_, right_, result_, result_,
                                            preference, kMostWays, ways.data(), &count);
    api_.cublasLtMatmulPreferenceDestroy(preference);
    ways.resize(code == 0 ? static_cast<size_t>(count) : 0);
    std::erase_if(ways, [](const MatmulHeuristicResult& way) { return way.state != 0; });
    return ways;
  }

  Status Enqueue(CublasLtHandle handle, ::CUstream_st* stream, const MatmulHeuristicResult& way,
                 const LibraryOperands& o) const {
    const float one = 1, zero = 0;
    const bool adds = o.matrix != nullptr;
    std::unique_lock lock(mutex_, std::defer_lock);
    if (o.row != nullptr) {
      lock.lock();
      ONNXD_RETURN_IF_ERROR(Set(kBiasPointer, o.row));
    }
    const int code =
        api_.cublasLtMatmul(handle, description_, &one, o.b, left_, o.a, right_,
                            adds ? &one : &zero, adds ? o.matrix : o.y, result_, o.y, result_,
                            &way.algorithm, o.workspace, way.workspace_bytes, stream);
    return code == 0 ? Status::Ok() : Failed("cublasLtMatmul", code);
  }

 private:
  explicit Matmul(const CublasLtApi& api) : api_(api) {}

  Status Describe(const LibraryProduct& p, bool use_tf32) {
    const int compute =
        p.operands == DataType::kFloat && use_tf32 ? kComputeFloatByTf32 : kComputeFloat;
    const int made = api_.cublasLtMatmulDescCreate(&description_, compute, kCudaFloat);
    if (made != 0) return Failed("cublasLtMatmulDescCreate", made);
    const int32_t left = p.transpose_b ? 1 : 0, right = p.transpose_a ? 1 : 0;
    ONNXD_RETURN_IF_ERROR(Set(kTransposeA, left));
    ONNXD_RETURN_IF_ERROR(Set(kTransposeB, right));
    const int32_t epilogue = (p.adds_row ? kBiasEpilogue : 0) | (p.relu ? kReluEpilogue : 0);
    if (epilogue != 0) ONNXD_RETURN_IF_ERROR(Set(kEpilogue, epilogue));
    if (p.adds_row) {
      // Our row is a column there, of which every column of the result gets one.
      ONNXD_RETURN_IF_ERROR(Set(kBiasPointer, reinterpret_cast<const void*>(kAnyAddress)));
    }
    // A row-major matrix of so many rows and columns is one of columns and rows here.
    ONNXD_RETURN_IF_ERROR(Layout(p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.operands,
                                 p.batch, p.b_stride, left_));
    ONNXD_RETURN_IF_ERROR(Layout(p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.operands,
                                 p.batch, p.a_stride, right_));
    return Layout(p.m, p.n, p.result, p.batch, p.m * p.n, result_);
  }

  template <typename T>
  Status Set(int what, const T& value) const {
    const int code = api_.cublasLtMatmulDescSetAttribute(description_, what, &value, sizeof(value));
    return code == 0 ? Status::Ok() : Failed("cublasLtMatmulDescSetAttribute", code);
  }

  Status Layout(int64_t rows, int64_t columns, DataType type, int64_t batch, int64_t stride,
                MatrixLayout& layout) {
    const int made =
        api_.cublasLtMatrixLayoutCreate(&layout, CudaTypeOf(type), static_cast<uint64_t>(columns),
                                        static_cast<uint64_t>(rows), columns);
    if (made != 0) return Failed("cublasLtMatrixLayoutCreate", made);
    const auto count = static_cast<int32_t>(batch);
    int code = api_.cublasLtMatrixLayoutSetAttribute(layout, kBatchCount, &count, sizeof(count));
    if (code == 0) {
      code = api_.cublasLtMatrixLayoutSetAttribute(layout, kStridedBatchOffset, &stride,
                                                   sizeof(stride));
    }
    return code == 0 ? Status::Ok() : Failed("cublasLtMatrixLayoutSetAttribute", code);
  }

  const CublasLtApi& api_;
  // Guards where the description says that the row is, between saying and enqueueing.
  mutable std::mutex mutex_;
  MatmulDescription description_ = nullptr;
  MatrixLayout left_ = nullptr, right_ = nullptr, result_ = nullptr;
};

class CublasLtLibrary : public DeviceLibrary {
 public:
  CublasLtLibrary(const CublasLtApi& api, const CublasLtOptions& options,
                  std::function<void()> enter, std::function<::CUstream_st*(GpuStream&)> stream_of)
      : api_(api), options_(options), enter_(std::move(enter)), stream_of_(std::move(stream_of)) {}
  CublasLtLibrary(const CublasLtLibrary&) = delete;
  CublasLtLibrary& operator=(const CublasLtLibrary&) = delete;
  ~CublasLtLibrary() override {
    if (handle_ == nullptr) return;
    enter_();
    api_.cublasLtDestroy(handle_);
  }

  std::vector<LibraryKernel> FindProduct(const LibraryProduct& product) override {
    if (product.batch > INT32_MAX) return {};
    enter_();
    const CublasLtHandle handle = Handle();
    if (handle == nullptr) return {};
    auto made = Matmul::Make(api_, product, options_.use_tf32);
    if (!made.ok()) return {};
    const std::shared_ptr<const Matmul> matmul = std::move(*made);
    std::vector<LibraryKernel> kernels;
    for (const auto& way : matmul->Ways(handle, options_.max_workspace_bytes)) {
      LibraryKernel kernel;
      kernel.name = StrCat("cuBLASLt ", api_.cublasLtGetVersion(), " #", kernels.size(),
                           product.adds_row ? " + row" : "", product.adds_matrix ? " + matrix" : "",
                           product.relu ? ", relu" : "");
      kernel.result = product.result;
      kernel.workspace_bytes = way.workspace_bytes;
      kernel.enqueue = [=, this](GpuStream& stream, const LibraryOperands& operands) {
        enter_();
        return matmul->Enqueue(handle, stream_of_(stream), way, operands);
      };
      kernels.push_back(std::move(kernel));
    }
    return kernels;
  }

 private:
  // Null where it cannot be made; the library's handles serve any thread.
  CublasLtHandle Handle() {
    std::lock_guard lock(mutex_);
    if (handle_ == nullptr && api_.cublasLtCreate(&handle_) != 0) handle_ = nullptr;
    return handle_;
  }

  const CublasLtApi& api_;
  const CublasLtOptions options_;
  const std::function<void()> enter_;
  const std::function<::CUstream_st*(GpuStream&)> stream_of_;
  std::mutex mutex_;
  CublasLtHandle handle_ = nullptr;  // guarded by mutex_
};

Result<CublasLtApi> OpenAny() {
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    auto api = LoadCublasLt(name);
    if (api.ok()) return api;
  }
  return Unavailable("CUDA: cannot open libcublasLt.so.13 or .12");
}

}  // namespace

Result<CublasLtApi> LoadCublasLt(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return Unavailable(StrCat("CUDA: cannot open ", path));
  CublasLtApi api;
  const char* missing = nullptr;
#define ONNXD_CUBLASLT_LOAD(name, parameters)                             \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(library, #name)); \
  if (api.name == nullptr) missing = #name;
  ONNXD_CUBLASLT_FUNCTIONS(ONNXD_CUBLASLT_LOAD)
  ONNXD_CUBLASLT_LOAD(cublasLtGetVersion, ())
#undef ONNXD_CUBLASLT_LOAD
  if (missing != nullptr) return Unavailable(StrCat("CUDA: ", path, " lacks ", missing));
  return api;
}

Result<const CublasLtApi*> OpenCublasLt() {
  static const Result<CublasLtApi> api = OpenAny();
  if (!api.ok()) return api.status();
  return &*api;
}

std::shared_ptr<DeviceLibrary> MakeCublasLtLibrary(
    const CublasLtApi& api, const CublasLtOptions& options, std::function<void()> enter,
    std::function<::CUstream_st*(GpuStream&)> stream_of) {
  return std::make_shared<CublasLtLibrary>(api, options, std::move(enter), std::move(stream_of));
}

}  // namespace onnxd::cuda
