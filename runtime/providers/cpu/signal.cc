// DFT-17 to -20, STFT-17, BlackmanWindow-, HammingWindow-, HannWindow-17, MelWeightMatrix-17.
#include <algorithm>
#include <cmath>
#include <memory>
#include <mutex>
#include <numbers>

#include "runtime/math/fourier.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;
constexpr double kPi = std::numbers::pi;

constexpr int64_t kMaxLength = int64_t{1} << 24;

// The transform of a node's last length, but for large ones, which would keep as much memory.
class Transforms {
 public:
  std::shared_ptr<const math::FourierTransform> Get(int64_t length) {
    constexpr int64_t kMostKept = 1 << 16;
    if (length > kMostKept) return std::make_shared<const math::FourierTransform>(length);
    std::lock_guard lock(mutex_);
    if (last_ == nullptr || last_->length() != length) {
      last_ = std::make_shared<const math::FourierTransform>(length);
    }
    return last_;
  }

 private:
  std::mutex mutex_;
  std::shared_ptr<const math::FourierTransform> last_;  // guarded by mutex_
};

// So many that they stay in the second-level cache.
int64_t SignalsTogether(int64_t length) {
  constexpr int64_t kElements = 1 << 13, kMost = 16;
  return std::clamp<int64_t>(kElements / length, 1, kMost);
}

// Signals of complex numbers that are transformed together.
class Signals {
 public:
  Signals(int64_t length, int64_t count)
      : count_(std::max<int64_t>(count, 1)), numbers_(static_cast<size_t>(2 * length * count_)) {}

  int64_t count() const { return count_; }
  void Clear() { std::fill(numbers_.begin(), numbers_.end(), 0.0); }
  void Set(int64_t t, int64_t signal, double real, double imaginary) {
    numbers_[At(t, signal)] = real;
    numbers_[numbers_.size() / 2 + At(t, signal)] = imaginary;
  }
  double real(int64_t t, int64_t signal) const { return numbers_[At(t, signal)]; }
  double imaginary(int64_t t, int64_t signal) const {
    return numbers_[numbers_.size() / 2 + At(t, signal)];
  }
  // Unscaled.
  void Transform(const math::FourierTransform& transform, bool inverse) {
    double *first = numbers_.data(), *second = first + numbers_.size() / 2;
    if (inverse) std::swap(first, second);
    transform.Run(first, second, count_, scratch_);
  }

 private:
  size_t At(int64_t t, int64_t signal) const { return static_cast<size_t>(t * count_ + signal); }

  int64_t count_;
  std::vector<double> numbers_, scratch_;
};

Result<int64_t> OneInt(const Node& node, const Tensor& tensor, std::string_view what) {
  const auto values = ElementsAs<int64_t>(tensor);
  if (values.size() == 1) return values[0];
  return InvalidArgument(StrCat(Describe(node), ": ", what, " must be one number"));
}

Result<int> TransformAxis(const Node& node, std::span<const Value> inputs, int rank) {
  int64_t axis = node.since_version >= 20 ? -2 : node.attributes.Int("axis", 1);
  if (const Tensor* given = TensorAt(inputs, 2); given != nullptr && node.since_version >= 20) {
    ONNXD_ASSIGN_OR_RETURN(axis, OneInt(node, *given, "axis"));
  }
  ONNXD_ASSIGN_OR_RETURN(const int at, NormalizeAxis(axis, rank));
  if (at == rank - 1) return InvalidArgument(StrCat(Describe(node), ": axis is the last one"));
  return at;
}

Result<Values> Dft(const Node& node, std::span<const Value> inputs, Transforms& transforms) {
  const Tensor& signal = inputs[0].tensor();
  const Shape& shape = signal.shape();
  const int rank = shape.rank();
  if (rank < 2 || (shape[rank - 1] != 1 && shape[rank - 1] != 2)) {
    return InvalidArgument(StrCat(Describe(node), ": signal of shape ", shape.ToString()));
  }
  ONNXD_ASSIGN_OR_RETURN(const int axis, TransformAxis(node, inputs, rank));
  const bool inverse = node.attributes.Int("inverse", 0) != 0;
  const bool onesided = node.attributes.Int("onesided", 0) != 0;
  const int64_t extent = shape[axis], parts = shape[rank - 1];
  const bool from_half = inverse && onesided;
  int64_t length = from_half ? (extent - 1) * 2 : extent;
  if (const Tensor* given = TensorAt(inputs, 1)) {
    ONNXD_ASSIGN_OR_RETURN(length, OneInt(node, *given, "dft_length"));
  }
  if (length < 1 || length > kMaxLength) {
    return InvalidArgument(StrCat(Describe(node), ": dft_length is ", length));
  }
  const int64_t kept = onesided && !inverse ? length / 2 + 1 : length;
  const int64_t out_parts = from_half ? 1 : 2;
  Shape out_shape = shape;
  out_shape[axis] = kept;
  out_shape[rank - 1] = out_parts;
  ONNXD_RETURN_IF_ERROR(out_shape.Validate());
  const std::vector<double> in = ElementsAs<double>(signal);
  std::vector<double> out(static_cast<size_t>(out_shape.ElementCount()));
  const int64_t outer = shape.ElementCount(0, axis), inner = shape.ElementCount(axis + 1, rank - 1);
  const auto transform = transforms.Get(length);
  Signals signals(length, std::min(SignalsTogether(length), outer * inner));
  const double scale = inverse ? 1.0 / static_cast<double>(length) : 1.0;
  for (int64_t first = 0; first < outer * inner; first += signals.count()) {
    const int64_t count = std::min(signals.count(), outer * inner - first);
    signals.Clear();
    for (int64_t s = 0; s < count; ++s) {
      const int64_t o = (first + s) / inner, i = (first + s) % inner;
      for (int64_t t = 0; t < std::min(extent, length); ++t) {
        const auto at = static_cast<size_t>(((o * extent + t) * inner + i) * parts);
        const double imaginary = parts == 2 ? in[at + 1] : 0.0;
        signals.Set(t, s, in[at], imaginary);
        // The other half of a real signal's spectrum mirrors this one.
        if (from_half && t > 0 && length - t > t) signals.Set(length - t, s, in[at], -imaginary);
      }
    }
    signals.Transform(*transform, inverse);
    for (int64_t s = 0; s < count; ++s) {
      const int64_t o = (first + s) / inner, i = (first + s) % inner;
      for (int64_t t = 0; t < kept; ++t) {
        const auto at = static_cast<size_t>(((o * kept + t) * inner + i) * out_parts);
        out[at] = signals.real(t, s) * scale;
        if (out_parts == 2) out[at + 1] = signals.imaginary(t, s) * scale;
      }
    }
  }
  return OneValue(TensorFrom(signal.type(), out_shape, out));
}

Result<Values> Stft(const Node& node, std::span<const Value> inputs, Transforms& transforms) {
  const Tensor& signal = inputs[0].tensor();
  const Shape& shape = signal.shape();
  if (shape.rank() != 2 && shape.rank() != 3) {
    return InvalidArgument(StrCat(Describe(node), ": signal of shape ", shape.ToString()));
  }
  ONNXD_ASSIGN_OR_RETURN(const int64_t step, OneInt(node, inputs[1].tensor(), "frame_step"));
  const Tensor* window = TensorAt(inputs, 2);
  int64_t frame = window != nullptr ? window->ElementCount() : 0;
  if (const Tensor* given = TensorAt(inputs, 3)) {
    ONNXD_ASSIGN_OR_RETURN(frame, OneInt(node, *given, "frame_length"));
  }
  const int64_t length = shape[1], parts = shape.rank() == 3 ? shape[2] : 1;
  if (step < 1 || frame < 1 || frame > length || parts < 1 || parts > 2 ||
      (window != nullptr && window->ElementCount() != frame)) {
    return InvalidArgument(
        StrCat(Describe(node), ": frame_step, frame_length or window do not fit"));
  }
  const bool onesided = node.attributes.Int("onesided", 1) != 0;
  const int64_t frames = (length - frame) / step + 1, bins = onesided ? frame / 2 + 1 : frame;
  const Shape out_shape{shape[0], frames, bins, 2};
  ONNXD_RETURN_IF_ERROR(out_shape.Validate());
  const std::vector<double> in = ElementsAs<double>(signal);
  const std::vector<double> weights = window != nullptr
                                          ? ElementsAs<double>(*window)
                                          : std::vector<double>(static_cast<size_t>(frame), 1.0);
  std::vector<double> out(static_cast<size_t>(out_shape.ElementCount()));
  const auto transform = transforms.Get(frame);
  const int64_t all = shape[0] * frames;
  Signals signals(frame, std::min(SignalsTogether(frame), all));
  for (int64_t first = 0; first < all; first += signals.count()) {
    const int64_t count = std::min(signals.count(), all - first);
    for (int64_t s = 0; s < count; ++s) {
      const int64_t b = (first + s) / frames, f = (first + s) % frames;
      for (int64_t t = 0; t < frame; ++t) {
        const auto at = static_cast<size_t>((b * length + f * step + t) * parts);
        const double weight = weights[static_cast<size_t>(t)];
        signals.Set(t, s, in[at] * weight, parts == 2 ? in[at + 1] * weight : 0.0);
      }
    }
    signals.Transform(*transform, false);
    for (int64_t s = 0; s < count; ++s) {
      double* to = out.data() + (first + s) * bins * 2;
      for (int64_t k = 0; k < bins; ++k) {
        *to++ = signals.real(k, s);
        *to++ = signals.imaginary(k, s);
      }
    }
  }
  return OneValue(TensorFrom(signal.type(), out_shape, out));
}

Result<Values> Window(const Node& node, std::span<const Value> inputs, DataType type) {
  ONNXD_ASSIGN_OR_RETURN(const int64_t size, OneInt(node, inputs[0].tensor(), "size"));
  if (size < 0 || size > kMaxLength) {
    return InvalidArgument(StrCat(Describe(node), ": size is ", size));
  }
  const bool periodic = node.attributes.Int("periodic", 1) != 0;
  const double period = static_cast<double>(periodic ? size : size - 1);
  std::vector<double> out;
  for (int64_t i = 0; i < size; ++i) {
    const double angle = period == 0 ? 0 : 2 * kPi * static_cast<double>(i) / period;
    if (node.op_type == "HannWindow") {
      out.push_back(0.5 - 0.5 * std::cos(angle));
    } else if (node.op_type == "HammingWindow") {
      out.push_back(25.0 / 46.0 - 21.0 / 46.0 * std::cos(angle));
    } else {
      out.push_back(0.42 - 0.5 * std::cos(angle) + 0.08 * std::cos(2 * angle));
    }
  }
  return OneValue(TensorFrom(type, Shape{size}, out));
}

// Triangles between neighbouring mel frequencies; follows the reference, which rounds edges down to
// spectrogram bins.
Result<Values> MelWeightMatrix(const Node& node, std::span<const Value> inputs, DataType type) {
  ONNXD_ASSIGN_OR_RETURN(const int64_t bins, OneInt(node, inputs[0].tensor(), "num_mel_bins"));
  ONNXD_ASSIGN_OR_RETURN(const int64_t length, OneInt(node, inputs[1].tensor(), "dft_length"));
  ONNXD_ASSIGN_OR_RETURN(const int64_t rate, OneInt(node, inputs[2].tensor(), "sample_rate"));
  const auto low = ElementsAs<double>(inputs[3].tensor()),
             high = ElementsAs<double>(inputs[4].tensor());
  if (bins < 1 || length < 1 || rate < 1 || bins > (1 << 20) || length > kMaxLength ||
      low.size() != 1 || high.size() != 1 || !(low[0] >= 0) || !(high[0] >= low[0])) {
    return InvalidArgument(StrCat(Describe(node), ": an input is out of range"));
  }
  const int64_t rows = length / 2 + 1;
  const Shape shape{rows, bins};
  ONNXD_RETURN_IF_ERROR(shape.Validate());
  const auto mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double low_mel = mel(low[0]);
  const double step = (mel(high[0]) - low_mel) / static_cast<double>(bins + 2);
  std::vector<int64_t> edges;
  for (int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10, (low_mel + step * static_cast<double>(i)) / 2595) - 1);
    edges.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }
  std::vector<double> out(static_cast<size_t>(shape.ElementCount()), 0.0);
  const auto set = [&](int64_t row, int64_t bin, double value) {
    if (row >= 0 && row < rows) out[static_cast<size_t>(row * bins + bin)] = value;
  };
  for (int64_t bin = 0; bin < bins; ++bin) {
    const auto at = static_cast<size_t>(bin);
    const int64_t left = edges[at], center = edges[at + 1], right = edges[at + 2];
    if (center == left) set(center, bin, 1.0);
    for (int64_t row = left; row <= std::min(center, rows) && center != left; ++row) {
      set(row, bin, static_cast<double>(row - left) / static_cast<double>(center - left));
    }
    for (int64_t row = center; row < std::min(right, rows) && right > center; ++row) {
      set(row, bin, static_cast<double>(right - row) / static_cast<double>(right - center));
    }
  }
  return OneValue(TensorFrom(type, shape, out));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeDft(const KernelInfo& info) {
  if (!IsFloatOrDouble(info.InputType(0))) return DeclineType("DFT", info.InputType(0));
  return MakeEagerKernel([transforms = std::make_shared<Transforms>()](
                             const Node& node, std::span<const Value> inputs) {
    return Dft(node, inputs, *transforms);
  });
}
Result<std::unique_ptr<Kernel>> MakeStft(const KernelInfo& info) {
  if (!IsFloatOrDouble(info.InputType(0))) return DeclineType("STFT", info.InputType(0));
  return MakeEagerKernel([transforms = std::make_shared<Transforms>()](
                             const Node& node, std::span<const Value> inputs) {
    return Stft(node, inputs, *transforms);
  });
}
Result<std::unique_ptr<Kernel>> MakeWindow(const KernelInfo& info) {
  const DataType type = info.OutputType(0);
  return MakeEagerKernel([type](const Node& node, std::span<const Value> inputs) {
    return Window(node, inputs, type);
  });
}
Result<std::unique_ptr<Kernel>> MakeMelWeightMatrix(const KernelInfo& info) {
  const DataType type = info.OutputType(0);
  return MakeEagerKernel([type](const Node& node, std::span<const Value> inputs) {
    return MelWeightMatrix(node, inputs, type);
  });
}

}  // namespace onnxd
