// Softmax, LogSoftmax, Hardmax. Before opset 13 the input is seen as a matrix cut at the axis.
#include <algorithm>
#include <cmath>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

enum class Family { kSoftmax, kLogSoftmax, kHardmax };

template <typename T>
void StridedRow(Family family, const T* in, T* out, int64_t n, int64_t step) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; ++i) {
    if (in[i * step] > in[best * step]) best = i;
  }
  const T largest = in[best * step];
  if (family == Family::kHardmax) {
    for (int64_t i = 0; i < n; ++i) out[i * step] = i == best ? T(1) : T(0);
    return;
  }
  T total = 0;
  for (int64_t i = 0; i < n; ++i) total += std::exp(in[i * step] - largest);
  if (family == Family::kSoftmax) {
    for (int64_t i = 0; i < n; ++i) out[i * step] = std::exp(in[i * step] - largest) / total;
  } else {
    const T shift = largest + std::log(total);
    for (int64_t i = 0; i < n; ++i) out[i * step] = in[i * step] - shift;
  }
}

void SimdRow(Family family, const float* in, float* out, int64_t n) {
  const math::Simd& simd = math::CurrentSimd();
  const float largest = simd.max(in, n);
  if (family == Family::kHardmax) {
    if (largest != largest) return StridedRow(family, in, out, n, 1);
    const auto best = std::find(in, in + n, largest) - in;  // before: out may be the memory of in
    std::fill_n(out, n, 0.0f);
    out[best] = 1.0f;
    return;
  }
  if (family == Family::kSoftmax) {
    const float total = simd.exp_sum(in, out, n, largest, 1.0f);
    simd.affine(out, out, n, 1.0f / total, 0.0f);
    return;
  }
  constexpr int64_t kChunk = 256;
  float powers[kChunk];  // out may be in
  float total = 0;
  for (int64_t i = 0; i < n; i += kChunk) {
    total += simd.exp_sum(in + i, powers, std::min(kChunk, n - i), largest, 1.0f);
  }
  simd.affine(in, out, n, 1.0f, -(largest + std::log(total)));
}

// Softmax along rows of in[extent, inner]: whole rows at a time. `sums` has room for `inner`.
void SimdColumns(const float* in, float* out, int64_t extent, int64_t inner, float* sums) {
  const math::Simd& simd = math::CurrentSimd();
  std::copy_n(in, inner, sums);
  for (int64_t i = 1; i < extent; ++i) {
    simd.binary(math::Binary::kMax, sums, in + i * inner, sums, inner, 1, 1);
  }
  for (int64_t i = 0; i < extent; ++i) {
    float* row = out + i * inner;
    simd.binary(math::Binary::kSub, in + i * inner, sums, row, inner, 1, 1);
    simd.unary(math::Unary::kExp, row, row, inner);
  }
  simd.sum_rows(out, extent, inner, sums);
  for (int64_t i = 0; i < extent; ++i) {
    simd.binary(math::Binary::kDiv, out + i * inner, sums, out + i * inner, inner, 1, 1);
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeSoftmax(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloatOrDouble(type)) return DeclineType(info.node.op_type, type);
  const Family family = info.node.op_type == "Softmax"      ? Family::kSoftmax
                        : info.node.op_type == "LogSoftmax" ? Family::kLogSoftmax
                                                            : Family::kHardmax;
  const bool flatten = info.node.since_version < 13;
  const int64_t axis_attribute = info.node.attributes.Int("axis", flatten ? 1 : -1);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const int rank = shape.rank();
    int axis = 0;
    if (rank > 0 && axis_attribute != rank) {
      ONNXD_ASSIGN_OR_RETURN(axis, NormalizeAxis(axis_attribute, rank));
    } else {
      axis = rank;
    }
    const int64_t outer = shape.ElementCount(0, axis);
    const int64_t extent = flatten ? shape.ElementCount(axis, rank) : axis < rank ? shape[axis] : 1;
    const int64_t inner = flatten || axis == rank ? 1 : shape.ElementCount(axis + 1, rank);
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    if (outer * extent * inner == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    if (type == DataType::kFloat && family == Family::kSoftmax && inner > 1) {
      prepared.scratch_bytes = static_cast<size_t>(inner) * sizeof(float);
      prepared.compute = [=](const KernelContext& k) {
        for (int64_t i = 0; i < outer; ++i) {
          const int64_t base = i * extent * inner;
          SimdColumns(k.input<float>(0) + base, k.output<float>(0) + base, extent, inner,
                      k.scratch<float>());
        }
        return Status::Ok();
      };
      return prepared;
    }
    prepared.compute = [=](const KernelContext& k) {
      DispatchFloat(type, [&]<typename T>() {
        const T* in = k.input<T>(0);
        T* out = k.output<T>(0);
        k.pool().ParallelFor(outer, 1 + 8192 / (extent * inner), [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            const int64_t base = row * extent * inner;
            if constexpr (std::is_same_v<T, float>) {
              if (inner == 1) {
                SimdRow(family, in + base, out + base, extent);
                continue;
              }
            }
            for (int64_t column = 0; column < inner; ++column) {
              StridedRow(family, in + base + column, out + base + column, extent, inner);
            }
          }
        });
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
