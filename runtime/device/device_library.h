// DeviceLibrary: products and convolutions that the maker of a device computes by a library of its
// own.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "runtime/base/status.h"
#include "runtime/tensor/data_type.h"

namespace onnxd {

class GpuStream;

// y[batch, i, j] = sum over p of a(i, p) * b(p, j), all dense and row-major: a is [m, k], or [k, m]
// where it is transposed, b is [k, n] or [n, k], y is [batch, m, n]. Sums are of f32, rounded once,
// with a row [n] added to each of y's, and a matrix [batch, m, n], where that is asked for, both of
// y's type, and negative ones taken for 0 at last where that is.
struct LibraryProduct {
  DataType operands = DataType::kUndefined;  // float, float16 or bfloat16
  DataType result = DataType::kUndefined;    // the same, or float
  int64_t batch = 1, m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t a_stride = 0, b_stride = 0;  // elements from one matrix to the next; 0: one for all
  bool adds_row = false, adds_matrix = false, relu = false;
};

// y of ONNX Conv-1, or of ConvTranspose-1 where it is transposed, without a bias; b is the image,
// a its weights, and sums are of f32. Spatial axes are depth, height and width, 1 where there are
// fewer. With the channels last, images are [image, height, width, channel] and weights [filter,
// height, width, channel]. A row of one number per filter, a matrix as y, and what negative sums
// become are those of LibraryProduct.
struct LibraryConvolution {
  DataType type = DataType::kUndefined;  // of all three: float, float16 or bfloat16
  bool transposed = false, channels_last = false;
  bool adds_row = false, adds_matrix = false, relu = false;
  int64_t images = 0, groups = 1;
  int64_t channels = 0, filters = 0;  // of a group: of the image, and of y
  std::array<int64_t, 3> input{}, output{}, kernel{}, strides{}, dilations{};
  std::array<int64_t, 3>
      pads{};  // before the first element; behind the last one, what output needs
};

// Of a workspace: NVIDIA's libraries refuse others.
inline constexpr size_t kWorkspaceAlignment = 256;

// On the device, aligned to 64 bytes but for the workspace.
struct LibraryOperands {
  const void *a, *b;
  void *y, *workspace;
  const void *row = nullptr, *matrix = nullptr;  // where they are added
};

// One way of the library. Any thread.
struct LibraryKernel {
  std::string name;                        // of the library's version, too
  DataType result = DataType::kUndefined;  // type of y
  size_t workspace_bytes = 0;
  std::function<Status(GpuStream& stream, const LibraryOperands& operands)> enqueue;
};

// Any thread.
class DeviceLibrary {
 public:
  virtual ~DeviceLibrary() = default;
  // The best guess first; nothing where the library does not compute it.
  virtual std::vector<LibraryKernel> FindProduct(const LibraryProduct&) { return {}; }
  virtual std::vector<LibraryKernel> FindConvolution(const LibraryConvolution&) { return {}; }
};

}  // namespace onnxd
