// What kernels of a GPU share: how they are made, find their programs, and launch them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/device/gpu_device.h"
#include "runtime/kernel/kernel.h"

namespace onnxd {

// Returns the kernel, or kUnimplemented with the reason why the device declines the node.
using GpuKernelFactory = Result<std::unique_ptr<Kernel>> (*)(const KernelInfo& info,
                                                             GpuDevice& device);

// A Kernel whose Prepare is a function object. `on_host`: the inputs that it wants in the host's
// memory; `at_strides`: those that it takes so.
template <typename PrepareFunction>
std::unique_ptr<Kernel> MakeGpuKernel(PrepareFunction prepare, InputSet on_host = {},
                                      InputSet at_strides = {}) {
  class GpuFunctionKernel : public Kernel {
   public:
    GpuFunctionKernel(PrepareFunction p, InputSet host, InputSet strides)
        : prepare_(std::move(p)), on_host_(host), at_strides_(strides) {}
    Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
      return prepare_(context);
    }
    bool ReadsOnHost(size_t input) const override { return on_host_.Has(input); }
    bool TakesStrides(size_t input) const override { return at_strides_.Has(input); }

   private:
    PrepareFunction prepare_;
    InputSet on_host_, at_strides_;
  };
  return std::make_unique<GpuFunctionKernel>(std::move(prepare), on_host, at_strides);
}

using GpuProgram = std::shared_ptr<const DeviceKernel>;

inline Status Launch(const KernelContext& context, const GpuProgram& program,
                     const LaunchGrid& grid, const LaunchArguments& arguments) {
  if (grid.groups[0] == 0 || grid.groups[1] == 0 || grid.groups[2] == 0) return Status::Ok();
  return static_cast<GpuStream&>(context.stream()).Launch(*program, grid, arguments);
}

// Nothing to compute: an output has no elements.
inline PreparedKernel NothingToDo() {
  PreparedKernel prepared;
  prepared.compute = [](const KernelContext&) { return Status::Ok(); };
  return prepared;
}

// "OPERATOR of TYPE is not computed on the device".
Status DeclineOnDevice(const KernelInfo& info, DataType type);

// The output's shape depends on values that are not known yet.
Status NeedsValues();

// The elements of an int input that is on the host and known, or of an attribute where the version
// has one; `fallback` where there is neither. kFailedPrecondition while they are not known.
Result<std::vector<int64_t>> KnownInts(const PrepareContext& context, size_t input,
                                       std::string_view attribute, std::vector<int64_t> fallback);

// The type by which elements of a type are moved, whatever they mean: uint8, uint16, uint32 or
// uint64; kUndefined for those that are not of whole bytes up to eight.
DataType MovedAs(DataType type);

}  // namespace onnxd
