#include "runtime/providers/gpu/pointwise.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

enum class Access { kAbsent, kFlat, kScalar, kStrided };

Access AccessOf(const std::vector<int64_t>& dims, const std::vector<int64_t>& strides) {
  bool scalar = true, flat = true;
  int64_t expected = 1;
  for (size_t axis = dims.size(); axis-- > 0;) {
    scalar = scalar && strides[axis] == 0;
    flat = flat && strides[axis] == expected;
    expected *= dims[axis];
  }
  if (scalar) return Access::kScalar;
  return flat ? Access::kFlat : Access::kStrided;
}

std::string SourceOf(const PointwiseProgram& program, const std::vector<Access>& access,
                     bool wide) {
  std::string source = Define("INDEX", wide ? "i64" : "u32");
  std::string parameters, offsets, steps, loads, stores;
  bool strided = false;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    if (program.inputs[i] == DataType::kUndefined) continue;
    source += DefineType(StrCat("X", i), program.inputs[i]);
    parameters += StrCat("GLOBAL const X", i, "* p", i, ", ");
    if (access[i] == Access::kStrided) {
      strided = true;
      parameters += StrCat("Dims strides", i, ", ");
      offsets += StrCat("  INDEX o", i, " = 0;\n");
      steps += StrCat("    o", i, " += at * (INDEX)strides", i, ".at[axis];\n");
    }
    const std::string at = access[i] == Access::kFlat     ? "i"
                           : access[i] == Access::kScalar ? "0"
                                                          : StrCat("o", i);
    loads += StrCat("  const X", i, "_C x", i, " = X", i, "_GET(p", i, ", ", at, ");\n");
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    source += DefineType(StrCat("Y", i), program.outputs[i]);
    parameters += StrCat("GLOBAL Y", i, "* y", i, ", ");
    stores += StrCat("  Y", i, "_PUT(y", i, ", i, ", program.results[i], ");\n");
  }
  source += program.functions;
  source += StrCat("KERNEL pointwise(", parameters, strided ? "Dims dims, i32 rank, " : "",
                   "i64 count, GLOBAL u32* failure, u32 step) {\n"
                   "  const INDEX i = (INDEX)GLOBAL_INDEX;\n"
                   "  if (i >= (INDEX)count) return;\n");
  if (strided) {
    source += StrCat(offsets,
                     "  INDEX rest = i;\n"
                     "  for (i32 axis = rank - 1; axis >= 0; --axis) {\n"
                     "    const INDEX dim = (INDEX)dims.at[axis];\n"
                     "    const INDEX at = rest % dim;\n"
                     "    rest /= dim;\n",
                     steps, "  }\n");
  }
  return StrCat(source, loads, program.statements, stores, "}\n");
}

}  // namespace

void DeviceLoop::Join() {
  for (size_t axis = 0; axis < dims.size();) {
    if (dims[axis] == 1) {
      dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
      for (auto& s : strides) s.erase(s.begin() + static_cast<std::ptrdiff_t>(axis));
      continue;
    }
    ++axis;
  }
  for (size_t axis = 1; axis < dims.size();) {
    const auto joins = [&](const std::vector<int64_t>& s) {
      return s[axis - 1] == s[axis] * dims[axis];
    };
    if (!std::all_of(strides.begin(), strides.end(), joins)) {
      ++axis;
      continue;
    }
    dims[axis - 1] *= dims[axis];
    dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
    for (auto& s : strides) {
      s[axis - 1] = s[axis];
      s.erase(s.begin() + static_cast<std::ptrdiff_t>(axis));
    }
  }
}

Result<DeviceDims> ToDeviceDims(const std::vector<int64_t>& values) {
  if (values.size() > kMostDeviceDims) {
    return Unimplemented(StrCat("the device computes with up to ", kMostDeviceDims,
                                " dimensions, not with ", values.size()));
  }
  DeviceDims dims;
  std::copy(values.begin(), values.end(), dims.values.begin());
  return dims;
}

Result<PreparedKernel> PreparePointwise(const PointwiseProgram& program, GpuDevice& device,
                                        std::span<const Shape* const> inputs, const Shape& output,
                                        std::function<Status(const DeviceFailure&)> on_failure) {
  const int64_t count = output.ElementCount();
  if (count == 0) return NothingToDo();
  DeviceLoop loop;
  loop.dims.assign(output.dims().begin(), output.dims().end());
  for (const Shape* shape : inputs) {
    loop.strides.push_back(BroadcastStrides(shape != nullptr ? *shape : Shape(), output));
  }
  loop.Join();
  std::vector<Access> access;
  std::vector<DeviceDims> strides;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto& s = loop.strides[i];
    access.push_back(inputs[i] == nullptr ? Access::kAbsent : AccessOf(loop.dims, s));
    ONNXD_ASSIGN_OR_RETURN(const DeviceDims made, ToDeviceDims(s));
    strides.push_back(made);
  }
  ONNXD_ASSIGN_OR_RETURN(const DeviceDims dims, ToDeviceDims(loop.dims));
  const bool wide = count > std::numeric_limits<int32_t>::max();
  const bool strided = std::find(access.begin(), access.end(), Access::kStrided) != access.end();
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                         device.FindKernel(SourceOf(program, access, wide), "pointwise"));
  PreparedKernel prepared;
  prepared.on_failure = std::move(on_failure);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (access[i] == Access::kFlat && !program.outputs.empty()) {
      prepared.in_place.emplace_back(0, static_cast<int>(i));
    }
  }
  prepared.compute = [=, outputs = program.outputs.size(),
                      rank = static_cast<int32_t>(loop.dims.size())](const KernelContext& k) {
    LaunchArguments arguments;
    for (size_t i = 0; i < access.size(); ++i) {
      if (access[i] == Access::kAbsent) continue;
      arguments.Pointer(k.input<void>(i));
      if (access[i] == Access::kStrided) arguments.Value(strides[i]);
    }
    for (size_t i = 0; i < outputs; ++i) arguments.Pointer(k.output<void>(i));
    if (strided) arguments.Value(dims).Value(rank);
    arguments.Value(count).Pointer(k.stream().failure_word()).Value(k.step());
    return Launch(k, kernel, LaunchGrid::Over(count), arguments);
  };
  return prepared;
}

}  // namespace onnxd
