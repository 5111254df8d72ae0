#include "runtime/providers/cpu/strided_loop.h"

#include <algorithm>
#include <cstring>

#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

template <typename T>
void CopyTyped(const StridedLoop<2>& loop, T* out, const T* in) {
  const int64_t count = loop.inner_count();
  const int64_t out_step = loop.inner_stride(0), in_step = loop.inner_stride(1);
  loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 2>& offsets) {
    T* to = out + offsets[0];
    const T* from = in + offsets[1];
    if (out_step == 1 && in_step == 1) {
      std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    } else {
      for (int64_t i = 0; i < count; ++i) to[i * out_step] = from[i * in_step];
    }
  });
}

// Both operands contiguous along different axes (a matrix transpose): tiles keep cache lines whole.
template <typename T>
void TransposeTiles(T* out, const T* in, int64_t rows, int64_t columns, int64_t out_stride,
                    int64_t in_stride) {
  constexpr int64_t kTile = 16;
  for (int64_t r = 0; r < rows; r += kTile) {
    const int64_t r_end = std::min(rows, r + kTile);
    for (int64_t c = 0; c < columns; c += kTile) {
      const int64_t c_end = std::min(columns, c + kTile);
      for (int64_t i = r; i < r_end; ++i) {
        for (int64_t j = c; j < c_end; ++j) out[i * out_stride + j] = in[j * in_stride + i];
      }
    }
  }
}

// The 4 x 4 transpose of 32-bit elements.
void TransposeBlock(uint32_t* out, const uint32_t* in, int64_t out_stride, int64_t in_stride) {
  typedef uint32_t Four __attribute__((vector_size(16)));
  Four r[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], in + i * in_stride, sizeof(Four));
  const Four a = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
  const Four b = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
  const Four c = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
  const Four d = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
  const Four rows[4] = {
      __builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
      __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
  for (int i = 0; i < 4; ++i) std::memcpy(out + i * out_stride, &rows[i], sizeof(Four));
}

// The 8 x 8 transpose of bytes.
void TransposeBlock(uint8_t* out, const uint8_t* in, int64_t out_stride, int64_t in_stride) {
  typedef uint8_t Bytes __attribute__((vector_size(16)));
  typedef uint16_t Pairs __attribute__((vector_size(16)));
  typedef uint32_t Fours __attribute__((vector_size(16)));
  typedef uint64_t Halves __attribute__((vector_size(16)));
  Bytes r[8];
  for (int i = 0; i < 8; ++i) {
    uint64_t row;
    std::memcpy(&row, in + i * in_stride, sizeof(row));
    r[i] = reinterpret_cast<Bytes>(Halves{row, 0});
  }
  Pairs pairs[4];
  for (int i = 0; i < 4; ++i) {
    pairs[i] = reinterpret_cast<Pairs>(__builtin_shufflevector(
        r[2 * i], r[2 * i + 1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
  }
  Fours low[2], high[2];
  for (int i = 0; i < 2; ++i) {
    const Pairs a = pairs[2 * i], b = pairs[2 * i + 1];
    low[i] = reinterpret_cast<Fours>(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
    high[i] = reinterpret_cast<Fours>(__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
  }
  const Fours rows[4] = {__builtin_shufflevector(low[0], low[1], 0, 4, 1, 5),
                         __builtin_shufflevector(low[0], low[1], 2, 6, 3, 7),
                         __builtin_shufflevector(high[0], high[1], 0, 4, 1, 5),
                         __builtin_shufflevector(high[0], high[1], 2, 6, 3, 7)};
  for (int i = 0; i < 8; ++i) {
    const uint64_t row = reinterpret_cast<Halves>(rows[i / 2])[i % 2];
    std::memcpy(out + i * out_stride, &row, sizeof(row));
  }
}

// Matrices of bytes by blocks; the rest by elements.
void TransposeTiles(uint8_t* out, const uint8_t* in, int64_t rows, int64_t columns,
                    int64_t out_stride, int64_t in_stride) {
  constexpr int64_t kBlock = 8;
  const int64_t whole_rows = rows / kBlock * kBlock, whole_columns = columns / kBlock * kBlock;
  for (int64_t i = 0; i < whole_rows; i += kBlock) {
    for (int64_t j = 0; j < whole_columns; j += kBlock) {
      TransposeBlock(out + i * out_stride + j, in + j * in_stride + i, out_stride, in_stride);
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      out[i * out_stride + j] = in[j * in_stride + i];
    }
  }
}

// The transpose of a few rows that lie apart, such as the planes of an image, interleaved.
template <int columns>
void Interleave(uint32_t* out, const uint32_t* in, int64_t rows, int64_t out_stride,
                int64_t in_stride) {
  for (int64_t i = 0; i < rows; ++i) {
    for (int j = 0; j < columns; ++j) out[i * out_stride + j] = in[j * in_stride + i];
  }
}

// Matrices of 32-bit elements by blocks; the rest, and narrow ones, row by row.
void TransposeWords(uint32_t* out, const uint32_t* in, int64_t rows, int64_t columns,
                    int64_t out_stride, int64_t in_stride) {
  if (columns == 2) return Interleave<2>(out, in, rows, out_stride, in_stride);
  if (columns == 3) return Interleave<3>(out, in, rows, out_stride, in_stride);
  constexpr int64_t kTile = 64, kLine = 16;  // rows; columns that fill a cache line
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t r = 0; r < whole_rows; r += kTile) {
    const int64_t r_end = std::min(whole_rows, r + kTile);
    for (int64_t c = 0; c < whole_columns; c += kLine) {
      const int64_t c_end = std::min(whole_columns, c + kLine);
      for (int64_t i = r; i < r_end; i += 4) {
        for (int64_t j = c; j < c_end; j += 4) {
          TransposeBlock(out + i * out_stride + j, in + j * in_stride + i, out_stride, in_stride);
        }
      }
    }
  }
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j) {
      out[i * out_stride + j] = in[j * in_stride + i];
    }
  }
}

void TransposeTiles(uint32_t* out, const uint32_t* in, int64_t rows, int64_t columns,
                    int64_t out_stride, int64_t in_stride) {
  TransposeWords(out, in, rows, columns, out_stride, in_stride);
}

template <typename T>
bool TryTranspose(const StridedLoop<2>& loop, T* out, const T* in) {
  const size_t rank = loop.dims.size();
  if (rank < 2) return false;
  const size_t a = rank - 2, b = rank - 1;
  if (loop.strides[0][b] != 1 || loop.strides[1][a] != 1) return false;
  int64_t matrices = 1;
  for (size_t axis = 0; axis < a; ++axis) matrices *= loop.dims[axis];
  loop.ForLeading(a, 0, matrices, [&](const std::array<int64_t, 2>& offsets) {
    TransposeTiles(out + offsets[0], in + offsets[1], loop.dims[a], loop.dims[b],
                   loop.strides[0][a], loop.strides[1][b]);
  });
  return true;
}

}  // namespace

void TransposeMatrix(const float* in, int64_t rows, int64_t columns, float* out) {
  TransposeWords(reinterpret_cast<uint32_t*>(out), reinterpret_cast<const uint32_t*>(in), columns,
                 rows, rows, columns);
}

void CopyStrided(const StridedLoop<2>& loop, size_t width, void* out, const void* in) {
  for (const int64_t dim : loop.dims) {
    if (dim == 0) return;
  }
  const auto copy = [&]<typename T>() {
    if (!TryTranspose(loop, static_cast<T*>(out), static_cast<const T*>(in))) {
      CopyTyped(loop, static_cast<T*>(out), static_cast<const T*>(in));
    }
  };
  switch (width) {
    case 1:
      return copy.operator()<uint8_t>();
    case 2:
      return copy.operator()<uint16_t>();
    case 4:
      return copy.operator()<uint32_t>();
    case 8:
      return copy.operator()<uint64_t>();
    default:
      return copy.operator()<Bytes16>();
  }
}

}  // namespace onnxd
