// Operators that select elements by index: every index is checked when it is used.
#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

Status OutOfRange(const std::string& node, int64_t index, int64_t extent) {
  return InvalidArgument(
      StrCat(node, ": index ", index, " is outside [", -extent, ", ", extent - 1, "]"));
}

// Index i of an int32 or int64 tensor.
int64_t IndexAt(const void* indices, bool wide, int64_t i) {
  return wide ? static_cast<const int64_t*>(indices)[i] : static_cast<const int32_t*>(indices)[i];
}

// Element `at` of the indices, cut off to an integer; `depth`, which is outside, for what is none.
int64_t OneHotIndex(const void* indices, DataType type, int64_t at, int64_t depth) {
  int64_t index = depth;
  DispatchNumber(type, [&]<typename T>() {
    const T value = static_cast<const T*>(indices)[at];
    if constexpr (std::is_floating_point_v<T>) {
      const auto limit = static_cast<T>(depth);
      if (value >= -limit && value < limit) index = static_cast<int64_t>(value);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      if (value < static_cast<uint64_t>(depth)) index = static_cast<int64_t>(value);
    } else {
      index = static_cast<int64_t>(value);
    }
  });
  return index;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGather(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("Gather", type);
  const bool wide = info.InputType(1) == DataType::kInt64;
  return MakeKernel([type, wide](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& data = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", 0), data.rank()));
    const int64_t width = DataTypeBits(type) / 8;
    const int64_t outer = data.ElementCount(0, axis), extent = data[axis];
    const int64_t bytes = data.ElementCount(axis + 1, data.rank()) * width;
    const int64_t count = context.InputShape(1).ElementCount();
    const std::string name = Describe(context.node);
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) -> Status {
      const void* indices = k.input<void>(1);
      const auto* in = k.input<std::byte>(0);
      auto* out = k.output<std::byte>(0);
      for (int64_t row = 0; row < outer; ++row) {
        for (int64_t i = 0; i < count; ++i) {
          int64_t index = IndexAt(indices, wide, i);
          if (index < -extent || index >= extent) return OutOfRange(name, index, extent);
          if (index < 0) index += extent;
          std::memcpy(out, in + (row * extent + index) * bytes, static_cast<size_t>(bytes));
          out += bytes;
        }
      }
      return Status::Ok();
    };
    return prepared;
  });
}

Result<std::unique_ptr<Kernel>> MakeGatherElements(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("GatherElements", type);
  const bool wide = info.InputType(1) == DataType::kInt64;
  return MakeKernel([type, wide](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& data = context.InputShape(0);
    const Shape& indices = context.InputShape(1);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", 0), data.rank()));
    if (indices.rank() != data.rank()) {
      return InvalidArgument(StrCat(Describe(context.node), ": data and indices differ in rank"));
    }
    for (int i = 0; i < data.rank(); ++i) {
      if (i != axis && indices[i] > data[i]) {
        return InvalidArgument(StrCat(Describe(context.node), ": indices are larger than data"));
      }
    }
    const std::string name = Describe(context.node);
    const int64_t extent = data[axis];
    StridedLoop<1> loop;  // over the indices, in order: where in data the axis begins
    loop.dims = indices.dims();
    loop.strides[0] = DenseStrides(data);
    const int64_t step = std::exchange(loop.strides[0][static_cast<size_t>(axis)], 0);
    loop.Merge();
    PreparedKernel prepared;
    if (indices.ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    prepared.compute = [=](const KernelContext& k) -> Status {
      Status status;
      const auto gather = [&]<typename T, typename Index>() {
        const T* in = k.input<T>(0);
        T* out = k.output<T>(0);
        const Index* next = k.input<Index>(1);
        const int64_t stride = loop.inner_stride(0);
        loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 1>& at) {
          for (int64_t i = 0; i < loop.inner_count(); ++i) {
            int64_t index = *next++;
            if (index < -extent || index >= extent) {
              if (status.ok()) status = OutOfRange(name, index, extent);
              index = 0;
            }
            if (index < 0) index += extent;
            *out++ = in[at[0] + i * stride + index * step];
          }
        });
      };
      if (extent == 0) return OutOfRange(name, 0, extent);
      DispatchWidth(type, [&]<typename T>() {
        wide ? gather.template operator()<T, int64_t>() : gather.template operator()<T, int32_t>();
      });
      return status;
    };
    return prepared;
  });
}

namespace {

// The walk that GatherND and ScatterND share: for each index tuple, the element offset it names.
struct TupleWalk {
  int64_t tuples, width, slice;  // slice: elements per tuple
  int64_t batches, tuples_per_batch, batch_stride;
  std::vector<int64_t> strides, extents;
  std::string name;

  // Calls body(tuple, offset).
  template <typename Body>
  Status Run(const int64_t* indices, Body body) const {
    for (int64_t tuple = 0; tuple < tuples; ++tuple) {
      int64_t offset = tuple / tuples_per_batch * batch_stride;
      for (int64_t j = 0; j < width; ++j) {
        const auto axis = static_cast<size_t>(j);
        int64_t index = indices[tuple * width + j];
        if (index < -extents[axis] || index >= extents[axis]) {
          return OutOfRange(name, index, extents[axis]);
        }
        if (index < 0) index += extents[axis];
        offset += index * strides[axis];
      }
      body(tuple, offset);
    }
    return Status::Ok();
  }
};

Result<TupleWalk> MakeTupleWalk(const Node& node, const Shape& data, const Shape& indices,
                                int64_t batch_dims) {
  if (indices.rank() < 1 || batch_dims < 0 || batch_dims >= indices.rank() ||
      indices[indices.rank() - 1] + batch_dims > data.rank()) {
    return InvalidArgument(StrCat(Describe(node), ": indices of shape ", indices.ToString(),
                                  " do not address data of shape ", data.ToString()));
  }
  const int batch = static_cast<int>(batch_dims);
  TupleWalk walk;
  walk.width = indices[indices.rank() - 1];
  walk.tuples = indices.ElementCount(0, indices.rank() - 1);
  walk.batches = data.ElementCount(0, batch);
  if (indices.ElementCount(0, batch) != walk.batches) {
    return InvalidArgument(StrCat(Describe(node), ": batch dimensions differ"));
  }
  walk.tuples_per_batch = std::max<int64_t>(1, indices.ElementCount(batch, indices.rank() - 1));
  walk.batch_stride = data.ElementCount(batch, data.rank());
  const int used = batch + static_cast<int>(walk.width);
  walk.slice = data.ElementCount(used, data.rank());
  const auto strides = DenseStrides(data);
  for (int axis = batch; axis < used; ++axis) {
    walk.strides.push_back(strides[static_cast<size_t>(axis)]);
    walk.extents.push_back(data[axis]);
  }
  walk.name = Describe(node);
  return walk;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGatherND(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsMovable(type)) return DeclineType("GatherND", type);
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    ONNXD_ASSIGN_OR_RETURN(const TupleWalk walk,
                           MakeTupleWalk(context.node, context.InputShape(0), context.InputShape(1),
                                         context.node.attributes.Int("batch_dims", 0)));
    const int64_t width = DataTypeBits(type) / 8;
    PreparedKernel prepared;
    prepared.compute = [walk, width](const KernelContext& k) {
      return walk.Run(k.input<int64_t>(1), [&](int64_t tuple, int64_t offset) {
        std::memcpy(k.output<std::byte>(0) + tuple * walk.slice * width,
                    k.input<std::byte>(0) + offset * width,
                    static_cast<size_t>(walk.slice * width));
      });
    };
    return prepared;
  });
}

// OneHot: values = [off, on]; indices outside the depth leave a row of off.
Result<std::unique_ptr<Kernel>> MakeOneHot(const KernelInfo& info) {
  const DataType index_type = info.InputType(0), type = info.InputType(2);
  if (!IsMovable(type)) return DeclineType("OneHot values", type);
  if (!IsNumber(index_type)) return DeclineType("OneHot indices", index_type);
  return MakeKernel([type, index_type](const PrepareContext& context) -> Result<PreparedKernel> {
    if (context.outputs[0].shape == nullptr) {
      return FailedPrecondition("the depth is not known yet");
    }
    const Shape& out = context.OutputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", -1), out.rank()));
    const int64_t outer = out.ElementCount(0, axis), depth = out[axis];
    const int64_t inner = out.ElementCount(axis + 1, out.rank());
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchWidth(type, [&]<typename T>() {
        T* result = k.output<T>(0);
        std::fill_n(result, outer * depth * inner, k.input<T>(2)[0]);
        for (int64_t row = 0; row < outer; ++row) {
          for (int64_t column = 0; column < inner; ++column) {
            const int64_t at = row * inner + column;
            int64_t index = OneHotIndex(k.input<void>(0), index_type, at, depth);
            if (index < -depth || index >= depth) continue;
            if (index < 0) index += depth;
            result[(row * depth + index) * inner + column] = k.input<T>(2)[1];
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
