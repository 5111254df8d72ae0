// Kernels that compute each element of their outputs from one element of each input, which may be
// broadcast.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "runtime/providers/gpu/gpu_kernel.h"
#include "runtime/tensor/shape.h"
#include "runtime/tensor/strides.h"

namespace onnxd {

// What to compute: statements over x0, x1, ... (of the inputs' compute types, X0_C and so on), and
// one expression per output.
struct PointwiseProgram {
  std::vector<DataType> inputs;  // kUndefined: absent
  std::vector<DataType> outputs;
  std::string functions;   // before the kernel
  std::string statements;  // may RAISE(failure, step, code, value)
  std::vector<std::string> results;
};

// Inputs are broadcast to `output`, the shape of all outputs, as in numpy; null for absent ones.
// Requires shapes that allow it. kUnimplemented where more dimensions are left than kernels have,
// after those that lie together are joined.
Result<PreparedKernel> PreparePointwise(const PointwiseProgram& program, GpuDevice& device,
                                        std::span<const Shape* const> inputs, const Shape& output,
                                        std::function<Status(const DeviceFailure&)> on_failure);

// An iteration over a shape with operands of strides of their own, in as few dimensions as say the
// same. `strides`: one per operand, in elements, 0 where it is broadcast.
struct DeviceLoop {
  std::vector<int64_t> dims;
  std::vector<std::vector<int64_t>> strides;

  void Join();  // neighbours that every operand steps through as one
};

Result<DeviceDims> ToDeviceDims(const std::vector<int64_t>& values);

}  // namespace onnxd
