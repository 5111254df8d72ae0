// cuBLASLt's interface over the host's memory, for tests with the driver that has no GPU: products
// by columns, as the library counts, done at once. It knows two ways, the second with a workspace.
#include <cstring>

#include "runtime/device/cuda/cublaslt.h"
#include "runtime/tensor/float16.h"

namespace {

using onnxd::cuda::MatmulAlgorithm;
using onnxd::cuda::MatmulHeuristicResult;

constexpr int kInvalidValue = 7;
constexpr size_t kWorkspaceBytes = 1024;

struct Description {
  int transposes[2] = {0, 0};
  int32_t epilogue = 1;  // none
  const void* bias = nullptr;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t step;
  int32_t batch = 1;
  int64_t stride = 0;

  float Get(const void* data, int64_t batch_index, uint64_t row, uint64_t column) const {
    const int64_t at =
        batch_index * stride + static_cast<int64_t>(column) * step + static_cast<int64_t>(row);
    if (type == onnxd::cuda::kCudaFloat) return static_cast<const float*>(data)[at];
    const uint16_t bits = static_cast<const uint16_t*>(data)[at];
    if (type == onnxd::cuda::kCudaFloat16) return onnxd::HalfBitsToFloat(bits);
    const uint32_t word = uint32_t{bits} << 16;
    float value = 0;
    std::memcpy(&value, &word, sizeof(value));
    return value;
  }
  void Put(void* data, int64_t batch_index, uint64_t row, uint64_t column, float value) const {
    const int64_t at =
        batch_index * stride + static_cast<int64_t>(column) * step + static_cast<int64_t>(row);
    if (type == onnxd::cuda::kCudaFloat) {
      static_cast<float*>(data)[at] = value;
      return;
    }
    uint32_t word = 0;
    std::memcpy(&word, &value, sizeof(word));
    static_cast<uint16_t*>(data)[at] = type == onnxd::cuda::kCudaFloat16
                                           ? onnxd::FloatToHalfBits(value)
                                           : static_cast<uint16_t>(word >> 16);
  }
};
struct Preference {
  uint64_t workspace_bytes = 0;
};

template <typename T>
T& As(void* object) {
  return *static_cast<T*>(object);
}

}  // namespace

#define ANSWER(name, parameters) extern "C" int name parameters

extern "C" size_t cublasLtGetVersion() { return 130000; }
ANSWER(cublasLtCreate, (void** handle)) {
  *handle = new int(0);
  return 0;
}
ANSWER(cublasLtDestroy, (void* handle)) {
  delete static_cast<int*>(handle);
  return 0;
}
ANSWER(cublasLtMatmulDescCreate, (void** made, int, int)) {
  *made = new Description;
  return 0;
}
ANSWER(cublasLtMatmulDescSetAttribute, (void* of, int what, const void* value, size_t bytes)) {
  auto& description = As<Description>(of);
  if (what == onnxd::cuda::kEpilogue && bytes == sizeof(description.epilogue)) {
    std::memcpy(&description.epilogue, value, bytes);
    return description.epilogue == onnxd::cuda::kBiasEpilogue ? 0 : kInvalidValue;
  }
  if (what == onnxd::cuda::kBiasPointer && bytes == sizeof(description.bias)) {
    std::memcpy(&description.bias, value, bytes);
    return 0;
  }
  const int side = what - onnxd::cuda::kTransposeA;
  if (side < 0 || side > 1 || bytes != sizeof(int32_t)) return kInvalidValue;
  std::memcpy(&description.transposes[side], value, bytes);
  return 0;
}
ANSWER(cublasLtMatmulDescDestroy, (void* description)) {
  delete static_cast<Description*>(description);
  return 0;
}
ANSWER(cublasLtMatrixLayoutCreate,
       (void** made, int type, uint64_t rows, uint64_t columns, int64_t step)) {
  *made = new Layout{type, rows, columns, step};
  return 0;
}
ANSWER(cublasLtMatrixLayoutSetAttribute, (void* of, int what, const void* value, size_t bytes)) {
  auto& layout = As<Layout>(of);
  if (what == onnxd::cuda::kBatchCount && bytes == sizeof(layout.batch)) {
    std::memcpy(&layout.batch, value, bytes);
  } else if (what == onnxd::cuda::kStridedBatchOffset && bytes == sizeof(layout.stride)) {
    std::memcpy(&layout.stride, value, bytes);
  } else {
    return kInvalidValue;
  }
  return 0;
}
ANSWER(cublasLtMatrixLayoutDestroy, (void* layout)) {
  delete static_cast<Layout*>(layout);
  return 0;
}
ANSWER(cublasLtMatmulPreferenceCreate, (void** made)) {
  *made = new Preference;
  return 0;
}
ANSWER(cublasLtMatmulPreferenceSetAttribute,
       (void* of, int what, const void* value, size_t bytes)) {
  if (what != onnxd::cuda::kMaxWorkspaceBytes) return bytes == 4 ? 0 : kInvalidValue;
  if (bytes != sizeof(uint64_t)) return kInvalidValue;
  std::memcpy(&As<Preference>(of).workspace_bytes, value, bytes);
  return 0;
}
ANSWER(cublasLtMatmulPreferenceDestroy, (void* preference)) {
  delete static_cast<Preference*>(preference);
  return 0;
}
ANSWER(cublasLtMatmulAlgoGetHeuristic, (void*, void*, void*, void*, void*, void*, void* preference,
                                        int most, MatmulHeuristicResult* ways, int* count)) {
  *count = 0;
  for (const size_t workspace : {size_t{0}, kWorkspaceBytes}) {
    if (*count >= most || workspace > As<Preference>(preference).workspace_bytes) break;
    ways[*count] = {};
    ways[*count].algorithm.data[0] = workspace;
    ways[*count].workspace_bytes = workspace;
    ++*count;
  }
  return 0;
}
ANSWER(cublasLtMatmul, (void*, void* of, const void* alpha, const void* a, void* a_layout,
                        const void* b, void* b_layout, const void* beta, const void* c,
                        void* c_layout, void* d, void* d_layout, const MatmulAlgorithm* algorithm,
                        void* workspace, size_t workspace_bytes, ::CUstream_st*)) {
  const auto& left = As<Layout>(a_layout);
  const auto& right = As<Layout>(b_layout);
  const auto& result = As<Layout>(d_layout);
  const auto& addend = As<Layout>(c_layout);
  const auto& description = As<Description>(of);
  const auto& transposes = description.transposes;
  const uint64_t inner = transposes[0] != 0 ? left.rows : left.columns;
  const uint64_t rows = transposes[0] != 0 ? left.columns : left.rows;
  const uint64_t columns = transposes[1] != 0 ? right.rows : right.columns;
  const uint64_t right_inner = transposes[1] != 0 ? right.columns : right.rows;
  if (inner != right_inner || rows != result.rows || columns != result.columns) {
    return kInvalidValue;
  }
  if (left.batch != result.batch || right.batch != result.batch) return kInvalidValue;
  if (workspace_bytes != algorithm->data[0]) return kInvalidValue;
  const bool aligned = reinterpret_cast<uintptr_t>(workspace) % onnxd::kWorkspaceAlignment == 0;
  if (workspace_bytes > 0 && !aligned) return kInvalidValue;
  if (workspace_bytes > 0) std::memset(workspace, 0x5A, workspace_bytes);
  const float factor = *static_cast<const float*>(beta);
  if (*static_cast<const float*>(alpha) != 1 || (factor != 0 && factor != 1)) return kInvalidValue;
  const bool adds_column = description.epilogue == onnxd::cuda::kBiasEpilogue;
  if (adds_column && description.bias == nullptr) return kInvalidValue;
  for (int64_t batch = 0; batch < result.batch; ++batch) {
    for (uint64_t column = 0; column < columns; ++column) {
      for (uint64_t row = 0; row < rows; ++row) {
        float sum = factor != 0 ? addend.Get(c, batch, row, column) : 0;
        if (adds_column) sum += result.Get(description.bias, 0, row, 0);
        for (uint64_t p = 0; p < inner; ++p) {
          const float x =
              transposes[0] != 0 ? left.Get(a, batch, p, row) : left.Get(a, batch, row, p);
          sum += x * (transposes[1] != 0 ? right.Get(b, batch, column, p)
                                         : right.Get(b, batch, p, column));
        }
        result.Put(d, batch, row, column, sum);
      }
    }
  }
  return 0;
}
