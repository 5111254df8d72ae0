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

// Operands that are broadcast to one shape, as kernels read them.
class BroadcastOperands {
 public:
  // `types`: kUndefined for absent ones, whose shapes are null. Requires shapes that broadcast to
  // `output`. kUnimplemented where more dimensions are left than kernels have, after those that lie
  // together are joined.
  // `prefix`: of the names of types and parameters, for several in a kernel. `columns`: of output,
  // whose last axes are rows of so many, of which the kernel knows INDEX `column`; 0: it does not.
  static Result<BroadcastOperands> Make(std::span<const DataType> types,
                                        std::span<const Shape* const> shapes, const Shape& output,
                                        std::string prefix = "", int64_t columns = 0);
  BroadcastOperands() = default;

  // Text of a kernel: operand 2 is called x2. No lines end in it but those of Types.
  std::string Types() const;
  std::string Parameters() const;  // each with a comma behind it
  std::string Names() const;       // of these, to hand them on
  std::string Loads() const;       // statements that define x0, ... from INDEX i

  // The same for `vector` elements from INDEX `first` on, a multiple of it: types after Types, and
  // statements before a loop over i32 e, in which LoadsOf define x0, ... from i, which is first +
  // e.
  std::string VectorTypes(int64_t vector) const;
  std::string VectorLoads(int64_t vector) const;
  std::string LoadsOf(int64_t vector) const;

  // Adds what Parameters names. `inputs`: of the call, by operand.
  void Fill(const KernelContext& context, std::span<const size_t> inputs,
            LaunchArguments& arguments) const;

  // Whether operand i lies as the output does.
  bool IsFlat(size_t i) const { return operands_[i].access == Access::kFlat; }

 private:
  // kRun: element i / same % period, as of a bias by channel.
  enum class Access { kAbsent, kFlat, kScalar, kRun, kStrided };
  struct Operand {
    DataType type;
    Access access;
    DeviceDims strides;
    int64_t same = 1;    // neighbours that are one element
    int64_t period = 0;  // elements until it begins anew; 0: it does not
  };

  // How operand i is read for several elements at once: by one load, or as one element for all.
  bool IsVector(const Operand& operand, int64_t vector) const;
  static bool IsOne(const Operand& operand, int64_t vector);
  std::string Place(const Operand& operand, size_t i, std::string_view index) const;
  static void FindAccess(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides,
                         Operand& operand);
  bool strided() const;
  std::string Named(std::string_view name, size_t i) const;

  std::string prefix_;
  int64_t columns_ = 0;
  std::vector<Operand> operands_;
  DeviceDims dims_;
  int32_t rank_ = 0;
};

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

// offset_of(index, rank, dims, strides): where element `index` of a box of `dims` is. Before a
// kernel.
inline constexpr std::string_view kOffsetFunction = R"(
FUNCTION i64 offset_of(i64 index, i32 rank, Dims dims, Dims strides) {
  if (rank == 1) return index * strides.at[0];
  i64 offset = 0;
  for (i32 axis = rank - 1; axis >= 0; --axis) {
    offset += index % dims.at[axis] * strides.at[axis];
    index /= dims.at[axis];
  }
  return offset;
}
)";

Result<DeviceDims> ToDeviceDims(const std::vector<int64_t>& values);

}  // namespace onnxd
