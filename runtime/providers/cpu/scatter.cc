// Scatter-9, ScatterElements-11 to -18, ScatterND-11 to -18 and TensorScatter-24.
#include <algorithm>
#include <cstring>

#include "runtime/math/simd.h"
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

// Elements along `axis` of data, at places that indices name, of as many elements as updates or
// broadcast to these.
struct ScatterElementsPlan {
  StridedLoop<2> loop;  // output and indices, over the updates in order: the last of equals wins
  int64_t extent, axis_step;
  Reduction reduction;

  // Whether neighbours go side by side to the place that one index names.
  bool has_rows() const { return loop.inner_stride(0) == 1 && loop.inner_stride(1) == 0; }
};

// Whether indices of this shape, as large as the updates or broadcast to them, fit all.
bool FitUpdates(const Shape& indices, const Shape& updates, bool broadcasts) {
  if (!broadcasts) return indices == updates;
  const int lacking = updates.rank() - indices.rank();
  bool fits = lacking >= 0;
  for (int i = 0; fits && i < indices.rank(); ++i) {
    fits = indices[i] == 1 || indices[i] == updates[i + lacking];
  }
  return fits;
}

Result<ScatterElementsPlan> PlanScatterElements(const Node& node, const Shape& shape,
                                                const Shape& indices, const Shape& updates) {
  ScatterElementsPlan plan;
  ONNXD_ASSIGN_OR_RETURN(plan.reduction, ReductionOf(node));
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", 0), shape.rank()));
  bool fits =
      FitUpdates(indices, updates, node.domain == "onnxd") && updates.rank() == shape.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) fits = i == axis || updates[i] <= shape[i];
  if (!fits) {
    return InvalidArgument(StrCat(Describe(node), ": indices of shape ", indices.ToString(),
                                  " and updates of shape ", updates.ToString(),
                                  " do not fit data of shape ", shape.ToString()));
  }
  const auto along = static_cast<size_t>(axis);
  plan.extent = shape[axis];
  plan.loop.dims = updates.dims();
  plan.loop.strides = {DenseStrides(shape), BroadcastStrides(indices, updates)};
  plan.axis_step = plan.loop.strides[0][along];
  plan.loop.strides[0][along] = 0;
  plan.loop.Merge();
  return plan;
}

// The place that an index names; -1: none.
int64_t PlaceOn(int64_t extent, int64_t index) {
  const int64_t place = index < 0 ? index + extent : index;
  return place < extent ? std::max<int64_t>(place, -1) : -1;
}

Status OutsideAxis(const std::string& name, int64_t index, int64_t extent) {
  return InvalidArgument(StrCat(name, ": index ", index, " is outside an axis of ", extent));
}

template <typename T>
void CombineRow(Reduction reduction, const T* updates, int64_t count, T* out) {
  if (reduction == Reduction::kNone) {
    std::copy_n(updates, count, out);
    return;
  }
  if constexpr (std::is_same_v<T, float>) {
    if (reduction == Reduction::kAdd) {
      math::CurrentSimd().binary(math::Binary::kAdd, out, updates, out, count, 1, 1);
      return;
    }
  }
  for (int64_t i = 0; i < count; ++i) out[i] = Combine(reduction, out[i], updates[i]);
}

// Columns [begin, end) of all rows.
template <typename T, typename Index>
Status RunScatterRows(const ScatterElementsPlan& plan, const std::string& name,
                      const Index* positions, const T* updates, T* out, int64_t begin,
                      int64_t end) {
  const Index* wrong = nullptr;
  plan.loop.ForOuter(0, plan.loop.outer_count(), [&](const std::array<int64_t, 2>& at) {
    const int64_t place = PlaceOn(plan.extent, positions[at[1]]);
    if (place < 0) {
      wrong = positions + at[1];
    } else {
      CombineRow(plan.reduction, updates + begin, end - begin,
                 out + at[0] + place * plan.axis_step + begin);
    }
    updates += plan.loop.inner_count();
  });
  return wrong == nullptr ? Status::Ok() : OutsideAxis(name, *wrong, plan.extent);
}

template <typename T, typename Index>
Status RunScatterElements(const ScatterElementsPlan& plan, const std::string& name,
                          const Index* positions, const T* updates, T* out) {
  const int64_t count = plan.loop.inner_count(), step = plan.loop.inner_stride(0);
  const int64_t index_step = plan.loop.inner_stride(1);
  const Index* wrong = nullptr;
  plan.loop.ForOuter(0, plan.loop.outer_count(), [&](const std::array<int64_t, 2>& at) {
    T* to = out + at[0];
    const Index* position = positions + at[1];
    for (int64_t i = 0; i < count; ++i, to += step, position += index_step, ++updates) {
      const int64_t place = PlaceOn(plan.extent, *position);
      if (place < 0) {
        wrong = position;
        continue;
      }
      T& target = to[place * plan.axis_step];
      target =
          plan.reduction == Reduction::kNone ? *updates : Combine(plan.reduction, target, *updates);
    }
  });
  return wrong == nullptr ? Status::Ok() : OutsideAxis(name, *wrong, plan.extent);
}

Result<Values> ScatterElementsOfStrings(const Node& node, std::span<const Value> inputs) {
  const Tensor &data = inputs[0].tensor(), &indices = inputs[1].tensor();
  const Tensor& updates = inputs[2].tensor();
  ONNXD_ASSIGN_OR_RETURN(const ScatterElementsPlan plan,
                         PlanScatterElements(node, data.shape(), indices.shape(), updates.shape()));
  if (plan.reduction != Reduction::kNone) return DeclineType("ScatterElements", data.type());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Copy(data));
  const std::vector<int64_t> positions = ElementsAs<int64_t>(indices);
  ONNXD_RETURN_IF_ERROR(RunScatterElements(plan, Describe(node), positions.data(),
                                           updates.data<std::string>(),
                                           out.mutable_data<std::string>()));
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

// Rows of update[outer, middle, rows, inner] that go into cache[outer, middle, extent, inner].
struct TensorScatterPlan {
  int64_t outer, middle, rows, extent, inner;
  bool circular;
};

Result<TensorScatterPlan> PlanTensorScatter(const Node& node, const Shape& shape,
                                            const Shape& update, const Shape* writes) {
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", -2), shape.rank()));
  bool fits = axis > 0 && update.rank() == shape.rank();
  for (int i = 0; fits && i < shape.rank(); ++i) fits = i == axis || update[i] == shape[i];
  if (!fits || (writes != nullptr && writes->ElementCount() != shape[0])) {
    return InvalidArgument(StrCat(Describe(node), ": update of shape ", update.ToString(),
                                  " does not fit the cache of shape ", shape.ToString()));
  }
  return TensorScatterPlan{shape[0],
                           shape.ElementCount(1, axis),
                           update[axis],
                           shape[axis],
                           shape.ElementCount(axis + 1, shape.rank()),
                           node.attributes.String("mode", "linear") == "circular"};
}

// The cache's row for one of an update that begins at `begin`; -1: outside.
int64_t RowOf(const TensorScatterPlan& plan, int64_t begin, int64_t row) {
  if (begin < 0 || plan.extent == 0) return -1;
  if (plan.circular) return (begin % plan.extent + row) % plan.extent;
  return begin < plan.extent - row ? begin + row : -1;
}

// From write_indices[outer] on; null: from the first row on.
template <typename T>
Status RunTensorScatter(const TensorScatterPlan& plan, const std::string& name, const T* update,
                        const int64_t* write_indices, T* cache) {
  for (int64_t b = 0; b < plan.outer; ++b) {
    const int64_t begin = write_indices != nullptr ? write_indices[b] : 0;
    for (int64_t row = 0; row < plan.rows; ++row) {
      const int64_t to = RowOf(plan, begin, row);
      if (to < 0) {
        return InvalidArgument(StrCat(name, ": row ", row, " of an update from ", begin,
                                      " on is outside a cache of ", plan.extent));
      }
      for (int64_t m = 0; m < plan.middle; ++m) {
        const int64_t lane = b * plan.middle + m;
        std::copy_n(update + (lane * plan.rows + row) * plan.inner, plan.inner,
                    cache + (lane * plan.extent + to) * plan.inner);
      }
    }
  }
  return Status::Ok();
}

Result<Values> TensorScatterOfStrings(const Node& node, std::span<const Value> inputs) {
  const Tensor &cache = inputs[0].tensor(), &update = inputs[1].tensor();
  const Tensor* writes = TensorAt(inputs, 2);
  ONNXD_ASSIGN_OR_RETURN(const TensorScatterPlan plan,
                         PlanTensorScatter(node, cache.shape(), update.shape(),
                                           writes != nullptr ? &writes->shape() : nullptr));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Copy(cache));
  ONNXD_RETURN_IF_ERROR(RunTensorScatter(plan, Describe(node), update.data<std::string>(),
                                         writes != nullptr ? writes->data<int64_t>() : nullptr,
                                         out.mutable_data<std::string>()));
  return Values{std::move(out)};
}

// Adding to narrow floats happens in float, one rounding per operator.
bool NeedsArithmetic(const KernelInfo& info) {
  return info.node.attributes.String("reduction", "none") != "none" && !IsNumber(info.InputType(0));
}

// The output with the first input in it, over which the plan may have put it.
template <typename T>
T* CopiedInput(const KernelContext& k, int64_t count) {
  T* out = k.output<T>(0);
  if (out != k.input<T>(0)) std::copy_n(k.input<T>(0), count, out);
  return out;
}

// Rows go side by side, in columns for each thread: two of them may have one place.
template <typename T, typename Index>
Status Scatter(const ScatterElementsPlan& plan, const KernelContext& k, const std::string& name,
               T* out) {
  constexpr int64_t kLeastColumns = 64, kLeastElements = 1 << 15;
  const auto* positions = k.input<Index>(1);
  const T* updates = k.input<T>(2);
  if (!plan.has_rows()) return RunScatterElements(plan, name, positions, updates, out);
  const int64_t columns = plan.loop.inner_count(), rows = plan.loop.outer_count();
  const int64_t threads = rows * columns < kLeastElements ? 1 : k.pool().threads();
  const int64_t grain = std::max(kLeastColumns, (columns + threads - 1) / threads);
  std::vector<Status> parts(static_cast<size_t>((columns + grain - 1) / grain));
  k.pool().ParallelFor(columns, grain, [&](int64_t begin, int64_t end) {
    parts[static_cast<size_t>(begin / grain)] =
        RunScatterRows(plan, name, positions, updates, out, begin, end);
  });
  for (const Status& part : parts) ONNXD_RETURN_IF_ERROR(part);
  return Status::Ok();
}

}  // namespace

// And onnxd::ScatterElementsBroadcast, whose indices are broadcast to the updates.
Result<std::unique_ptr<Kernel>> MakeScatterElements(const KernelInfo& info) {
  const DataType type = info.InputType(0), index_type = info.InputType(1);
  if (NeedsArithmetic(info)) return DeclineType("ScatterElements", type);
  if (type == DataType::kString) return MakeEagerKernel(ScatterElementsOfStrings);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const ScatterElementsPlan plan,
                           PlanScatterElements(context.node, context.InputShape(0),
                                               context.InputShape(1), context.InputShape(2)));
    const int64_t count = context.InputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [=, node = context.node](const KernelContext& k) {
      return Dispatch(node, type, plan.reduction, [&]<typename T>() -> Status {
        T* out = CopiedInput<T>(k, count);
        return index_type == DataType::kInt32 ? Scatter<T, int32_t>(plan, k, Describe(node), out)
                                              : Scatter<T, int64_t>(plan, k, Describe(node), out);
      });
    };
    return prepared;
  });
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
        T* out = CopiedInput<T>(k, count);
        return RunScatterND(plan, Describe(node), k.input<int64_t>(1), k.input<T>(2), out);
      });
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeTensorScatter(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (type == DataType::kString) return MakeEagerKernel(TensorScatterOfStrings);
  if (!IsMovable(type)) return DeclineType("TensorScatter", type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(
        const TensorScatterPlan plan,
        PlanTensorScatter(context.node, context.InputShape(0), context.InputShape(1),
                          context.HasInput(2) ? &context.InputShape(2) : nullptr));
    const int64_t count = context.InputShape(0).ElementCount();
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [=, node = context.node](const KernelContext& k) {
      return Dispatch(node, type, Reduction::kNone, [&]<typename T>() {
        return RunTensorScatter(plan, Describe(node), k.input<T>(1), k.input<int64_t>(2),
                                CopiedInput<T>(k, count));
      });
    };
    return prepared;
  });
}

}  // namespace onnxd
