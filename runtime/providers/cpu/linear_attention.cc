// LinearAttention-27, CausalConvWithState-27, SwiGLU-28; com.microsoft's
// LinearAttention and CausalConvWithState, which have more attributes.
#include <algorithm>
#include <cmath>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

// How many states a call returns (com.microsoft): the last `window` ones, from oldest to newest, on
// an axis in front of the others; 0: the newest alone, without that axis.
constexpr int64_t kMaxStateWindow = 8;

Result<int64_t> StateWindow(const Node& node) {
  const int64_t window = node.attributes.Int("state_window", 0);
  if (window >= 0 && window <= kMaxStateWindow) return window;
  return InvalidArgument(StrCat(Describe(node), ": state_window of ", window, ", not 0 to 8"));
}

Shape WithWindow(int64_t window, const Shape& state) {
  if (window == 0) return state;
  Shape shape{window};
  for (int axis = 0; axis < state.rank(); ++axis) shape.Append(state[axis]);
  return shape;
}

// `state` as the state after step `step` of `steps`, into the slot that keeps it.
template <typename T>
void KeepState(const std::vector<T>& state, int64_t step, int64_t steps, int64_t window,
               std::vector<T>& slots) {
  const int64_t slot = std::max<int64_t>(window, 1) - steps + step;
  if (slot < 0) return;
  std::copy(state.begin(), state.end(), slots.begin() + slot * static_cast<int64_t>(state.size()));
}

struct LinearSizes {
  int64_t batch, steps, heads, key_heads, key, value;
  int64_t readers() const { return std::max(heads, key_heads); }
};

Result<LinearSizes> SizesOf(const Node& node, const Shape& q, const Shape& k, const Shape& v) {
  LinearSizes z{};
  z.heads = node.attributes.Int("q_num_heads", 0);
  z.key_heads = node.attributes.Int("kv_num_heads", 0);
  bool fits = z.heads > 0 && z.key_heads > 0 && q.rank() == 3 && k.rank() == 3 && v.rank() == 3;
  // More key heads than query heads: com.microsoft alone.
  fits = fits && (z.heads % z.key_heads == 0 ||
                  (node.domain == "com.microsoft" && z.key_heads % z.heads == 0));
  if (fits) {
    z.batch = q[0];
    z.steps = q[1];
    z.key = q[2] / z.heads;
    z.value = v[2] / z.key_heads;
    fits = q[2] == z.heads * z.key && v[2] == z.key_heads * z.value &&
           k == Shape{z.batch, z.steps, z.key_heads * z.key} && v[0] == z.batch && v[1] == z.steps;
  }
  if (fits) return z;
  return InvalidArgument(StrCat(Describe(node), ": query ", q.ToString(), ", key ", k.ToString(),
                                " and value ", v.ToString(), " do not fit the heads"));
}

// Numbers of [batch, steps, width], as float; `width` 0: the input is absent.
struct PerStep {
  std::vector<float> elements;
  int64_t width = 0;
  const float* row(int64_t i) const { return elements.data() + i * width; }
};

Result<PerStep> PerStepOf(const Node& node, const char* name, const Tensor* tensor,
                          const LinearSizes& z, bool wanted,
                          std::initializer_list<int64_t> widths) {
  PerStep result;
  if (tensor == nullptr && !wanted) return result;
  const Shape& shape = tensor == nullptr ? Shape{} : tensor->shape();
  result.width = shape.rank() == 3 ? shape[2] : 0;
  const bool fits = wanted && shape == Shape{z.batch, z.steps, result.width} &&
                    std::find(widths.begin(), widths.end(), result.width) != widths.end();
  if (!fits) {
    return InvalidArgument(StrCat(Describe(node), ": ", name, " of shape ", shape.ToString(),
                                  " does not fit update_rule '",
                                  node.attributes.String("update_rule", "gated_delta"), "'"));
  }
  result.elements = ElementsAs<float>(*tensor);
  return result;
}

// The state S[key, value] of one key head, which decays, is corrected and takes in key x value.
struct LinearState {
  float* elements;
  int64_t key, value;

  void Decay(const float* factors, bool each) {
    for (int64_t d = 0; d < key; ++d) {
      const float factor = std::exp(factors[each ? d : 0]);
      for (int64_t m = 0; m < value; ++m) elements[d * value + m] *= factor;
    }
  }

  // What the state holds for the key.
  void Read(const float* k, float scale, float* out) const {
    for (int64_t d = 0; d < key; ++d) {
      for (int64_t m = 0; m < value; ++m) out[m] += scale * k[d] * elements[d * value + m];
    }
  }

  void Write(const float* k, const float* amount) {
    for (int64_t d = 0; d < key; ++d) {
      for (int64_t m = 0; m < value; ++m) elements[d * value + m] += k[d] * amount[m];
    }
  }
};

// Source: the operator's text and reference in ONNX 1.23; onnxruntime's ContribOperators document.
Result<Values> LinearAttention(const Node& node, std::span<const Value> inputs) {
  const Tensor& q = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(const LinearSizes z, SizesOf(node, q.shape(), inputs[1].tensor().shape(),
                                                      inputs[2].tensor().shape()));
  ONNXD_ASSIGN_OR_RETURN(const int64_t window, StateWindow(node));
  const std::string rule = node.attributes.String("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool corrected = rule == "delta" || rule == "gated_delta";
  const Tensor* past = TensorAt(inputs, 3);
  const Shape state_shape{z.batch, z.key_heads, z.key, z.value};
  const Shape window_shape = WithWindow(window, state_shape);
  if ((rule != "linear" && !gated && !corrected) ||
      (past != nullptr && !(past->shape() == window_shape))) {
    return InvalidArgument(
        StrCat(Describe(node), ": update_rule '", rule, "' or past_state do not fit"));
  }
  ONNXD_ASSIGN_OR_RETURN(const PerStep decay, PerStepOf(node, "decay", TensorAt(inputs, 4), z,
                                                        gated, {z.key_heads, z.key_heads * z.key}));
  ONNXD_ASSIGN_OR_RETURN(const PerStep beta, PerStepOf(node, "beta", TensorAt(inputs, 5), z,
                                                       corrected, {z.key_heads, 1}));
  const auto query = ElementsAs<float>(q), key = ElementsAs<float>(inputs[1].tensor()),
             value = ElementsAs<float>(inputs[2].tensor());
  const auto state_size = static_cast<size_t>(state_shape.ElementCount());
  std::vector<float> state(state_size, 0.0f);
  if (past != nullptr) {
    const auto held = ElementsAs<float>(*past);
    std::copy(held.end() - static_cast<int64_t>(state_size), held.end(), state.begin());
  }
  std::vector<float> slots(static_cast<size_t>(window_shape.ElementCount()), 0.0f);
  float scale = node.attributes.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(z.key));
  // Readers of one key head, and readers of one query head.
  const int64_t share = z.readers() / z.key_heads, copies = z.readers() / z.heads;
  std::vector<float> out(static_cast<size_t>(z.batch * z.steps * z.readers() * z.value), 0.0f);
  std::vector<float> written(static_cast<size_t>(z.value));
  for (int64_t t = 0; t < z.steps; ++t) {
    for (int64_t lane = 0; lane < z.batch * z.key_heads; ++lane) {
      const int64_t row = lane / z.key_heads * z.steps + t, h = lane % z.key_heads;
      LinearState s{state.data() + lane * z.key * z.value, z.key, z.value};
      const float* k = key.data() + (row * z.key_heads + h) * z.key;
      const float* v = value.data() + (row * z.key_heads + h) * z.value;
      const bool each = decay.width != z.key_heads;
      if (gated) s.Decay(decay.row(row) + (each ? h * z.key : h), each);
      std::fill(written.begin(), written.end(), 0.0f);
      if (corrected) s.Read(k, 1.0f, written.data());
      const float rate = corrected ? beta.row(row)[beta.width == 1 ? 0 : h] : 1.0f;
      for (int64_t m = 0; m < z.value; ++m) {
        const auto i = static_cast<size_t>(m);
        written[i] = rate * (v[m] - written[i]);
      }
      s.Write(k, written.data());
      for (int64_t reader = h * share; reader < (h + 1) * share; ++reader) {
        s.Read(query.data() + (row * z.heads + reader / copies) * z.key, scale,
               out.data() + (row * z.readers() + reader) * z.value);
      }
    }
    KeepState(state, t, z.steps, window, slots);
  }
  if (z.steps == 0) KeepState(state, 0, 1, window, slots);
  ONNXD_ASSIGN_OR_RETURN(Tensor y,
                         TensorFrom(q.type(), Shape{z.batch, z.steps, z.readers() * z.value}, out));
  ONNXD_ASSIGN_OR_RETURN(
      Tensor present, TensorFrom(past != nullptr ? past->type() : q.type(), window_shape, slots));
  return Values{std::move(y), std::move(present)};
}

// Lengths and strides of CausalConvWithState's input, of its channels [batch, channels, length] or
// [batch, length, channels...].
struct CausalLayout {
  int64_t batch, channels, length, held;
  bool channels_last;

  // Element `at` of a channel that is `extent` long.
  int64_t Offset(int64_t b, int64_t channel, int64_t at, int64_t extent) const {
    return channels_last ? (b * extent + at) * channels + channel
                         : (b * channels + channel) * extent + at;
  }
};

Result<CausalLayout> CausalLayoutOf(const Node& node, const Shape& x, const Shape& w,
                                    int64_t dilation) {
  if (node.attributes.Int("ndim", 1) != 1) {
    return Unimplemented(StrCat(Describe(node), ": ndim other than 1 is not supported"));
  }
  CausalLayout z{};
  z.channels_last = node.attributes.Int("channels_last", 0) != 0;
  bool fits = (z.channels_last ? x.rank() >= 3 : x.rank() == 3) && w.rank() == 3 && w[2] > 0;
  if (fits) {
    z.batch = x[0];
    z.length = x[z.channels_last ? 1 : 2];
    z.channels = 1;
    for (int axis = z.channels_last ? 2 : 1; axis < (z.channels_last ? x.rank() : 2); ++axis) {
      z.channels *= x[axis];
    }
    fits = w == Shape{z.channels, 1, w[2]} && dilation >= 1 &&
           !__builtin_mul_overflow(w[2] - 1, dilation, &z.held);
  }
  if (fits) return z;
  return InvalidArgument(StrCat(Describe(node), ": input ", x.ToString(), ", weight ", w.ToString(),
                                " and dilation ", dilation, " do not fit"));
}

template <typename T>
Result<Values> CausalConv(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& w = inputs[1].tensor();
  const Tensor* bias = TensorAt(inputs, 2);
  const Tensor* past = TensorAt(inputs, 3);
  const Shape& shape = x.shape();
  const std::string activation = node.attributes.String("activation", "none");
  const int64_t dilation = node.attributes.Int("dilation", 1);
  ONNXD_ASSIGN_OR_RETURN(const CausalLayout z, CausalLayoutOf(node, shape, w.shape(), dilation));
  ONNXD_ASSIGN_OR_RETURN(const int64_t window, StateWindow(node));
  Shape state_shape = shape;
  state_shape[z.channels_last ? 1 : 2] = z.held;
  const Shape window_shape = WithWindow(window, state_shape);
  const bool fits = (bias == nullptr || bias->ElementCount() == z.channels) &&
                    (past == nullptr || past->shape() == window_shape) &&
                    (activation == "none" || activation == "silu" || activation == "swish");
  if (!fits) {
    return InvalidArgument(
        StrCat(Describe(node), ": bias, past_state or activation '", activation, "' do not fit"));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  ONNXD_ASSIGN_OR_RETURN(Tensor present, Tensor::Create(x.type(), window_shape));
  std::fill_n(present.mutable_data<T>(), present.ElementCount(), T(0));
  const int64_t taps = w.shape()[2], state_size = z.batch * z.channels * z.held;
  const int64_t slots = std::max<int64_t>(window, 1);
  // Without channels nothing bounds how much is held.
  const int64_t held = state_size == 0 ? 0 : z.held;
  std::vector<T> padded(static_cast<size_t>(held + z.length));
  for (int64_t b = 0; b < z.batch; ++b) {
    for (int64_t c = 0; c < z.channels; ++c) {
      for (int64_t i = 0; i < z.held; ++i) {
        const int64_t at = (slots - 1) * state_size + z.Offset(b, c, i, z.held);
        padded[static_cast<size_t>(i)] = past != nullptr ? past->data<T>()[at] : T(0);
      }
      for (int64_t i = 0; i < z.length; ++i) {
        padded[static_cast<size_t>(z.held + i)] = x.data<T>()[z.Offset(b, c, i, z.length)];
      }
      for (int64_t i = 0; i < z.length; ++i) {
        T sum = bias != nullptr ? bias->data<T>()[c] : T(0);
        for (int64_t t = 0; t < taps; ++t) {
          sum += w.data<T>()[c * taps + t] * padded[static_cast<size_t>(i + t * dilation)];
        }
        if (activation != "none") sum = sum / (T(1) + std::exp(-sum));
        out.mutable_data<T>()[z.Offset(b, c, i, z.length)] = sum;
      }
      // The state after step p is what precedes step p + 1; before the first there is but one.
      for (int64_t slot = std::max<int64_t>(0, slots - std::max<int64_t>(z.length, 1));
           slot < slots; ++slot) {
        const int64_t begin = z.length - (slots - 1 - slot);
        for (int64_t i = 0; i < z.held; ++i) {
          present.mutable_data<T>()[slot * state_size + z.Offset(b, c, i, z.held)] =
              padded[static_cast<size_t>(begin + i)];
        }
      }
    }
  }
  return Values{std::move(out), std::move(present)};
}

template <typename T>
Result<Values> SwiGlu(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  const Tensor& b = inputs[1].tensor();
  if (!(a.shape() == b.shape())) {
    return InvalidArgument(StrCat(Describe(node), ": A of shape ", a.shape().ToString(),
                                  " and B of shape ", b.shape().ToString(), " differ"));
  }
  const auto alpha = static_cast<T>(node.attributes.Float("alpha", 1));
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(a.type(), a.shape()));
  for (int64_t i = 0; i < a.ElementCount(); ++i) {
    const T x = a.data<T>()[i];
    out.mutable_data<T>()[i] = x / (T(1) + std::exp(-alpha * x)) * b.data<T>()[i];
  }
  return Values{std::move(out)};
}

Result<std::unique_ptr<Kernel>> ByType(const KernelInfo& info, EagerFunction single,
                                       EagerFunction twice) {
  if (info.InputType(0) == DataType::kFloat) return MakeEagerKernel(std::move(single));
  if (info.InputType(0) == DataType::kDouble) return MakeEagerKernel(std::move(twice));
  return DeclineType(info.node.op_type, info.InputType(0));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLinearAttention(const KernelInfo&) {
  return MakeEagerKernel(LinearAttention);
}
Result<std::unique_ptr<Kernel>> MakeCausalConvWithState(const KernelInfo& info) {
  return ByType(info, CausalConv<float>, CausalConv<double>);
}
Result<std::unique_ptr<Kernel>> MakeSwiGlu(const KernelInfo& info) {
  return ByType(info, SwiGlu<float>, SwiGlu<double>);
}

}  // namespace onnxd
