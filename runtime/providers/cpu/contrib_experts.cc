// com.microsoft MoE, QMoE (experts chosen per row) and GatherBlockQuantized. Source of the
// semantics: onnxruntime's ContribOperators document.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "runtime/math/simd.h"
#include "runtime/providers/cpu/block_quantized.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/packed_matrix.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

// One of the linear layers of every expert: weights [experts, outputs, inputs], bias
// [experts, outputs] or none.
class ExpertLayer {
 public:
  // Quantized weights: codes packed along the inputs, a scale (and zero point) per output, or per
  // block of inputs.
  // `bits_attribute` overrides expert_weight_bits.
  static Result<ExpertLayer> Make(const Node& node, std::span<const Value> inputs, size_t weights,
                                  size_t scales, size_t bias, size_t zeros,
                                  const char* bits_attribute = "") {
    ExpertLayer layer;
    layer.weights_ = &inputs[weights].tensor();
    const Shape& shape = layer.weights_->shape();
    if (shape.rank() != 3) return Fail(node, "expert weights must have rank 3");
    layer.experts_ = shape[0];
    layer.outputs_ = shape[1];
    layer.inputs_ = shape[2];
    if (scales != kNone) {
      layer.bits_ =
          node.attributes.Int(bits_attribute, node.attributes.Int("expert_weight_bits", 4));
      if (layer.bits_ != 2 && layer.bits_ != 4 && layer.bits_ != 8) {
        return Fail(node, StrCat("weights of ", layer.bits_, " bits"));
      }
      layer.inputs_ *= 8 / layer.bits_;
      layer.scales_ = ElementsAs<float>(inputs[scales].tensor());
      const auto rows = layer.experts_ * layer.outputs_;
      const auto count = static_cast<int64_t>(layer.scales_.size());
      const int64_t block = node.attributes.Int("block_size", 0);
      layer.blocks_ = block > 0 ? (layer.inputs_ + block - 1) / block : 1;
      layer.block_ = block > 0 ? block : std::max<int64_t>(layer.inputs_, 1);
      if (count != rows * layer.blocks_) return Fail(node, "scales do not fit the weights");
      const Tensor* packed = TensorAt(inputs, zeros);
      // A row of packed zero points: the blocks of an output or, without blocks, all outputs.
      const int64_t in_row = block > 0 ? layer.blocks_ : layer.outputs_;
      const int64_t zero_rows = block > 0 ? rows : layer.experts_;
      const int64_t zero_row = (in_row * layer.bits_ + 7) / 8;
      if (packed != nullptr && static_cast<int64_t>(packed->bytes()) != zero_rows * zero_row) {
        return Fail(node, "zero points do not fit the weights");
      }
      for (int64_t i = 0; packed != nullptr && i < zero_rows * in_row; ++i) {
        const uint8_t* row = packed->data<uint8_t>() + i / in_row * zero_row;
        layer.zeros_.push_back(static_cast<float>(PackedCodeAt(row, i % in_row, layer.bits_)));
      }
    }
    layer.bias_ = TensorAt(inputs, bias);
    if (layer.bias_ != nullptr && layer.bias_->ElementCount() != layer.experts_ * layer.outputs_) {
      return Fail(node, "an expert bias does not fit its weights");
    }
    return layer;
  }

  static constexpr size_t kNone = 1000;

  int64_t experts() const { return experts_; }
  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }

  // y[rows, outputs] = x[rows, inputs] * weights[expert]^T + bias[expert]
  Status Apply(int64_t expert, const float* x, int64_t rows, float* y) const {
    const float* weights = nullptr;
    std::vector<float> dequantized;
    if (scales_.empty()) {
      weights = weights_->data<float>() + expert * outputs_ * inputs_;
    } else {
      dequantized = Dequantized(expert);
      weights = dequantized.data();
    }
    ONNXD_ASSIGN_OR_RETURN(const PackedMatrix packed, PackMatrix(weights, true, inputs_, outputs_));
    math::GemmArguments g{rows, outputs_, inputs_, x, inputs_, packed.data(), y, outputs_};
    if (bias_ != nullptr) g.bias = bias_->data<float>() + expert * outputs_;
    packed.simd->gemm(g);
    return Status::Ok();
  }

 private:
  std::vector<float> Dequantized(int64_t expert) const {
    BlockQuantizedRows rows{.codes = weights_->data<uint8_t>(),
                            .scales = scales_.data(),
                            .row_bytes = inputs_ * bits_ / 8,
                            .block = block_,
                            .blocks = blocks_,
                            .bits = bits_};
    if (!zeros_.empty()) rows.zeros = zeros_.data();
    std::vector<float> out(static_cast<size_t>(outputs_ * inputs_));
    for (int64_t o = 0; o < outputs_; ++o) {
      rows.Dequantize(
          expert * outputs_ + o,
          std::span(out).subspan(static_cast<size_t>(o * inputs_), static_cast<size_t>(inputs_)));
    }
    return out;
  }

  const Tensor* weights_ = nullptr;
  const Tensor* bias_ = nullptr;
  std::vector<float> scales_, zeros_;
  int64_t experts_ = 0, outputs_ = 0, inputs_ = 0, bits_ = 0, block_ = 1, blocks_ = 1;
};

float Sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

// SwiGLU: gate * sigmoid(alpha * gate) * (linear + beta), both limited.
class SwiGlu {
 public:
  explicit SwiGlu(const Attributes& a)
      : alpha_(a.Float("activation_alpha", 1)),
        beta_(a.Float("activation_beta", 0)),
        limit_(a.Float("swiglu_limit", std::numeric_limits<float>::infinity())) {}

  float operator()(float gate, float linear) const {
    gate = std::min(gate, limit_);
    linear = std::max(std::min(linear, limit_), -limit_);
    return gate * Sigmoid(alpha_ * gate) * (linear + beta_);
  }

 private:
  float alpha_, beta_, limit_;
};

// Applies the activation to rows of `width` hidden values; SwiGLU, whose gate lies beside them or
// between them, halves them. Returns the new width.
Result<int64_t> Activate(const Node& node, int64_t rows, int64_t width, std::vector<float>& h) {
  const std::string kind = node.attributes.String("activation_type", "relu");
  if (kind == "swiglu") {
    const int64_t fusion = node.attributes.Int("swiglu_fusion", 0), half = width / 2;
    if ((fusion != 1 && fusion != 2) || width % 2 != 0) return Fail(node, "swiglu without a gate");
    const bool interleaved = fusion == 1;
    const SwiGlu swiglu(node.attributes);
    std::vector<float> out(static_cast<size_t>(rows * half));
    for (int64_t r = 0; r < rows; ++r) {
      const float* row = h.data() + r * width;
      for (int64_t i = 0; i < half; ++i) {
        out[static_cast<size_t>(r * half + i)] =
            swiglu(row[interleaved ? 2 * i : i], row[interleaved ? 2 * i + 1 : half + i]);
      }
    }
    h = std::move(out);
    return half;
  }
  for (float& x : h) {
    if (kind == "relu") x = std::max(x, 0.0f);
    if (kind == "silu") x = x * Sigmoid(x);
    if (kind == "gelu") x = 0.5f * x * (1 + std::tanh(0.79788456f * (x + 0.044715f * x * x * x)));
  }
  if (kind != "relu" && kind != "silu" && kind != "gelu" && kind != "identity") {
    return Unimplemented(StrCat(Describe(node), ": activation_type ", kind));
  }
  return width;
}

// The activation of h times what the gate's layer gives, in place.
Status ActivateGated(const Node& node, const std::vector<float>& linear, std::vector<float>& h) {
  if (node.attributes.String("activation_type", "relu") == "swiglu") {
    const SwiGlu swiglu(node.attributes);
    for (size_t i = 0; i < h.size(); ++i) h[i] = swiglu(h[i], linear[i]);
    return Status::Ok();
  }
  const auto size = static_cast<int64_t>(h.size());
  ONNXD_RETURN_IF_ERROR(Activate(node, 1, size, h).status());
  for (size_t i = 0; i < h.size(); ++i) h[i] *= linear[i];
  return Status::Ok();
}

// A row and its weight in the sum of experts.
struct Assignment {
  int64_t row;
  float weight;
};

// The k largest of each row's logits choose the experts. Their weights are the softmax over all
// experts or, where `given` is not null, its elements; `normalize` scales them to a sum of 1. One
// list per expert.
std::vector<std::vector<Assignment>> Route(const float* logits, const float* given, int64_t rows,
                                           int64_t experts, int64_t k, bool normalize) {
  std::vector<std::vector<Assignment>> lists(static_cast<size_t>(experts));
  std::vector<float> weights(static_cast<size_t>(experts));
  std::vector<int64_t> order(static_cast<size_t>(experts));
  for (int64_t row = 0; row < rows; ++row) {
    const float* from = logits + row * experts;
    const float largest = *std::max_element(from, from + experts);
    float sum = 0;
    for (int64_t e = 0; e < experts; ++e) {
      sum += weights[static_cast<size_t>(e)] = std::exp(from[e] - largest);
    }
    std::iota(order.begin(), order.end(), 0);
    // NaN compares with nothing, which sorting does not bear: such a row takes the first experts.
    if (!std::isnan(sum)) {
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return weights[static_cast<size_t>(a)] > weights[static_cast<size_t>(b)];
      });
    }
    if (given != nullptr) {
      std::copy_n(given + row * experts, experts, weights.begin());
      sum = 1;
    }
    float chosen = 0;
    for (int64_t i = 0; i < k; ++i)
      chosen += weights[static_cast<size_t>(order[static_cast<size_t>(i)])];
    for (int64_t i = 0; i < k; ++i) {
      const auto e = static_cast<size_t>(order[static_cast<size_t>(i)]);
      lists[e].push_back({row, weights[e] / (normalize ? chosen : sum)});
    }
  }
  return lists;
}

// fc2(activation(fc1(x))), or with a gate fc2(activation(fc1(x)) * fc3(x)).
struct ExpertLayers {
  ExpertLayer first, second;
  std::optional<ExpertLayer> gate;

  // y and x: [rows, hidden]; they may be the same.
  Status Apply(const Node& node, int64_t expert, const float* x, int64_t rows, float* y) const {
    std::vector<float> h(static_cast<size_t>(rows * first.outputs()));
    ONNXD_RETURN_IF_ERROR(first.Apply(expert, x, rows, h.data()));
    int64_t width = first.outputs();
    if (gate) {
      std::vector<float> linear(h.size());
      ONNXD_RETURN_IF_ERROR(gate->Apply(expert, x, rows, linear.data()));
      ONNXD_RETURN_IF_ERROR(ActivateGated(node, linear, h));
    } else {
      ONNXD_ASSIGN_OR_RETURN(width, Activate(node, rows, width, h));
    }
    if (width != second.inputs()) return Fail(node, "fc1 and fc2 do not fit");
    return second.Apply(expert, h.data(), rows, y);
  }
};

Result<Values> MixExperts(const Node& node, std::span<const Value> inputs,
                          const ExpertLayers& layers, const Tensor* router_weights) {
  const Tensor& x = inputs[0].tensor();
  const Tensor& logits = inputs[1].tensor();
  const int64_t experts = layers.first.experts(), hidden = layers.first.inputs();
  const int64_t k = node.attributes.Int("k", 1);
  const int64_t rows = hidden == 0 ? 0 : x.ElementCount() / hidden;
  bool fits = experts > 0 && layers.second.experts() == experts &&
              layers.second.outputs() == hidden && x.shape().rank() >= 2 &&
              x.shape()[x.shape().rank() - 1] == hidden && logits.shape() == Shape{rows, experts} &&
              k >= 1 && k <= experts;
  if (layers.gate) {
    fits = fits && layers.gate->experts() == experts && layers.gate->inputs() == hidden &&
           layers.gate->outputs() == layers.first.outputs();
  }
  if (router_weights != nullptr) fits = fits && router_weights->shape() == logits.shape();
  if (!fits) return Fail(node, "input, router_probs, expert weights and k do not fit");
  if (node.attributes.Int("use_sparse_mixer", 0) != 0) {
    return Unimplemented(StrCat(Describe(node), ": use_sparse_mixer is not supported"));
  }
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kFloat, x.shape()));
  std::fill_n(out.mutable_data<float>(), out.ElementCount(), 0.0f);
  const float* given = router_weights != nullptr ? router_weights->data<float>() : nullptr;
  const auto lists = Route(logits.data<float>(), given, rows, experts, k,
                           node.attributes.Int("normalize_routing_weights", 0) != 0);
  for (int64_t e = 0; e < experts; ++e) {
    const auto& list = lists[static_cast<size_t>(e)];
    const auto count = static_cast<int64_t>(list.size());
    if (count == 0) continue;
    std::vector<float> gathered(static_cast<size_t>(count * hidden));
    for (int64_t i = 0; i < count; ++i) {
      std::copy_n(x.data<float>() + list[static_cast<size_t>(i)].row * hidden, hidden,
                  gathered.begin() + i * hidden);
    }
    ONNXD_RETURN_IF_ERROR(layers.Apply(node, e, gathered.data(), count, gathered.data()));
    for (int64_t i = 0; i < count; ++i) {
      const Assignment& a = list[static_cast<size_t>(i)];
      float* to = out.mutable_data<float>() + a.row * hidden;
      for (int64_t d = 0; d < hidden; ++d)
        to[d] += a.weight * gathered[static_cast<size_t>(i * hidden + d)];
    }
  }
  return Values{std::move(out)};
}

// input, router_probs, fc1 weights, bias?, fc2 weights, bias?, fc3 weights?, bias?
Result<Values> MixtureOfExperts(const Node& node, std::span<const Value> inputs) {
  constexpr size_t kNone = ExpertLayer::kNone;
  ExpertLayers layers;
  ONNXD_ASSIGN_OR_RETURN(layers.first, ExpertLayer::Make(node, inputs, 2, kNone, 3, kNone));
  ONNXD_ASSIGN_OR_RETURN(layers.second, ExpertLayer::Make(node, inputs, 4, kNone, 5, kNone));
  if (TensorAt(inputs, 6) != nullptr) {
    ONNXD_ASSIGN_OR_RETURN(layers.gate, ExpertLayer::Make(node, inputs, 6, kNone, 7, kNone));
  }
  return MixExperts(node, inputs, layers, nullptr);
}

// input, router_probs, then weights, scales and bias? of fc1, fc2 and fc3?, the zero points of
// those, router_weights?
Result<Values> QuantizedMixture(const Node& node, std::span<const Value> inputs) {
  const std::string type = node.attributes.String("quant_type", "int");
  if (type != "int") return Unimplemented(StrCat(Describe(node), ": quant_type '", type, "'"));
  if (TensorAt(inputs, 3) == nullptr || TensorAt(inputs, 6) == nullptr) {
    return Fail(node, "fc1_scales and fc2_scales are needed");
  }
  ExpertLayers layers;
  ONNXD_ASSIGN_OR_RETURN(layers.first,
                         ExpertLayer::Make(node, inputs, 2, 3, 4, 11, "fc1_expert_weight_bits"));
  ONNXD_ASSIGN_OR_RETURN(layers.second,
                         ExpertLayer::Make(node, inputs, 5, 6, 7, 12, "fc2_expert_weight_bits"));
  if (TensorAt(inputs, 8) != nullptr) {
    if (TensorAt(inputs, 9) == nullptr) return Fail(node, "fc3_scales are needed");
    ONNXD_ASSIGN_OR_RETURN(layers.gate,
                           ExpertLayer::Make(node, inputs, 8, 9, 10, 13, "fc3_expert_weight_bits"));
  }
  return MixExperts(node, inputs, layers, TensorAt(inputs, 14));
}

// The table of GatherBlockQuantized: elements by position, dequantized one at a time.
class BlockTable {
 public:
  static Result<BlockTable> Make(const Node& node, std::span<const Value> inputs) {
    BlockTable t;
    t.data_ = &inputs[0].tensor();
    t.zeros_ = TensorAt(inputs, 3);
    t.shape = t.data_->shape();
    const int rank = t.shape.rank();
    const bool bytes = t.data_->type() == DataType::kUint8;
    t.bits_ = bytes ? node.attributes.Int("bits", 4) : 4;
    if (rank < 1 || (t.bits_ != 2 && t.bits_ != 4 && t.bits_ != 8))
      return Fail(node, "data or bits");
    if (bytes) t.shape[rank - 1] *= 8 / t.bits_;
    ONNXD_RETURN_IF_ERROR(t.shape.Validate());
    ONNXD_ASSIGN_OR_RETURN(t.axis_, NormalizeAxis(node.attributes.Int("quantize_axis", 1), rank));
    t.block_ = node.attributes.Int("block_size", 128);
    if (t.block_ < 16 || t.block_ > (1 << 30)) return Fail(node, "block_size");
    t.scale_shape_ = t.shape;
    t.scale_shape_[t.axis_] = (t.shape[t.axis_] + t.block_ - 1) / t.block_;
    const Tensor& scales = inputs[2].tensor();
    if (!(scales.shape() == t.scale_shape_)) {
      return Fail(node, StrCat("scales of shape ", scales.shape().ToString(), ", expected ",
                               t.scale_shape_.ToString()));
    }
    t.scales_ = ElementsAs<float>(scales);
    t.default_zero_ = bytes ? int64_t{1} << (t.bits_ - 1) : 0;
    if (!bytes) {
      t.codes_ = ElementsAs<int32_t>(*t.data_);
      if (t.zeros_ != nullptr) t.zero_codes_ = ElementsAs<int32_t>(*t.zeros_);
      if (!t.zero_codes_.empty() && t.zero_codes_.size() != t.scales_.size()) {
        return Fail(node, "zero_points do not fit the scales");
      }
    } else if (t.zeros_ != nullptr) {
      const int64_t last = t.scale_shape_[rank - 1];
      const int64_t rows = last == 0 ? 0 : t.scale_shape_.ElementCount() / last;
      t.zero_row_ = (last * t.bits_ + 7) / 8;
      if (static_cast<int64_t>(t.zeros_->bytes()) != rows * t.zero_row_) {
        return Fail(node, "zero_points do not fit the scales");
      }
    }
    return t;
  }

  float At(int64_t position) const {
    const int rank = shape.rank();
    const int64_t inner = shape.ElementCount(axis_ + 1, rank), extent = shape[axis_];
    const int64_t outer = position / (inner * extent), along = position / inner % extent;
    const int64_t scale = (outer * scale_shape_[axis_] + along / block_) * inner + position % inner;
    int64_t code = 0, zero = default_zero_;
    if (!codes_.empty()) {
      code = codes_[static_cast<size_t>(position)];
      if (!zero_codes_.empty()) zero = zero_codes_[static_cast<size_t>(scale)];
    } else {
      code = PackedCodeAt(data_->data<uint8_t>(), position, bits_);
      const int64_t last = scale_shape_[rank - 1];
      if (zeros_ != nullptr) {
        zero =
            PackedCodeAt(zeros_->data<uint8_t>() + scale / last * zero_row_, scale % last, bits_);
      }
    }
    return static_cast<float>(code - zero) * scales_[static_cast<size_t>(scale)];
  }

  Shape shape;  // of the elements, not of the bytes

 private:
  const Tensor* data_ = nullptr;
  const Tensor* zeros_ = nullptr;
  std::vector<int32_t> codes_, zero_codes_;
  std::vector<float> scales_;
  Shape scale_shape_;
  int axis_ = 0;
  int64_t block_ = 1, bits_ = 4, default_zero_ = 0, zero_row_ = 0;
};

// Rows outside of the table are zeros.
Result<Values> GatherBlockQuantized(const Node& node, std::span<const Value> inputs) {
  ONNXD_ASSIGN_OR_RETURN(const BlockTable table, BlockTable::Make(node, inputs));
  const Tensor& indices = inputs[1].tensor();
  const auto picks = ElementsAs<int64_t>(indices);
  const Shape& shape = table.shape;
  ONNXD_ASSIGN_OR_RETURN(const int axis,
                         NormalizeAxis(node.attributes.Int("gather_axis", 0), shape.rank()));
  std::vector<int64_t> dims(shape.begin(), shape.begin() + axis);
  dims.insert(dims.end(), indices.shape().begin(), indices.shape().end());
  dims.insert(dims.end(), shape.begin() + axis + 1, shape.end());
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kFloat, Shape(dims)));
  const int64_t outer = shape.ElementCount(0, axis), extent = shape[axis];
  const int64_t inner = shape.ElementCount(axis + 1, shape.rank());
  float* to = out.mutable_data<float>();
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t pick : picks) {
      if (pick < 0) pick += extent;
      const bool inside = pick >= 0 && pick < extent;
      for (int64_t i = 0; i < inner; ++i) {
        *to++ = inside ? table.At((o * extent + pick) * inner + i) : 0.0f;
      }
    }
  }
  return Values{std::move(out)};
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMixtureOfExperts(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return DeclineType("MoE", info.InputType(0));
  return MakeEagerKernel(MixtureOfExperts);
}
Result<std::unique_ptr<Kernel>> MakeQuantizedMixture(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return DeclineType("QMoE", info.InputType(0));
  if (info.InputType(2) != DataType::kUint8) return DeclineType("QMoE", info.InputType(2));
  return MakeEagerKernel(QuantizedMixture);
}
Result<std::unique_ptr<Kernel>> MakeGatherBlockQuantized(const KernelInfo& info) {
  if (info.InputType(2) != DataType::kFloat) {
    return DeclineType("GatherBlockQuantized", info.InputType(2));
  }
  return MakeEagerKernel(GatherBlockQuantized);
}

}  // namespace onnxd
