#include "runtime/providers/gpu/pointwise.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

std::string SourceOf(const PointwiseProgram& program, const BroadcastOperands& operands,
                     bool wide) {
  std::string source = Define("INDEX", wide ? "i64" : "u32") + operands.Types();
  std::string parameters = operands.Parameters(), stores;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    source += DefineType(StrCat("Y", i), program.outputs[i]);
    parameters += StrCat("GLOBAL Y", i, "* y", i, ", ");
    stores += StrCat("  Y", i, "_PUT(y", i, ", i, ", program.results[i], ");\n");
  }
  return StrCat(source, program.functions, "KERNEL pointwise(", parameters,
                "i64 count, GLOBAL u32* failure, u32 step) {\n"
                "  const INDEX i = (INDEX)GLOBAL_INDEX;\n"
                "  if (i >= (INDEX)count) return;\n  ",
                operands.Loads(), "\n  ", program.statements, "\n", stores, "}\n");
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

void BroadcastOperands::FindAccess(const std::vector<int64_t>& dims,
                                   const std::vector<int64_t>& strides, Operand& operand) {
  const size_t rank = dims.size();
  size_t first = 0, last = rank;  // the axes in [first, last) are its own
  while (first < rank && strides[first] == 0) ++first;
  while (last > first && strides[last - 1] == 0) --last;
  operand.access = first == rank ? Access::kScalar : Access::kStrided;
  if (first == rank) return;
  int64_t elements = 1;
  for (size_t axis = last; axis-- > first;) {
    if (strides[axis] != elements) return;
    elements *= dims[axis];
  }
  for (size_t axis = last; axis < rank; ++axis) operand.same *= dims[axis];
  if (first > 0) operand.period = elements;
  operand.access = first == 0 && last == rank ? Access::kFlat : Access::kRun;
}

Result<BroadcastOperands> BroadcastOperands::Make(std::span<const DataType> types,
                                                  std::span<const Shape* const> shapes,
                                                  const Shape& output, std::string prefix) {
  DeviceLoop loop;
  loop.dims.assign(output.dims().begin(), output.dims().end());
  for (const Shape* shape : shapes) {
    loop.strides.push_back(BroadcastStrides(shape != nullptr ? *shape : Shape(), output));
  }
  loop.Join();
  BroadcastOperands made;
  made.prefix_ = std::move(prefix);
  for (size_t i = 0; i < types.size(); ++i) {
    Operand operand{types[i], Access::kAbsent, {}};
    if (shapes[i] != nullptr) FindAccess(loop.dims, loop.strides[i], operand);
    ONNXD_ASSIGN_OR_RETURN(operand.strides, ToDeviceDims(loop.strides[i]));
    made.operands_.push_back(operand);
  }
  ONNXD_ASSIGN_OR_RETURN(made.dims_, ToDeviceDims(loop.dims));
  made.rank_ = static_cast<int32_t>(loop.dims.size());
  return made;
}

bool BroadcastOperands::strided() const {
  return std::any_of(operands_.begin(), operands_.end(),
                     [](const Operand& o) { return o.access == Access::kStrided; });
}

std::string BroadcastOperands::Named(std::string_view name, size_t i) const {
  return StrCat(prefix_, name, i);
}

std::string BroadcastOperands::Types() const {
  std::string text;
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (operands_[i].access == Access::kAbsent) continue;
    text += DefineType(Named("X", i), operands_[i].type);
  }
  return text;
}

std::string BroadcastOperands::Parameters() const {
  std::string text;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Access access = operands_[i].access;
    if (access == Access::kAbsent) continue;
    text += StrCat("GLOBAL const ", Named("X", i), "* ", Named("p", i), ", ");
    if (access == Access::kStrided) text += StrCat("Dims ", Named("strides", i), ", ");
    if (access == Access::kRun) {
      text += StrCat("i64 ", Named("same", i), ", i64 ", Named("period", i), ", ");
    }
  }
  return text + (strided() ? StrCat("Dims ", prefix_, "dims, i32 ", prefix_, "rank, ") : "");
}

std::string BroadcastOperands::Names() const {
  std::string text;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Access access = operands_[i].access;
    if (access == Access::kAbsent) continue;
    text += Named("p", i) + ", ";
    if (access == Access::kStrided) text += Named("strides", i) + ", ";
    if (access == Access::kRun) text += StrCat(Named("same", i), ", ", Named("period", i), ", ");
  }
  return text + (strided() ? StrCat(prefix_, "dims, ", prefix_, "rank, ") : "");
}

std::string BroadcastOperands::Loads() const {
  std::string offsets, steps, loads;
  for (size_t i = 0; i < operands_.size(); ++i) {
    std::string at;
    switch (operands_[i].access) {
      case Access::kAbsent:
        continue;
      case Access::kFlat:
        at = "i";
        break;
      case Access::kScalar:
        at = "0";
        break;
      case Access::kRun:
        at = operands_[i].same == 1 ? std::string("i") : StrCat("i / (INDEX)", Named("same", i));
        if (operands_[i].period != 0) at += StrCat(" % (INDEX)", Named("period", i));
        break;
      case Access::kStrided:
        at = StrCat("o", i);
        offsets += StrCat("INDEX o", i, " = 0; ");
        steps += StrCat("o", i, " += at_axis * (INDEX)", Named("strides", i), ".at[axis]; ");
        break;
    }
    const std::string type = Named("X", i);
    loads +=
        StrCat("const ", type, "_C x", i, " = ", type, "_GET(", Named("p", i), ", ", at, "); ");
  }
  if (steps.empty()) return loads;
  return StrCat(offsets, "{ INDEX rest = i; for (i32 axis = ", prefix_,
                "rank - 1; axis >= 0; --axis) { const INDEX dim = (INDEX)", prefix_,
                "dims.at[axis]; const INDEX at_axis = rest % dim; rest /= dim; ", steps, "} } ",
                loads);
}

void BroadcastOperands::Fill(const KernelContext& context, std::span<const size_t> inputs,
                             LaunchArguments& arguments) const {
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (operand.access == Access::kAbsent) continue;
    arguments.Pointer(context.input<void>(inputs[i]));
    if (operand.access == Access::kStrided) arguments.Value(operand.strides);
    if (operand.access == Access::kRun) arguments.Value(operand.same).Value(operand.period);
  }
  if (strided()) arguments.Value(dims_).Value(rank_);
}

Result<PreparedKernel> PreparePointwise(const PointwiseProgram& program, GpuDevice& device,
                                        std::span<const Shape* const> inputs, const Shape& output,
                                        std::function<Status(const DeviceFailure&)> on_failure) {
  const int64_t count = output.ElementCount();
  if (count == 0) return NothingToDo();
  ONNXD_ASSIGN_OR_RETURN(const BroadcastOperands operands,
                         BroadcastOperands::Make(program.inputs, inputs, output));
  const bool wide = count > std::numeric_limits<int32_t>::max();
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                         device.FindKernel(SourceOf(program, operands, wide), "pointwise"));
  PreparedKernel prepared;
  prepared.on_failure = std::move(on_failure);
  std::vector<size_t> order;
  for (size_t i = 0; i < inputs.size(); ++i) {
    order.push_back(i);
    const bool same_bytes = !program.outputs.empty() && inputs[i] != nullptr &&
                            DataTypeBits(program.inputs[i]) == DataTypeBits(program.outputs[0]);
    if (same_bytes && operands.IsFlat(i)) prepared.in_place.emplace_back(0, static_cast<int>(i));
  }
  prepared.compute = [=, outputs = program.outputs.size()](const KernelContext& k) {
    LaunchArguments arguments;
    operands.Fill(k, order, arguments);
    for (size_t i = 0; i < outputs; ++i) arguments.Pointer(k.output<void>(i));
    arguments.Value(count).Pointer(k.stream().failure_word()).Value(k.step());
    return Launch(k, kernel, LaunchGrid::Over(count), arguments);
  };
  return prepared;
}

}  // namespace onnxd
