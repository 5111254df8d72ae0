// Scatter-9, ScatterElements-11 to -18, ScatterND-11 to -18 and TensorScatter-24.
#include <algorithm>
#include <cstring>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

enum class Reduction { kNone, kAdd, kMul, kMin, kMax };

Result<Reduction> ReductionOf(const Node& node) {
  const std::string name = node.attributes.String("reduction", "none");
  if (name == "none") return Reduction::kNone;
  if (name == "add") return Reduction::kAdd;
  if (name == "mul") return Reduction::kMul;
  if (name == "min") return Reduction::kMin;
  if (name == "max") return Reduction::kMax;
  return InvalidArgument(StrCat(Describe(node), ": unknown reduction '", name, "'"));
}

template <typename T>
T Combine(Reduction reduction, const T& old, const T& update) {
  if constexpr (std::is_arithmetic_v<T>) {
    switch (reduction) {
      case Reduction::kAdd:
        return static_cast<T>(old + update);
      case Reduction::kMul:
        return static_cast<T>(old * update);
      case Reduction::kMin:
        return std::min(old, update);
      case Reduction::kMax:
        return std::max(old, update);
      default:
        break;
    }
  }
  return update;
}

Result<Tensor> Copy(const Tensor& tensor) {
  ONNXD_ASSIGN_OR_RETURN(Tensor copy, Tensor::Create(tensor.type(), tensor.shape()));
  if (tensor.type() == DataType::kString) {
    std::copy_n(tensor.data<std::string>(), tensor.ElementCount(),
                copy.mutable_data<std::string>());
  } else if (tensor.bytes() > 0) {
    std::memcpy(copy.mutable_raw(), tensor.raw(), tensor.bytes());
  }
  return copy;
}

// Arithmetic types for reductions; any stored type when elements only move.
template <typename Body>
Status Dispatch(const Node& node, DataType type, Reduction reduction, Body body) {
  Status status = DeclineType(node.op_type, type);
  if (type == DataType::kString && reduction == Reduction::kNone) {
    return body.template operator()<std::string>();
  }
  if (reduction != Reduction::kNone) {
    DispatchNumber(type, [&]<typename T>() { status = body.template operator()<T>(); });
  } else if (IsMovable(type)) {
    DispatchWidth(type, [&]<typename T>() { status = body.template operator()<T>(); });
  }
  return status;
}

Result<Values> ScatterElements(const Node& node, std::span<const Value> inputs) {
  const Tensor& data = inputs[0].tensor();
  const Tensor& indices = inputs[1].tensor();
  const Tensor& updates = inputs[2].tensor();
  ONNXD_ASSIGN_OR_RETURN(const Reduction reduction, ReductionOf(node));
  const Shape& shape = data.shape();
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", 0), shape.rank()));
  bool fits = indices.shape() == updates.shape() && indices.shape().rank() == shape.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) {
    fits = i == axis || indices.shape()[i] <= shape[i];
  }
  if (!fits) {
    return InvalidArgument(StrCat(Describe(node), ": indices of shape ", indices.shape().ToString(),
                                  " and updates of shape ", updates.shape().ToString(),
                                  " do not fit data of shape ", shape.ToString()));
  }
  std::vector<int64_t> converted;
  if (indices.type() != DataType::kInt64) converted = ElementsAs<int64_t>(indices);
  const std::span<const int64_t> positions =
      converted.empty() ? indices.elements<int64_t>() : std::span<const int64_t>(converted);
  const int64_t extent = shape[axis];
  for (const int64_t position : positions) {
    if (position < -extent || position >= extent) {
      return InvalidArgument(
          StrCat(Describe(node), ": index ", position, " is outside an axis of ", extent));
    }
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Copy(data));
  const std::vector<int64_t> strides = DenseStrides(shape);
  const int64_t axis_step = strides[static_cast<size_t>(axis)];
  StridedLoop<1> loop;  // over the indices, in order: the last of equal ones wins
  loop.dims = indices.shape().dims();
  loop.strides[0] = strides;
  loop.strides[0][static_cast<size_t>(axis)] = 0;
  loop.Merge();
  ONNXD_RETURN_IF_ERROR(Dispatch(node, data.type(), reduction, [&]<typename T>() {
    T* to = out.mutable_data<T>();
    const T* update = updates.data<T>();
    const int64_t* position = positions.data();
    const int64_t step = loop.inner_stride(0);
    loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 1>& at) {
      for (int64_t i = 0; i < loop.inner_count(); ++i) {
        const int64_t row = *position < 0 ? *position + extent : *position;
        T& target = to[at[0] + i * step + row * axis_step];
        ++position;
        target = Combine(reduction, target, *update++);
      }
    });
    return Status::Ok();
  }));
  return Values{std::move(out)};
}

// Slices of data[..., slice] at the places that tuples of indices name.
struct ScatterNDPlan {
  Shape shape;
  std::vector<int64_t> strides;
  int64_t depth, slice, tuples;
  Reduction reduction;
};

Result<ScatterNDPlan> PlanScatterND(const Node& node, const Shape& shape, const Shape& indices,
                                    const Shape& updates) {
  ScatterNDPlan plan;
  ONNXD_ASSIGN_OR_RETURN(plan.reduction, ReductionOf(node));
  const int rank = indices.rank();
  plan.depth = rank < 1 ? -1 : indices[rank - 1];
  if (plan.depth < 0 || plan.depth > shape.rank()) {
    return InvalidArgument(StrCat(Describe(node), ": indices of shape ", indices.ToString(),
                                  " do not fit data of shape ", shape.ToString()));
  }
  plan.slice = shape.ElementCount(static_cast<int>(plan.depth), shape.rank());
  plan.tuples = indices.ElementCount(0, rank - 1);
  if (updates.ElementCount() != plan.tuples * plan.slice) {
    return InvalidArgument(StrCat(Describe(node), ": updates have shape ", updates.ToString()));
  }
  plan.shape = shape;
  plan.strides = DenseStrides(shape);
  return plan;
}

// Where a tuple points to.
Result<int64_t> PlaceOf(const ScatterNDPlan& plan, const std::string& name, const int64_t* tuple) {
  int64_t at = 0;
  for (int64_t d = 0; d < plan.depth; ++d) {
    const int64_t extent = plan.shape[static_cast<int>(d)];
    if (tuple[d] < -extent || tuple[d] >= extent) {
      return InvalidArgument(StrCat(name, ": index ", tuple[d], " is outside an axis of ", extent));
    }
    at += (tuple[d] < 0 ? tuple[d] + extent : tuple[d]) * plan.strides[static_cast<size_t>(d)];
  }
  return at;
}

template <typename T>
Status RunScatterND(const ScatterNDPlan& plan, const std::string& name, const int64_t* tuples,
                    const T* updates, T* out) {
  for (int64_t tuple = 0; tuple < plan.tuples; ++tuple, updates += plan.slice) {
    ONNXD_ASSIGN_OR_RETURN(const int64_t at, PlaceOf(plan, name, tuples + tuple * plan.depth));
    if (plan.reduction == Reduction::kNone) {
      std::copy_n(updates, plan.slice, out + at);
      continue;
    }
    for (int64_t i = 0; i < plan.slice; ++i) {
      out[at + i] = Combine(plan.reduction, out[at + i], updates[i]);
    }
  }
  return Status::Ok();
}

Result<Values> ScatterNDOfStrings(const Node& node, std::span<const Value> inputs) {
  const Tensor &indices = inputs[1].tensor(), &updates = inputs[2].tensor();
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Copy(inputs[0].tensor()));
  ONNXD_ASSIGN_OR_RETURN(const ScatterNDPlan plan,
                         PlanScatterND(node, out.shape(), indices.shape(), updates.shape()));
  if (plan.reduction != Reduction::kNone) return DeclineType("ScatterND", out.type());
  ONNXD_RETURN_IF_ERROR(RunScatterND(plan, Describe(node), indices.data<int64_t>(),
                                     updates.data<std::string>(), out.mutable_data<std::string>()));
  return Values{std::move(out)};
}

// Writes rows of `update` into the cache along `axis`, from write_indices[batch] on.
Result<Values> TensorScatter(const Node& node, std::span<const Value> inputs) {
  const Tensor& cache = inputs[0].tensor();
  const Tensor& update = inputs[1].tensor();
  const Tensor* writes = TensorAt(inputs, 2);
  const Shape& shape = cache.shape();
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", -2), shape.rank()));
  const bool circular = node.attributes.String("mode", "linear") == "circular";
  bool fits = axis > 0 && update.shape().rank() == shape.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) fits = i == axis || update.shape()[i] == shape[i];
  if (!fits || (writes != nullptr && writes->ElementCount() != shape[0])) {
    return InvalidArgument(StrCat(Describe(node), ": update of shape ", update.shape().ToString(),
                                  " does not fit the cache of shape ", shape.ToString()));
  }
  const int64_t middle = shape.ElementCount(1, axis), rows = update.shape()[axis];
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Copy(cache));
  ONNXD_RETURN_IF_ERROR(Dispatch(node, cache.type(), Reduction::kNone, [&]<typename T>() -> Status {
    for (int64_t b = 0; b < shape[0]; ++b) {
      const int64_t begin = writes != nullptr ? writes->data<int64_t>()[b] : 0;
      for (int64_t row = 0; row < rows; ++row) {
        int64_t to = begin + row;
        if (circular && begin >= 0) to %= shape[axis];
        if (to < 0 || to >= shape[axis]) {
          return InvalidArgument(
              StrCat(Describe(node), ": position ", to, " is outside a cache of ", shape[axis]));
        }
        for (int64_t m = 0; m < middle; ++m) {
          const int64_t lane = b * middle + m;
          std::copy_n(update.data<T>() + (lane * rows + row) * inner, inner,
                      out.mutable_data<T>() + (lane * shape[axis] + to) * inner);
        }
      }
    }
    return Status::Ok();
  }));
  return Values{std::move(out)};
}

// Adding to narrow floats happens in float, one rounding per operator.
bool NeedsArithmetic(const KernelInfo& info) {
  return info.node.attributes.String("reduction", "none") != "none" && !IsNumber(info.InputType(0));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeScatterElements(const KernelInfo& info) {
  if (NeedsArithmetic(info)) return DeclineType("ScatterElements", info.InputType(0));
  return MakeEagerKernel(ScatterElements);
}

Result<std::unique_ptr<Kernel>> MakeScatterND(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (NeedsArithmetic(info)) return DeclineType("ScatterND", type);
  if (type == DataType::kString) return MakeEagerKernel(ScatterNDOfStrings);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const ScatterNDPlan plan,
                           PlanScatterND(context.node, context.InputShape(0), context.InputShape(1),
                                         context.InputShape(2)));
    const int64_t count = plan.shape.ElementCount();
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};  // a cache that grows need not be copied
    prepared.compute = [plan, type, count, node = context.node](const KernelContext& k) {
      return Dispatch(node, type, plan.reduction, [&]<typename T>() -> Status {
        T* out = k.output<T>(0);
        if (out != k.input<T>(0)) std::copy_n(k.input<T>(0), count, out);
        return RunScatterND(plan, Describe(node), k.input<int64_t>(1), k.input<T>(2), out);
      });
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeTensorScatter(const KernelInfo&) {
  return MakeEagerKernel(TensorScatter);
}

}  // namespace onnxd
