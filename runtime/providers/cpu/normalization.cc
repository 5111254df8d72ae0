// BatchNormalization (inference), InstanceNormalization, GroupNormalization, LayerNormalization and
// its relatives.
#include <algorithm>
#include <cmath>
#include <optional>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {

Result<std::unique_ptr<Kernel>> MakeTrainingBatchNormalization(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeDoubleGroupNormalization(const KernelInfo&);
Result<std::unique_ptr<Kernel>> MakeScatteredMeanVariance(const KernelInfo&);

namespace {

// x[batch, channels, plane] * scale + shift, by channel.
template <typename T>
void ScaleAndShift(const KernelContext& k, const T* scale, const T* shift, int64_t batch,
                   int64_t channels, int64_t plane) {
  constexpr int64_t kLeastElements = 16 << 10;  // that are worth a thread
  const auto rows = [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const T* in = k.input<T>(0) + row * plane;
      T* out = k.output<T>(0) + row * plane;
      const T a = scale[row % channels], b = shift[row % channels];
      for (int64_t i = 0; i < plane; ++i) out[i] = in[i] * a + b;
    }
  };
  const auto images = [&](int64_t first, int64_t last) {
    for (int64_t image = first; image < last; ++image) {
      const T* in = k.input<T>(0) + image * channels;
      T* out = k.output<T>(0) + image * channels;
      for (int64_t c = 0; c < channels; ++c) out[c] = in[c] * scale[c] + shift[c];
    }
  };
  const int64_t least = kLeastElements / std::max<int64_t>(plane == 1 ? channels : plane, 1) + 1;
  if (plane == 1) {
    k.pool().ParallelFor(batch, least, images);
  } else {
    k.pool().ParallelFor(batch * channels, least, rows);
  }
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeBatchNormalization(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsFloatOrDouble(type) || info.InputType(1) != type || info.InputType(3) != type) {
    return DeclineType("BatchNormalization", type);
  }
  if (info.node.attributes.Int("training_mode", 0) != 0) {
    return MakeTrainingBatchNormalization(info);
  }
  for (size_t i = 1; i < info.node.outputs.size(); ++i) {
    if (info.node.outputs[i] != kNoValue) {
      return Unimplemented("training outputs of BatchNormalization before version 14");
    }
  }
  if (info.node.attributes.Int("spatial", 1) == 0) {
    return Unimplemented("BatchNormalization with spatial=0 is not supported");
  }
  const float epsilon = info.node.attributes.Float("epsilon", 1e-5f);
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const int64_t batch = shape[0], channels = shape[1];
    const int64_t plane = shape.ElementCount(2, shape.rank());
    for (size_t i = 1; i < 5; ++i) {
      if (context.InputShape(i).ElementCount() != channels) {
        return InvalidArgument(StrCat(Describe(context.node), ": input ", i, " has shape ",
                                      context.InputShape(i).ToString()));
      }
    }
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.scratch_bytes =
        2 * static_cast<size_t>(TensorBytes(type, channels).value_or(0));  // scales, then shifts
    prepared.compute = [=](const KernelContext& k) {
      DispatchFloat(type, [&]<typename T>() {
        T* const scale = k.scratch<T>();
        T* const shift = scale + channels;
        for (int64_t c = 0; c < channels; ++c) {
          scale[c] = k.input<T>(1)[c] / std::sqrt(k.input<T>(4)[c] + static_cast<T>(epsilon));
          shift[c] = k.input<T>(2)[c] - k.input<T>(3)[c] * scale[c];
        }
        ScaleAndShift(k, scale, shift, batch, channels, plane);
      });
      return Status::Ok();
    };
    return prepared;
  });
}

namespace {

// Sums of blocks are added in double: a plane of an image has too many pixels for one float.
struct Moments {
  float mean = 0, variance = 0;
};

Moments MomentsOf(const float* x, int64_t n, bool centered) {
  constexpr int64_t kBlock = 4096;
  const math::Simd& simd = math::CurrentSimd();
  Moments moments;
  double total = 0;
  for (int64_t at = 0; centered && at < n; at += kBlock) {
    total += static_cast<double>(simd.sum(x + at, std::min(kBlock, n - at)));
  }
  moments.mean = static_cast<float>(total / static_cast<double>(n));
  double squares = 0;
  for (int64_t at = 0; at < n; at += kBlock) {
    squares +=
        static_cast<double>(simd.sum_of_squares(x + at, std::min(kBlock, n - at), moments.mean));
  }
  moments.variance = static_cast<float>(squares / static_cast<double>(n));
  return moments;
}

}  // namespace

namespace {

// x[images, groups, width / plane, plane]: each group is normalized; each plane, or each group, has
// a scale and a bias.
struct GroupPlan {
  int64_t rows, width, plane;  // rows: images * groups
  int64_t groups, planes;      // of an image
  bool per_group;
  float epsilon;
};

PreparedKernel PrepareGroups(const GroupPlan& plan) {
  constexpr int64_t kGrain = 1 << 14;  // elements that are worth a thread
  PreparedKernel prepared;
  prepared.in_place = {{0, 0}};
  prepared.compute = [plan](const KernelContext& k) {
    const math::Simd& simd = math::CurrentSimd();
    k.pool().ParallelFor(
        plan.rows, 1 + kGrain / (plan.width + 1), [&](int64_t first, int64_t last) {
          for (int64_t row = first; row < last; ++row) {
            const float* in = k.input<float>(0) + row * plan.width;
            float* out = k.output<float>(0) + row * plan.width;
            const auto [mean, variance] = MomentsOf(in, plan.width, true);
            const float inverse = 1.0f / std::sqrt(variance + plan.epsilon);
            for (int64_t at = 0; at < plan.width; at += plan.plane) {
              const int64_t parameter = plan.per_group
                                            ? row % plan.groups
                                            : (row * plan.width + at) / plan.plane % plan.planes;
              const float scale = k.input<float>(1)[parameter] * inverse;
              simd.affine(in + at, out + at, plan.plane, scale,
                          k.input<float>(2)[parameter] - mean * scale);
            }
          }
        });
    return Status::Ok();
  };
  return prepared;
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeInstanceNormalization(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType("InstanceNormalization", info.InputType(0));
  }
  const float epsilon = info.node.attributes.Float("epsilon", 1e-5f);
  return MakeKernel([epsilon](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const int64_t plane = shape.ElementCount(2, shape.rank());
    return PrepareGroups({shape[0] * shape[1], plane, plane, shape[1], shape[1], true, epsilon});
  });
}

// Scale and bias are per group in version 18, per channel from 21 on.
Result<std::unique_ptr<Kernel>> MakeGroupNormalization(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat || info.InputType(1) != DataType::kFloat ||
      info.InputType(2) != DataType::kFloat) {
    return MakeDoubleGroupNormalization(info);
  }
  return MakeKernel([](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    const Node& node = context.node;
    const int64_t groups = node.attributes.Int("num_groups", 0);
    if (shape.rank() < 2 || groups < 1 || shape[1] % groups != 0) {
      return InvalidArgument(
          StrCat(Describe(node), ": ", groups, " groups for input of shape ", shape.ToString()));
    }
    const bool per_group = node.since_version < 21;
    const int64_t wanted = per_group ? groups : shape[1];
    if (context.InputShape(1).ElementCount() != wanted ||
        context.InputShape(2).ElementCount() != wanted) {
      return InvalidArgument(StrCat(Describe(node), ": scale and bias need ", wanted, " entries"));
    }
    const int64_t plane = shape.ElementCount(2, shape.rank());
    return PrepareGroups({plane == 0 ? 0 : shape[0] * groups, shape[1] / groups * plane, plane,
                          groups, shape[1], per_group, node.attributes.Float("epsilon", 1e-5f)});
  });
}

namespace {

// The first axis of a shape from which on all are reduced, where none before is but those of one
// element; nullopt where others are.
std::optional<int> ReducedFrom(const SymbolicShape& shape, const std::vector<int64_t>& axes) {
  const int rank = static_cast<int>(shape.size());
  std::vector<bool> reduced(shape.size(), false);
  for (const int64_t axis : axes) {
    if (axis < -rank || axis >= rank) return std::nullopt;
    reduced[static_cast<size_t>(axis < 0 ? axis + rank : axis)] = true;
  }
  int first = rank;
  while (first > 0 && reduced[static_cast<size_t>(first) - 1]) --first;
  for (int axis = 0; axis < first; ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (reduced[at] && shape[at].value != 1) return std::nullopt;
  }
  return first;
}

}  // namespace

// MeanVarianceNormalization of neighbouring elements: (x - mean) / (deviation + 1e-9).
Result<std::unique_ptr<Kernel>> MakeMeanVarianceNormalization(const KernelInfo& info) {
  const auto axes = info.node.attributes.Ints("axes", {0, 2, 3});
  const auto& shape = info.input_types[0].shape;
  const auto first = shape ? ReducedFrom(*shape, axes) : std::nullopt;
  if (info.InputType(0) != DataType::kFloat || info.node.since_version < 9 || !first) {
    return MakeScatteredMeanVariance(info);
  }
  return MakeKernel([axis = *first](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& x = context.InputShape(0);
    const int64_t rows = x.ElementCount(0, axis), width = x.ElementCount(axis, x.rank());
    PreparedKernel prepared;
    prepared.in_place = {{0, 0}};
    prepared.compute = [rows, width](const KernelContext& k) {
      k.pool().ParallelFor(rows, 1 + 8192 / (width + 1), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end && width > 0; ++row) {
          const float* in = k.input<float>(0) + row * width;
          const auto [mean, variance] = MomentsOf(in, width, true);
          const float scale = 1.0f / (std::sqrt(variance) + 1e-9f);
          math::CurrentSimd().affine(in, k.output<float>(0) + row * width, width, scale,
                                     -mean * scale);
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

// A scale or bias of rows: an element for each of theirs, or broadcast to all that is normalised,
// which is written out first.
struct RowParameter {
  size_t input = 0;
  StridedLoop<2> loop;
  int64_t elements = 0;  // in scratch; 0 where it is read as it is
  int64_t stride = 0;    // from row to row
  int64_t offset = 0;    // of its elements in scratch

  // For the element of the first row.
  const float* Begin(const KernelContext& k) const {
    return elements == 0 ? k.input<float>(input) : k.scratch<float>() + offset;
  }
  void WriteOut(const KernelContext& k) const {
    if (elements == 0) return;
    CopyStrided(loop, sizeof(float), k.scratch<float>() + offset, k.input<void>(input));
  }
};

Result<RowParameter> MakeRowParameter(const PrepareContext& context, size_t input, int axis) {
  const Shape& x = context.InputShape(0);
  const Shape& given = context.InputShape(input);
  const int64_t width = x.ElementCount(axis, x.rank());
  RowParameter parameter;
  parameter.input = input;
  if (given.ElementCount() == width && given.rank() <= x.rank() - axis) return parameter;
  if (!IsBroadcastable(given, x)) {
    return InvalidArgument(StrCat(Describe(context.node), ": input ", input, " of shape ",
                                  given.ToString(), " does not broadcast to ", x.ToString()));
  }
  const int missing = x.rank() - given.rank();
  bool by_row = false;
  for (int i = 0; i + missing < axis && i < given.rank(); ++i) by_row = by_row || given[i] != 1;
  std::vector<int64_t> dims = x.dims();
  for (int i = 0; !by_row && i < axis; ++i) dims[static_cast<size_t>(i)] = 1;
  const Shape written(dims);
  parameter.stride = by_row ? width : 0;
  if (given.ElementCount() == written.ElementCount()) return parameter;
  parameter.loop = BroadcastLoop<1>(written, {&given});
  parameter.elements = written.ElementCount();
  return parameter;
}

// LayerNormalization, RMSNormalization and SimplifiedLayerNormalization: rows from `axis` on are
// normalised; the latter two subtract no mean.
Result<std::unique_ptr<Kernel>> MakeLayerNormalization(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat || info.InputType(1) != DataType::kFloat) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  const bool centered = info.node.op_type == "LayerNormalization";
  const float epsilon = info.node.attributes.Float("epsilon", 1e-5f);
  return MakeKernel([centered, epsilon](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", -1), shape.rank()));
    const int64_t rows = shape.ElementCount(0, axis);
    const int64_t width = shape.ElementCount(axis, shape.rank());
    const bool has_bias = context.HasInput(2);
    ONNXD_ASSIGN_OR_RETURN(const RowParameter scale, MakeRowParameter(context, 1, axis));
    RowParameter bias;
    if (has_bias) {
      ONNXD_ASSIGN_OR_RETURN(bias, MakeRowParameter(context, 2, axis));
      bias.offset = scale.elements;
    }
    PreparedKernel prepared;
    prepared.scratch_bytes = static_cast<size_t>(scale.elements + bias.elements) * sizeof(float);
    prepared.in_place = {{0, 0}};
    // The statistics that outputs 1 and 2 carry; RMS forms have the deviation alone.
    const size_t deviation_output = centered ? 2 : 1;
    const bool wants_mean = centered && context.HasOutput(1);
    const bool wants_deviation = context.HasOutput(deviation_output);
    prepared.compute = [=](const KernelContext& k) {
      const math::Simd& simd = math::CurrentSimd();
      scale.WriteOut(k);
      bias.WriteOut(k);
      const float* const scales = scale.Begin(k);
      const float* const biases = has_bias ? bias.Begin(k) : nullptr;
      k.pool().ParallelFor(rows, 1 + 8192 / (width + 1), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          const float* in = k.input<float>(0) + row * width;
          const auto [mean, variance] = MomentsOf(in, width, centered);
          const float inverse = 1.0f / std::sqrt(variance + epsilon);
          simd.normalize(in, k.output<float>(0) + row * width, width, mean, inverse,
                         scales + row * scale.stride,
                         has_bias ? biases + row * bias.stride : nullptr);
          if (wants_mean) k.output<float>(1)[row] = mean;
          if (wants_deviation) k.output<float>(deviation_output)[row] = inverse;
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

// com.microsoft SkipLayerNormalization: LayerNormalization(input + skip + bias).
Result<std::unique_ptr<Kernel>> MakeSkipLayerNormalization(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType("SkipLayerNormalization", info.InputType(0));
  }
  const float epsilon = info.node.attributes.Float("epsilon", 1e-12f);
  return MakeKernel([epsilon](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& shape = context.InputShape(0);
    if (shape.rank() < 1) return InvalidArgument("SkipLayerNormalization needs rows");
    const int64_t width = shape[shape.rank() - 1];
    const int64_t rows = width == 0 ? 0 : shape.ElementCount() / width;
    const int64_t skip = context.InputShape(1).ElementCount();
    const bool has_beta = context.HasInput(3), has_bias = context.HasInput(4);
    if (skip == 0 || shape.ElementCount() % skip != 0 || skip % std::max<int64_t>(width, 1) != 0 ||
        context.InputShape(2).ElementCount() != width ||
        (has_beta && context.InputShape(3).ElementCount() != width) ||
        (has_bias && context.InputShape(4).ElementCount() != width)) {
      return InvalidArgument(StrCat(Describe(context.node), ": input shapes do not match"));
    }
    const bool wants_sum = context.HasOutput(3);
    PreparedKernel prepared;
    prepared.scratch_bytes = static_cast<size_t>(width) * sizeof(float);
    prepared.compute = [=](const KernelContext& k) {
      const math::Simd& simd = math::CurrentSimd();
      for (int64_t row = 0; row < rows; ++row) {
        float* sum = wants_sum ? k.output<float>(3) + row * width : k.scratch<float>();
        simd.binary(math::Binary::kAdd, k.input<float>(0) + row * width,
                    k.input<float>(1) + row * width % skip, sum, width, 1, 1);
        if (has_bias) simd.binary(math::Binary::kAdd, sum, k.input<float>(4), sum, width, 1, 1);
        const auto [mean, variance] = MomentsOf(sum, width, true);
        simd.normalize(sum, k.output<float>(0) + row * width, width, mean,
                       1.0f / std::sqrt(variance + epsilon), k.input<float>(2),
                       has_beta ? k.input<float>(3) : nullptr);
      }
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
