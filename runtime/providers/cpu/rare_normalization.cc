// LRN-1, -13, LpNormalization-1, -22, MeanVarianceNormalization-9, -13, GroupNormalization-18, -21
// of doubles, BatchNormalization in training mode (14, 15).
#include <algorithm>
#include <cmath>

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Result<Values> Lrn(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const int64_t size = node.attributes.Int("size", 1);
  if (shape.rank() < 2 || size < 1) {
    return InvalidArgument(StrCat(Describe(node), ": input of shape ", shape.ToString()));
  }
  const double alpha = node.attributes.Float("alpha", 1e-4f);
  const double beta = node.attributes.Float("beta", 0.75f);
  const double bias = node.attributes.Float("bias", 1);
  const std::vector<double> in = ElementsAs<double>(x);
  std::vector<double> out(in.size());
  const int64_t channels = shape[1], plane = shape.ElementCount(2, shape.rank());
  for (int64_t i = 0; i < static_cast<int64_t>(in.size()); ++i) {
    const int64_t c = i / plane % channels, base = i - c * plane;
    const int64_t first = std::max<int64_t>(0, c - (size - 1) / 2);
    const int64_t last = std::min(channels - 1, c + size / 2);
    double squares = 0;
    for (int64_t j = first; j <= last; ++j) {
      const double value = in[static_cast<size_t>(base + j * plane)];
      squares += value * value;
    }
    out[static_cast<size_t>(i)] =
        in[static_cast<size_t>(i)] /
        std::pow(bias + alpha / static_cast<double>(size) * squares, beta);
  }
  return OneValue(TensorFrom(x.type(), shape, out));
}

// x[extent, inner] by the norms of its columns; of one column, of the whole.
void NormalizeColumns(const float* x, int64_t extent, int64_t inner, bool absolute, float* y,
                      std::vector<float>& norms) {
  const math::Simd& simd = math::CurrentSimd();
  const int64_t count = extent * inner;
  norms.assign(static_cast<size_t>(2 * inner), 0.0f);
  float *const norm = norms.data(), *const zeros = norm + inner;
  if (absolute) simd.unary(math::Unary::kAbs, x, y, count);
  if (inner == 1) {
    *norm = absolute ? simd.sum(y, count) : simd.sum_of_squares(x, count, 0);
  } else if (absolute) {
    simd.sum_rows(y, extent, inner, norm);
  } else {
    simd.sum_square_rows(x, extent, inner, zeros, norm);
  }
  if (!absolute) simd.unary(math::Unary::kSqrt, norm, norm, inner);
  std::replace(norm, norm + inner, 0.0f, 1.0f);  // of zeros, which stay
  if (inner == 1) return simd.binary(math::Binary::kDiv, x, norm, y, count, 1, 0);
  for (int64_t i = 0; i < extent; ++i) {
    simd.binary(math::Binary::kDiv, x + i * inner, norm, y + i * inner, inner, 1, 1);
  }
}

Result<Values> LpNormalization(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("axis", -1), shape.rank()));
  const bool absolute = node.attributes.Int("p", 2) == 1;
  if (x.type() == DataType::kFloat) {
    ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
    const int64_t columns = shape.ElementCount(axis + 1, shape.rank());
    const int64_t each = shape[axis] * columns;
    std::vector<float> norms;
    for (int64_t i = 0; each > 0 && i < shape.ElementCount(0, axis); ++i) {
      NormalizeColumns(x.data<float>() + i * each, shape[axis], columns, absolute,
                       out.mutable_data<float>() + i * each, norms);
    }
    return Values{std::move(out)};
  }
  std::vector<double> values = ElementsAs<double>(x);
  const int64_t outer = shape.ElementCount(0, axis), extent = shape[axis];
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  for (int64_t lane = 0; lane < outer * inner; ++lane) {
    const int64_t base = lane / inner * extent * inner + lane % inner;
    double norm = 0;
    for (int64_t i = 0; i < extent; ++i) {
      const double value = values[static_cast<size_t>(base + i * inner)];
      norm += absolute ? std::abs(value) : value * value;
    }
    if (!absolute) norm = std::sqrt(norm);
    for (int64_t i = 0; i < extent; ++i) {
      double& value = values[static_cast<size_t>(base + i * inner)];
      value = norm == 0 ? 0 : value / norm;
    }
  }
  return OneValue(TensorFrom(x.type(), shape, values));
}

Result<Values> MeanVariance(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  std::vector<bool> reduced(static_cast<size_t>(shape.rank()), false);
  // Version 1, an experiment, states whether channels are reduced too.
  const bool across = node.attributes.Int("across_channels", 0) != 0;
  const std::vector<int64_t> fallback =
      across ? std::vector<int64_t>{0, 1, 2, 3} : std::vector<int64_t>{0, 2, 3};
  const bool scaled = node.attributes.Int("normalize_variance", 1) != 0;
  for (const int64_t given : node.attributes.Ints("axes", fallback)) {
    ONNXD_ASSIGN_OR_RETURN(const int axis, NormalizeAxis(given, shape.rank()));
    reduced[static_cast<size_t>(axis)] = true;
  }
  // Elements with the same position on the other axes form a group.
  const std::vector<int64_t> strides = DenseStrides(shape);
  std::vector<double> values = ElementsAs<double>(x);
  std::vector<size_t> groups(values.size(), 0);
  size_t group_count = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto at = static_cast<size_t>(axis);
    if (reduced[at]) continue;
    const auto extent = static_cast<size_t>(shape[axis]);
    for (size_t i = 0; i < values.size(); ++i) {
      groups[i] = groups[i] * extent + i / static_cast<size_t>(strides[at]) % extent;
    }
    group_count *= extent;
  }
  std::vector<double> sums(group_count, 0), squares(group_count, 0);
  for (size_t i = 0; i < values.size(); ++i) {
    sums[groups[i]] += values[i];
    squares[groups[i]] += values[i] * values[i];
  }
  const double count = static_cast<double>(values.size()) / static_cast<double>(group_count);
  for (size_t i = 0; i < values.size(); ++i) {
    const double mean = sums[groups[i]] / count;
    const double variance = std::max(squares[groups[i]] / count - mean * mean, 0.0);
    values[i] = (values[i] - mean) / (scaled ? std::sqrt(variance) + 1e-9 : 1.0);
  }
  return OneValue(TensorFrom(x.type(), shape, values));
}

// scale and bias are per group in version 18, per channel from 21 on.
Result<Values> GroupNormalization(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const int64_t groups = node.attributes.Int("num_groups", 0);
  const double epsilon = node.attributes.Float("epsilon", 1e-5f);
  const std::vector<double> scale = ElementsAs<double>(inputs[1].tensor());
  const std::vector<double> bias = ElementsAs<double>(inputs[2].tensor());
  if (shape.rank() < 2 || groups < 1 || shape[1] % groups != 0) {
    return InvalidArgument(
        StrCat(Describe(node), ": ", groups, " groups for input of shape ", shape.ToString()));
  }
  const int64_t channels = shape[1], plane = shape.ElementCount(2, shape.rank());
  const bool per_group = node.since_version < 21;
  const int64_t wanted = per_group ? groups : channels;
  if (static_cast<int64_t>(scale.size()) != wanted || scale.size() != bias.size()) {
    return InvalidArgument(StrCat(Describe(node), ": scale and bias need ", wanted, " entries"));
  }
  std::vector<double> values = ElementsAs<double>(x);
  const int64_t width = channels / groups * plane;
  for (int64_t lane = 0; lane < shape[0] * groups; ++lane) {
    double* row = values.data() + lane * width;
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < width; ++i) mean += row[i];
    mean /= static_cast<double>(width);
    for (int64_t i = 0; i < width; ++i) variance += (row[i] - mean) * (row[i] - mean);
    const double inverse = 1 / std::sqrt(variance / static_cast<double>(width) + epsilon);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t group = lane % groups;
      const auto at =
          static_cast<size_t>(per_group ? group : group * (channels / groups) + i / plane);
      row[i] = (row[i] - mean) * inverse * scale[at] + bias[at];
    }
  }
  return OneValue(TensorFrom(x.type(), shape, values));
}

Result<Values> TrainingBatchNormalization(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Shape& shape = x.shape();
  const double epsilon = node.attributes.Float("epsilon", 1e-5f);
  const double momentum = node.attributes.Float("momentum", 0.9f);
  if (shape.rank() < 2) return InvalidArgument(StrCat(Describe(node), ": no channel axis"));
  const int64_t channels = shape[1], plane = shape.ElementCount(2, shape.rank());
  std::vector<std::vector<double>> parameters;
  for (size_t i = 1; i < 5; ++i) {
    parameters.push_back(ElementsAs<double>(inputs[i].tensor()));
    if (static_cast<int64_t>(parameters.back().size()) != channels) {
      return InvalidArgument(
          StrCat(Describe(node), ": input ", i, " needs ", channels, " entries"));
    }
  }
  std::vector<double> values = ElementsAs<double>(x);
  const auto count = static_cast<double>(shape[0] * plane);
  for (int64_t c = 0; c < channels; ++c) {
    const auto at = static_cast<size_t>(c);
    const auto visit = [&](auto body) {
      for (int64_t b = 0; b < shape[0]; ++b) {
        for (int64_t i = 0; i < plane; ++i) {
          body(values[static_cast<size_t>((b * channels + c) * plane + i)]);
        }
      }
    };
    double mean = 0, variance = 0;
    visit([&](double value) { mean += value; });
    mean /= count;
    visit([&](double value) { variance += (value - mean) * (value - mean); });
    variance /= count;
    const double factor = parameters[0][at] / std::sqrt(variance + epsilon);
    visit([&](double& value) { value = (value - mean) * factor + parameters[1][at]; });
    parameters[2][at] = parameters[2][at] * momentum + mean * (1 - momentum);
    parameters[3][at] = parameters[3][at] * momentum + variance * (1 - momentum);
  }
  Values out;
  ONNXD_ASSIGN_OR_RETURN(Tensor y, TensorFrom(x.type(), shape, values));
  out.emplace_back(std::move(y));
  for (const size_t i : {3, 4}) {
    const Tensor& given = inputs[i].tensor();
    ONNXD_ASSIGN_OR_RETURN(Tensor running,
                           TensorFrom(given.type(), given.shape(), parameters[i - 1]));
    out.emplace_back(std::move(running));
  }
  return out;
}

Result<std::unique_ptr<Kernel>> FloatsOnly(const KernelInfo& info, EagerFunction function) {
  if (!IsFloatOrDouble(info.InputType(0))) {
    return DeclineType(info.node.op_type, info.InputType(0));
  }
  return MakeEagerKernel(std::move(function));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLrn(const KernelInfo& info) { return FloatsOnly(info, Lrn); }
Result<std::unique_ptr<Kernel>> MakeLpNormalization(const KernelInfo& info) {
  return FloatsOnly(info, LpNormalization);
}
Result<std::unique_ptr<Kernel>> MakeScatteredMeanVariance(const KernelInfo& info) {
  return FloatsOnly(info, MeanVariance);
}
Result<std::unique_ptr<Kernel>> MakeDoubleGroupNormalization(const KernelInfo& info) {
  return FloatsOnly(info, GroupNormalization);
}
Result<std::unique_ptr<Kernel>> MakeTrainingBatchNormalization(const KernelInfo& info) {
  return FloatsOnly(info, TrainingBatchNormalization);
}

}  // namespace onnxd
