// NonZero-9, Compress-9, Unique-11, EyeLike-9, ReverseSequence-10, CumProd-26, BitShift-11,
// BitwiseNot-18, Det-11.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/ops/inference_rules.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// Elements as they are stored: strings, or whole bytes of a width.
template <typename Body>
Status DispatchStored(const Node& node, DataType type, Body body) {
  if (type == DataType::kString) {
    return body.template operator()<std::string>();
  }
  Status status = DeclineType(node.op_type, type);
  if (IsMovable(type)) {
    DispatchWidth(type, [&]<typename T>() { status = body.template operator()<T>(); });
  }
  return status;
}

// Calls body(elements) with x's, or with numbers that are zero where those are.
template <typename Body>
void DispatchZeros(const Tensor& x, Body body) {
  if (x.type() == DataType::kBool) return body(x.data<uint8_t>());
  if (DispatchNumber(x.type(), [&]<typename T>() { body(x.data<T>()); })) return;
  const std::vector<double> wide = ElementsAs<double>(x);
  body(wide.data());
}

// out[axis, i] is where the i-th element of x that is not zero is.
template <typename T>
void PlacesOf(const T* x, const Shape& shape, int64_t count, int64_t* out) {
  const int rank = shape.rank();
  const int64_t width = shape[rank - 1];
  std::vector<int64_t> at(static_cast<size_t>(rank - 1), 0);
  int64_t* const columns = out + (rank - 1) * count;
  for (int64_t found = 0; found < count; x += width) {
    const int64_t before = found;
    for (int64_t column = 0; column < width && found < count; ++column) {
      columns[found] = column;
      found += x[column] != T(0) ? 1 : 0;
    }
    for (size_t axis = 0; axis < at.size(); ++axis) {
      std::fill_n(out + static_cast<int64_t>(axis) * count + before, found - before, at[axis]);
    }
    for (int axis = rank - 2; axis >= 0 && ++at[static_cast<size_t>(axis)] == shape[axis]; --axis) {
      at[static_cast<size_t>(axis)] = 0;
    }
  }
}

Result<Values> NonZero(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  if (!IsConvertible(x.type())) return DeclineType(node.op_type, x.type());
  int64_t count = 0;
  DispatchZeros(x, [&]<typename T>(const T* elements) {
    count = std::count_if(elements, elements + x.ElementCount(), [](T e) { return e != T(0); });
  });
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kInt64, Shape{shape.rank(), count}));
  if (shape.rank() == 0) return Values{std::move(out)};
  DispatchZeros(x, [&]<typename T>(const T* elements) {
    PlacesOf(elements, shape, count, out.mutable_data<int64_t>());
  });
  return Values{std::move(out)};
}

Result<Values> Compress(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const auto condition = inputs[1].tensor().elements<bool>();
  const bool flat = !node.attributes.Has("axis");
  int axis = 0;
  Shape shape = x.shape();
  if (flat) {
    shape = Shape{x.ElementCount()};
  } else {
    ONNXD_ASSIGN_OR_RETURN(axis, NormalizeAxis(node.attributes.Int("axis", 0), shape.rank()));
  }
  std::vector<int64_t> kept;
  for (size_t i = 0; i < condition.size() && static_cast<int64_t>(i) < shape[axis]; ++i) {
    if (condition[i]) kept.push_back(static_cast<int64_t>(i));
  }
  const int64_t outer = shape.ElementCount(0, axis), extent = shape[axis];
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  shape[axis] = static_cast<int64_t>(kept.size());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  ONNXD_RETURN_IF_ERROR(DispatchStored(node, x.type(), [&]<typename T>() {
    T* to = out.mutable_data<T>();
    for (int64_t o = 0; o < outer; ++o) {
      for (const int64_t at : kept) {
        to = std::copy_n(x.data<T>() + (o * extent + at) * inner, inner, to);
      }
    }
    return Status::Ok();
  }));
  return Values{std::move(out)};
}

// Slices along an axis (or single elements) with equal contents are one; outputs: the distinct
// slices, where each first stood, which one every slice is, and how many there are of each.
class UniqueSlices {
 public:
  UniqueSlices(int64_t outer, int64_t extent, int64_t inner)
      : outer_(outer), extent_(extent), inner_(inner) {}

  template <typename T>
  void Find(const T* x, bool sorted) {
    std::vector<int64_t> order(static_cast<size_t>(extent_));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return Compare(x, a, b) < 0; });
    inverse.resize(order.size());
    for (size_t i = 0; i < order.size(); ++i) {
      if (i == 0 || Compare(x, order[i - 1], order[i]) != 0) {
        first.push_back(order[i]);
        counts.push_back(0);
      }
      ++counts.back();
      inverse[static_cast<size_t>(order[i])] = static_cast<int64_t>(first.size()) - 1;
    }
    if (!sorted) OrderByFirst();
  }

  std::vector<int64_t> first, inverse, counts;

 private:
  template <typename T>
  int Compare(const T* x, int64_t a, int64_t b) const {
    for (int64_t o = 0; o < outer_; ++o) {
      for (int64_t i = 0; i < inner_; ++i) {
        const T& left = x[(o * extent_ + a) * inner_ + i];
        const T& right = x[(o * extent_ + b) * inner_ + i];
        if (left < right) return -1;
        if (right < left) return 1;
      }
    }
    return 0;
  }

  void OrderByFirst() {
    std::vector<size_t> order(first.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return first[a] < first[b]; });
    std::vector<int64_t> rank(order.size()), new_first, new_counts;
    for (size_t i = 0; i < order.size(); ++i) {
      rank[order[i]] = static_cast<int64_t>(i);
      new_first.push_back(first[order[i]]);
      new_counts.push_back(counts[order[i]]);
    }
    for (int64_t& index : inverse) index = rank[static_cast<size_t>(index)];
    first = std::move(new_first);
    counts = std::move(new_counts);
  }

  int64_t outer_, extent_, inner_;
};

Tensor Vector(const std::vector<int64_t>& elements) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(elements.size())}, elements);
}

Result<Values> Unique(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const bool sorted = node.attributes.Int("sorted", 1) != 0;
  Shape shape = x.shape();
  int axis = 0;
  if (!node.attributes.Has("axis")) {
    shape = Shape{x.ElementCount()};
  } else {
    ONNXD_ASSIGN_OR_RETURN(axis, NormalizeAxis(node.attributes.Int("axis", 0), shape.rank()));
  }
  const int64_t outer = shape.ElementCount(0, axis), extent = shape[axis];
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  UniqueSlices slices(outer, extent, inner);
  Tensor out;
  const auto run = [&]<typename T>() -> Status {
    slices.Find(x.data<T>(), sorted);
    shape[axis] = static_cast<int64_t>(slices.first.size());
    ONNXD_ASSIGN_OR_RETURN(out, Tensor::Create(x.type(), shape));
    T* to = out.mutable_data<T>();
    for (int64_t o = 0; o < outer; ++o) {
      for (const int64_t at : slices.first) {
        to = std::copy_n(x.data<T>() + (o * extent + at) * inner, inner, to);
      }
    }
    return Status::Ok();
  };
  Status status = DeclineType("Unique", x.type());
  if (x.type() == DataType::kString) status = run.template operator()<std::string>();
  if (x.type() == DataType::kBool) status = run.template operator()<bool>();
  DispatchNumber(x.type(), [&]<typename T>() { status = run.template operator()<T>(); });
  ONNXD_RETURN_IF_ERROR(status);
  return Values{std::move(out), Vector(slices.first), Vector(slices.inverse),
                Vector(slices.counts)};
}

Result<Values> EyeLike(const Node& node, std::span<const Value> inputs, DataType type) {
  const Shape& shape = inputs[0].tensor().shape();
  const int64_t shift = node.attributes.Int("k", 0);
  std::vector<int64_t> elements(static_cast<size_t>(shape.ElementCount()), 0);
  for (int64_t row = 0; row < shape[0]; ++row) {
    if (shift < -row || shift >= shape[1] - row) continue;
    elements[static_cast<size_t>(row * shape[1] + row + shift)] = 1;
  }
  return OneValue(TensorFrom(type, shape, elements));
}

Result<Values> ReverseSequence(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const int64_t batch_axis = node.attributes.Int("batch_axis", 1);
  const int64_t time_axis = node.attributes.Int("time_axis", 0);
  const auto lengths = ElementsAs<int64_t>(inputs[1].tensor());
  if (shape.rank() < 2 || batch_axis + time_axis != 1 || batch_axis * time_axis != 0 ||
      static_cast<int64_t>(lengths.size()) != shape[static_cast<int>(batch_axis)]) {
    return InvalidArgument(StrCat(Describe(node), ": axes or lengths do not fit the input"));
  }
  const int64_t steps = shape[static_cast<int>(time_axis)];
  const int64_t inner = shape.ElementCount(2, shape.rank());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  ONNXD_RETURN_IF_ERROR(DispatchStored(node, x.type(), [&]<typename T>() -> Status {
    for (size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] < 0 || lengths[b] > steps) {
        return InvalidArgument(StrCat(Describe(node), ": length ", lengths[b]));
      }
      for (int64_t t = 0; t < steps; ++t) {
        const int64_t from = t < lengths[b] ? lengths[b] - 1 - t : t;
        const auto row = [&](int64_t step) {
          const auto batch = static_cast<int64_t>(b);
          return (batch_axis == 0 ? batch * steps + step
                                  : step * static_cast<int64_t>(lengths.size()) + batch) *
                 inner;
        };
        std::copy_n(x.data<T>() + row(from), inner, out.mutable_data<T>() + row(t));
      }
    }
    return Status::Ok();
  }));
  return Values{std::move(out)};
}

Result<Values> CumProd(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const auto axes = ElementsAs<int64_t>(inputs[1].tensor());
  if (axes.size() != 1) return InvalidArgument(StrCat(Describe(node), ": axis must be one number"));
  ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(axes[0], shape.rank()));
  const bool exclusive = node.attributes.Int("exclusive", 0) != 0;
  const bool reverse = node.attributes.Int("reverse", 0) != 0;
  const int64_t outer = shape.ElementCount(0, axis), extent = shape[axis];
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  const bool known = DispatchNumber(x.type(), [&]<typename T>() {
    for (int64_t lane = 0; lane < outer * inner; ++lane) {
      const int64_t base = lane / inner * extent * inner + lane % inner;
      T product = 1;
      for (int64_t i = 0; i < extent; ++i) {
        const int64_t at = base + (reverse ? extent - 1 - i : i) * inner;
        const T next = static_cast<T>(product * x.data<T>()[at]);
        out.mutable_data<T>()[at] = exclusive ? product : next;
        product = next;
      }
    }
  });
  if (!known) return DeclineType("CumProd", x.type());
  return Values{std::move(out)};
}

Result<Values> BitShift(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  const Tensor& b = inputs[1].tensor();
  const bool left = node.attributes.String("direction", "LEFT") == "LEFT";
  ONNXD_ASSIGN_OR_RETURN(const SymbolicShape shape,
                         Broadcast(ToSymbolic(a.shape()), ToSymbolic(b.shape())));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(a.type(), *ToConcrete(shape)));
  const auto loop = BroadcastLoop<2>(out.shape(), {&a.shape(), &b.shape()});
  const bool known = DispatchNumber(a.type(), [&]<typename T>() {
    if constexpr (std::is_unsigned_v<T>) {
      if (out.ElementCount() == 0) return;
      loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 3>& at) {
        for (int64_t i = 0; i < loop.inner_count(); ++i) {
          const T value = a.data<T>()[at[1] + i * loop.inner_stride(1)];
          const T by = b.data<T>()[at[2] + i * loop.inner_stride(2)];
          T shifted = 0;  // all bits are gone
          if (by < sizeof(T) * 8) {
            shifted = static_cast<T>(left ? uint64_t{value} << by : uint64_t{value} >> by);
          }
          out.mutable_data<T>()[at[0] + i * loop.inner_stride(0)] = shifted;
        }
      });
    }
  });
  if (!known) return DeclineType("BitShift", a.type());
  return Values{std::move(out)};
}

Result<Values> BitwiseNot(const Node&, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  if (!IsInteger(x.type()) || !IsMovable(x.type())) return DeclineType("BitwiseNot", x.type());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), x.shape()));
  const auto* from = static_cast<const uint8_t*>(x.raw());
  std::transform(from, from + x.bytes(), static_cast<uint8_t*>(out.mutable_raw()),
                 [](uint8_t byte) { return static_cast<uint8_t>(~byte); });
  return Values{std::move(out)};
}

}  // namespace

#define EAGER(name) \
  Result<std::unique_ptr<Kernel>> Make##name(const KernelInfo&) { return MakeEagerKernel(name); }
EAGER(NonZero)
EAGER(Compress)
EAGER(ReverseSequence)
EAGER(BitShift)
EAGER(BitwiseNot)
#undef EAGER

Result<std::unique_ptr<Kernel>> MakeUnique(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type) && type != DataType::kString && type != DataType::kBool) {
    return DeclineType("Unique", type);
  }
  return MakeEagerKernel(Unique);
}

Result<std::unique_ptr<Kernel>> MakeCumProd(const KernelInfo& info) {
  if (!IsNumber(info.InputType(0))) return DeclineType("CumProd", info.InputType(0));
  return MakeEagerKernel(CumProd);
}

Result<std::unique_ptr<Kernel>> MakeEyeLike(const KernelInfo& info) {
  const DataType type = info.OutputType(0);
  if (!IsConvertible(type)) return DeclineType("EyeLike", type);
  return MakeEagerKernel([type](const Node& node, std::span<const Value> inputs) {
    return EyeLike(node, inputs, type);
  });
}

}  // namespace onnxd
