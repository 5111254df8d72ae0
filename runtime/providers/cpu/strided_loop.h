// Walking several tensors together with strides, dimensions merged where that is possible.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "runtime/tensor/shape.h"
#include "runtime/tensor/strides.h"

namespace onnxd {

// The iteration space `dims` with the strides of N operands. Merge joins neighbouring dimensions
// that all operands walk as one and drops those of extent 1; at least one dimension remains.
template <size_t N>
struct StridedLoop {
  std::vector<int64_t> dims;
  std::array<std::vector<int64_t>, N> strides;

  void Merge() {
    std::vector<int64_t> new_dims;
    std::array<std::vector<int64_t>, N> new_strides;
    for (size_t axis = 0; axis < dims.size(); ++axis) {
      if (dims[axis] == 1) continue;
      bool joins = !new_dims.empty();
      for (size_t i = 0; joins && i < N; ++i) {
        joins = new_strides[i].back() == strides[i][axis] * dims[axis];
      }
      if (joins) {
        new_dims.back() *= dims[axis];
        for (size_t i = 0; i < N; ++i) new_strides[i].back() = strides[i][axis];
      } else {
        new_dims.push_back(dims[axis]);
        for (size_t i = 0; i < N; ++i) new_strides[i].push_back(strides[i][axis]);
      }
    }
    if (new_dims.empty()) {
      new_dims.push_back(1);
      for (size_t i = 0; i < N; ++i) new_strides[i].push_back(1);
    }
    dims = std::move(new_dims);
    strides = std::move(new_strides);
  }

  int64_t outer_count() const {
    int64_t count = 1;
    for (size_t axis = 0; axis + 1 < dims.size(); ++axis) count *= dims[axis];
    return count;
  }
  int64_t inner_count() const { return dims.back(); }
  int64_t inner_stride(size_t i) const { return strides[i].back(); }

  // Calls body(offsets) for outer iterations [begin, end): the offset of each operand's first
  // element; the body walks inner_count() elements with the inner strides.
  template <typename Body>
  void ForOuter(int64_t begin, int64_t end, Body body) const {
    ForLeading(dims.size() - 1, begin, end, body);
  }

  // The same over the first `outer` dimensions.
  template <typename Body>
  void ForLeading(size_t outer, int64_t begin, int64_t end, Body body) const {
    std::array<int64_t, kMaxRank> index{};
    std::array<int64_t, N> offsets{};
    int64_t rest = begin;
    for (size_t axis = outer; axis-- > 0;) {
      index[axis] = rest % dims[axis];
      rest /= dims[axis];
      for (size_t i = 0; i < N; ++i) offsets[i] += index[axis] * strides[i][axis];
    }
    for (int64_t iteration = begin; iteration < end; ++iteration) {
      body(offsets);
      for (size_t axis = outer; axis-- > 0;) {
        for (size_t i = 0; i < N; ++i) offsets[i] += strides[i][axis];
        if (++index[axis] < dims[axis]) break;
        for (size_t i = 0; i < N; ++i) offsets[i] -= dims[axis] * strides[i][axis];
        index[axis] = 0;
      }
    }
  }
};

// The loop that broadcasts operands of the given shapes to `out`; operand 0 is the output itself.
template <size_t N>
StridedLoop<N + 1> BroadcastLoop(const Shape& out, const std::array<const Shape*, N>& shapes) {
  StridedLoop<N + 1> loop;
  loop.dims = out.dims();
  loop.strides[0] = DenseStrides(out);
  for (size_t i = 0; i < N; ++i) loop.strides[i + 1] = BroadcastStrides(*shapes[i], out);
  loop.Merge();
  return loop;
}

// Copies elements of `width` bytes (1, 2, 4, 8, 16): operand 0 is written, operand 1 read.
void CopyStrided(const StridedLoop<2>& loop, size_t width, void* out, const void* in);

// out[columns, rows] = the transpose of in[rows, columns].
void TransposeMatrix(const float* in, int64_t rows, int64_t columns, float* out);

}  // namespace onnxd
