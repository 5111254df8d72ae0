#include "runtime/providers/gpu/pointwise.h"

#include <algorithm>
#include <limits>

#include "runtime/base/str_cat.h"

namespace onnxd {
namespace {

std::string SourceOf(const PointwiseProgram& program, const BroadcastOperands& operands, bool wide,
                     int64_t vector) {
  std::string source = StrCat(Define("INDEX", wide ? "i64" : "u32"), Define("VECTOR", vector),
                              operands.Types(), operands.VectorTypes(vector));
  std::string parameters = operands.Parameters(), results, puts, stores;
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const std::string type = StrCat("Y", i);
    source += DefineType(type, program.outputs[i]) + DefineVector(type, program.outputs[i], vector);
    parameters += StrCat("GLOBAL ", type, "* y", i, ", ");
    results += StrCat("  ", type, "_VECTOR of_y", i, ";\n");
    puts += StrCat("    ", type, "_PUT(of_y", i, ".at, e, ", program.results[i], ");\n");
    stores += StrCat("  *(GLOBAL ", type, "_WORDS*)(y", i, " + first) = of_y", i, ".words;\n");
  }
  return StrCat(source, program.functions, "KERNEL pointwise(", parameters,
                "i64 count, GLOBAL u32* failure, u32 step) {\n"
                "  const INDEX first = (INDEX)GLOBAL_INDEX * VECTOR;\n"
                "  if (first >= (INDEX)count) return;\n  ",
                operands.VectorLoads(vector), "\n", results,
                "  UNROLL\n  for (i32 e = 0; e < VECTOR; ++e) {\n"
                "    const INDEX i = first + e;\n    ",
                operands.LoadsOf(vector), "\n  ", program.statements, "\n", puts, "  }\n", stores,
                "}\n");
}

// Elements that a lane computes: as many as 16 bytes hold of the widest type, where that leaves
// every multiprocessor enough lanes.
int64_t VectorFor(const PointwiseProgram& program, const GpuProperties& properties, int64_t count) {
  constexpr int64_t kMostBytes = 16, kLanesEnough = 1024;  // of a multiprocessor
  int64_t widest = 1;
  for (const auto* types : {&program.inputs, &program.outputs}) {
    for (const DataType type : *types) {
      if (type == DataType::kUndefined) continue;
      widest = std::max(widest, static_cast<int64_t>(DataTypeBits(type) / 8));
    }
  }
  int64_t vector = kMostBytes / widest;
  while (vector > 1 &&
         (count % vector != 0 || count / vector < properties.multiprocessors * kLanesEnough)) {
    vector /= 2;
  }
  return vector;
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
                                                  const Shape& output, std::string prefix,
                                                  int64_t columns) {
  DeviceLoop loop;
  loop.dims.assign(output.dims().begin(), output.dims().end());
  for (const Shape* shape : shapes) {
    if (shape != nullptr && !IsBroadcastable(*shape, output)) {
      return InvalidArgument(
          StrCat("shape ", shape->ToString(), " does not broadcast to ", output.ToString()));
    }
    loop.strides.push_back(BroadcastStrides(shape != nullptr ? *shape : Shape(), output));
  }
  loop.Join();
  BroadcastOperands made;
  made.prefix_ = std::move(prefix);
  made.columns_ = columns;
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

bool BroadcastOperands::IsVector(const Operand& operand, int64_t vector) const {
  if (operand.access == Access::kFlat) return true;
  return operand.access == Access::kRun && operand.same == 1 && operand.period % vector == 0;
}

bool BroadcastOperands::IsOne(const Operand& operand, int64_t vector) {
  return operand.access == Access::kScalar ||
         (operand.access == Access::kRun && operand.same % vector == 0);
}

std::string BroadcastOperands::Place(const Operand& operand, size_t i,
                                     std::string_view index) const {
  if (operand.access == Access::kScalar) return "0";
  if (operand.access == Access::kStrided) return StrCat("o", i);
  std::string at(index);
  if (operand.access == Access::kFlat) return at;
  if (operand.same == 1 && columns_ > 0 && operand.period == columns_) return "column";
  if (operand.same != 1) at += StrCat(" / (INDEX)", Named("same", i));
  if (operand.period != 0) at += StrCat(" % (INDEX)", Named("period", i));
  return at;
}

std::string BroadcastOperands::Loads() const { return LoadsOf(1); }

std::string BroadcastOperands::VectorTypes(int64_t vector) const {
  std::string text;
  for (size_t i = 0; i < operands_.size(); ++i) {
    if (vector == 1 || !IsVector(operands_[i], vector)) continue;
    text += DefineVector(Named("X", i), operands_[i].type, vector);
  }
  return text;
}

std::string BroadcastOperands::VectorLoads(int64_t vector) const {
  std::string text;
  for (size_t i = 0; i < operands_.size() && vector > 1; ++i) {
    const Operand& operand = operands_[i];
    if (operand.access == Access::kAbsent) continue;
    const std::string type = Named("X", i);
    const std::string place = StrCat(Named("p", i), " + (", Place(operand, i, "first"), ")");
    if (IsVector(operand, vector)) {
      text += StrCat(type, "_VECTOR v", i, "; v", i, ".words = *(GLOBAL const ", type, "_WORDS*)(",
                     place, "); ");
    } else if (IsOne(operand, vector)) {
      text += StrCat("const ", type, "_C x", i, " = ", type, "_GET(", place, ", 0); ");
    }
  }
  return text;
}

std::string BroadcastOperands::LoadsOf(int64_t vector) const {
  std::string offsets, steps, loads;
  for (size_t i = 0; i < operands_.size(); ++i) {
    const Operand& operand = operands_[i];
    if (operand.access == Access::kAbsent) continue;
    const std::string type = Named("X", i);
    if (vector > 1 && IsVector(operand, vector)) {
      loads += StrCat("const ", type, "_C x", i, " = ", type, "_GET(v", i, ".at, e); ");
      continue;
    }
    if (vector > 1 && IsOne(operand, vector)) continue;
    if (operand.access == Access::kStrided) {
      offsets += StrCat("INDEX o", i, " = 0; ");
      steps += StrCat("o", i, " += at_axis * (INDEX)", Named("strides", i), ".at[axis]; ");
    }
    loads += StrCat("const ", type, "_C x", i, " = ", type, "_GET(", Named("p", i), ", ",
                    Place(operand, i, "i"), "); ");
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
  const int64_t vector = VectorFor(program, device.properties(), count);
  ONNXD_ASSIGN_OR_RETURN(const GpuProgram kernel,
                         device.FindKernel(SourceOf(program, operands, wide, vector), "pointwise"));
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
    return Launch(k, kernel, LaunchGrid::Over(count / vector), arguments);
  };
  return prepared;
}

}  // namespace onnxd
