// RotaryEmbedding-23, LinearAttention-27, CausalConvWithState-27, SwiGLU-28.
#include <algorithm>
#include <cmath>

#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

template <typename T>
Result<Values> RotaryEmbedding(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& cos = inputs[1].tensor();
  const Tensor& sin = inputs[2].tensor();
  const Tensor* positions = TensorAt(inputs, 3);
  const Shape& shape = x.shape();
  const bool split = shape.rank() == 4;  // [batch, heads, sequence, head size]
  const int64_t stated = node.attributes.Int("num_heads", 0);
  const auto fail = [&](std::string_view why) {
    return InvalidArgument(StrCat(Describe(node), ": ", why, " (X ", shape.ToString(), ", cos ",
                                  cos.shape().ToString(), ")"));
  };
  if (!split && (shape.rank() != 3 || stated < 1 || shape[2] % stated != 0)) {
    return fail("X needs rank 4, or rank 3 and num_heads");
  }
  const int64_t batch = shape[0], sequence = shape[split ? 2 : 1];
  const int64_t heads = split ? shape[1] : stated;
  const int64_t size = split ? shape[3] : shape[2] / stated;
  int64_t rotated = node.attributes.Int("rotary_embedding_dim", 0);
  if (rotated == 0) rotated = size;
  const int64_t half = rotated / 2;
  const bool interleaved = node.attributes.Int("interleaved", 0) != 0;
  if (rotated < 2 || rotated % 2 != 0 || rotated > size) return fail("rotary_embedding_dim");
  // With positions the caches are [positions, half], else [batch, sequence, half]; wider ones are
  // read in part.
  const Shape& cache = cos.shape();
  const int64_t width = cache.rank() > 0 ? cache[cache.rank() - 1] : 0;
  const Shape wanted = positions != nullptr ? Shape{cache.rank() == 2 ? cache[0] : 0, width}
                                            : Shape{batch, sequence, width};
  if (!(cache == wanted) || !(sin.shape() == wanted) || width < half) {
    return fail("a cache does not fit");
  }
  if (positions != nullptr && positions->ElementCount() != batch * sequence) {
    return fail("position_ids do not fit");
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t s = 0; s < sequence; ++s) {
      int64_t row = b * sequence + s;
      if (positions != nullptr) {
        row = positions->data<int64_t>()[row];
        if (row < 0 || row >= cos.shape()[0]) return fail("a position is outside the cache");
      }
      const T* c = cos.data<T>() + row * width;
      const T* i = sin.data<T>() + row * width;
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t at = split ? ((b * heads + h) * sequence + s) * size
                                 : ((b * sequence + s) * heads + h) * size;
        const T* from = x.data<T>() + at;
        T* to = out.mutable_data<T>() + at;
        for (int64_t d = 0; d < half; ++d) {
          const int64_t first = interleaved ? 2 * d : d,
                        second = interleaved ? 2 * d + 1 : d + half;
          const T real = from[first], imaginary = from[second];
          to[first] = c[d] * real - i[d] * imaginary;
          to[second] = i[d] * real + c[d] * imaginary;
        }
        std::copy_n(from + rotated, size - rotated, to + rotated);
      }
    }
  }
  return Values{std::move(out)};
}

struct LinearSizes {
  int64_t batch, steps, heads, key_heads, key, value;
};

Result<LinearSizes> SizesOf(const Node& node, const Shape& q, const Shape& k, const Shape& v) {
  LinearSizes z{};
  z.heads = node.attributes.Int("q_num_heads", 0);
  z.key_heads = node.attributes.Int("kv_num_heads", 0);
  bool fits = z.heads > 0 && z.key_heads > 0 && z.heads % z.key_heads == 0 && q.rank() == 3 &&
              k.rank() == 3 && v.rank() == 3;
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

// The state S[key, value] of each key head: decays, is corrected, takes in key x value, and is read
// by the query. Source: the operator's text and reference in ONNX 1.23.
Result<Values> LinearAttention(const Node& node, std::span<const Value> inputs) {
  const Tensor& q = inputs[0].tensor();
  ONNXD_ASSIGN_OR_RETURN(const LinearSizes z, SizesOf(node, q.shape(), inputs[1].tensor().shape(),
                                                      inputs[2].tensor().shape()));
  const std::string rule = node.attributes.String("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool corrected = rule == "delta" || rule == "gated_delta";
  const Tensor* past = TensorAt(inputs, 3);
  const Tensor* decay = TensorAt(inputs, 4);
  const Tensor* beta = TensorAt(inputs, 5);
  const Shape state_shape{z.batch, z.key_heads, z.key, z.value};
  const auto last = [](const Tensor& t) { return t.shape().rank() == 3 ? t.shape()[2] : -1; };
  bool fits = (rule == "linear" || gated || corrected) && (decay != nullptr) == gated &&
              (beta != nullptr) == corrected && (past == nullptr || past->shape() == state_shape);
  if (fits && gated) {
    fits = last(*decay) == z.key_heads || last(*decay) == z.key_heads * z.key;
    fits = fits && decay->ElementCount() == z.batch * z.steps * last(*decay);
  }
  if (fits && corrected) {
    fits = last(*beta) == z.key_heads || last(*beta) == 1;
    fits = fits && beta->ElementCount() == z.batch * z.steps * last(*beta);
  }
  if (!fits) {
    return InvalidArgument(
        StrCat(Describe(node), ": update_rule '", rule, "', decay, beta or past_state do not fit"));
  }
  const auto floats = [](const Tensor* t) {
    return t == nullptr ? std::vector<float>() : ElementsAs<float>(*t);
  };
  const auto query = floats(&q), key = floats(&inputs[1].tensor()),
             value = floats(&inputs[2].tensor());
  const auto decays = floats(decay), betas = floats(beta);
  std::vector<float> state = floats(past);
  state.resize(static_cast<size_t>(state_shape.ElementCount()), 0.0f);
  float scale = node.attributes.Float("scale", 0);
  if (scale == 0) scale = 1 / std::sqrt(static_cast<float>(z.key));
  const int64_t share = z.heads / z.key_heads;
  std::vector<float> out(static_cast<size_t>(z.batch * z.steps * z.heads * z.value), 0.0f);
  std::vector<float> written(static_cast<size_t>(z.value));
  for (int64_t b = 0; b < z.batch; ++b) {
    for (int64_t h = 0; h < z.key_heads; ++h) {
      float* s = state.data() + (b * z.key_heads + h) * z.key * z.value;
      for (int64_t t = 0; t < z.steps; ++t) {
        const int64_t row = b * z.steps + t;
        const float* k = key.data() + (row * z.key_heads + h) * z.key;
        const float* v = value.data() + (row * z.key_heads + h) * z.value;
        for (int64_t d = 0; gated && d < z.key; ++d) {
          const int64_t at = last(*decay) == z.key_heads ? row * z.key_heads + h
                                                         : (row * z.key_heads + h) * z.key + d;
          const float factor = std::exp(decays[static_cast<size_t>(at)]);
          for (int64_t m = 0; m < z.value; ++m) s[d * z.value + m] *= factor;
        }
        for (int64_t m = 0; m < z.value; ++m) {
          float amount = v[m];
          if (corrected) {
            float held = 0;
            for (int64_t d = 0; d < z.key; ++d) held += s[d * z.value + m] * k[d];
            const int64_t at = last(*beta) == 1 ? row : row * z.key_heads + h;
            amount = betas[static_cast<size_t>(at)] * (amount - held);
          }
          written[static_cast<size_t>(m)] = amount;
        }
        for (int64_t d = 0; d < z.key; ++d) {
          for (int64_t m = 0; m < z.value; ++m) {
            s[d * z.value + m] += k[d] * written[static_cast<size_t>(m)];
          }
        }
        for (int64_t reader = h * share; reader < (h + 1) * share; ++reader) {
          const float* asked = query.data() + (row * z.heads + reader) * z.key;
          float* to = out.data() + (row * z.heads + reader) * z.value;
          for (int64_t d = 0; d < z.key; ++d) {
            for (int64_t m = 0; m < z.value; ++m) to[m] += scale * asked[d] * s[d * z.value + m];
          }
        }
      }
    }
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor y,
                         TensorFrom(q.type(), Shape{z.batch, z.steps, z.heads * z.value}, out));
  ONNXD_ASSIGN_OR_RETURN(Tensor present,
                         TensorFrom(past != nullptr ? past->type() : q.type(), state_shape, state));
  return Values{std::move(y), std::move(present)};
}

template <typename T>
Result<Values> CausalConv(const Node& node, std::span<const Value> inputs) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& w = inputs[1].tensor();
  const Tensor* bias = TensorAt(inputs, 2);
  const Tensor* past = TensorAt(inputs, 3);
  const Shape& shape = x.shape();
  const std::string activation = node.attributes.String("activation", "none");
  const int64_t taps = w.shape().rank() == 3 ? w.shape()[2] : 0;
  const bool fits = shape.rank() == 3 && taps > 0 && w.shape() == Shape{shape[1], 1, taps} &&
                    (bias == nullptr || bias->ElementCount() == shape[1]) &&
                    (past == nullptr || past->shape() == Shape{shape[0], shape[1], taps - 1}) &&
                    (activation == "none" || activation == "silu" || activation == "swish");
  if (!fits) {
    return InvalidArgument(StrCat(Describe(node), ": input ", shape.ToString(), ", weight ",
                                  w.shape().ToString(), ", past_state or activation do not fit"));
  }
  const int64_t length = shape[2], held = taps - 1;
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(x.type(), shape));
  ONNXD_ASSIGN_OR_RETURN(Tensor present, Tensor::Create(x.type(), Shape{shape[0], shape[1], held}));
  std::vector<T> padded(static_cast<size_t>(held + length));
  for (int64_t lane = 0; lane < shape[0] * shape[1]; ++lane) {
    const int64_t channel = lane % shape[1];
    if (past != nullptr) {
      std::copy_n(past->data<T>() + lane * held, held, padded.begin());
    } else {
      std::fill_n(padded.begin(), held, T(0));
    }
    std::copy_n(x.data<T>() + lane * length, length, padded.begin() + held);
    for (int64_t i = 0; i < length; ++i) {
      T sum = bias != nullptr ? bias->data<T>()[channel] : T(0);
      for (int64_t t = 0; t < taps; ++t) {
        sum += w.data<T>()[channel * taps + t] * padded[static_cast<size_t>(i + t)];
      }
      if (activation != "none") sum = sum / (T(1) + std::exp(-sum));
      out.mutable_data<T>()[lane * length + i] = sum;
    }
    std::copy_n(padded.end() - held, held, present.mutable_data<T>() + lane * held);
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

Result<std::unique_ptr<Kernel>> MakeRotaryEmbedding(const KernelInfo& info) {
  return ByType(info, RotaryEmbedding<float>, RotaryEmbedding<double>);
}
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
