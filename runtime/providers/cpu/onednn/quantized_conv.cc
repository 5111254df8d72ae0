// onnxd::QLinearConvChannelsLast: QLinearConv-10 with x and y [batch, height, width, channels], by
// oneDNN's products of unsigned with signed bytes, or by ours (quantized_product_conv.cc). oneDNN
// sees no zero point of x: padding is copied in beside x where the zero point is not 0, signed x
// become unsigned by the same copy, and what the zero point adds to the sums is taken off the bias.
#include "runtime/providers/cpu/onednn/quantized_conv.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/onednn/packed_weights.h"
#include "runtime/providers/cpu/onednn/primitive.h"
#include "runtime/providers/cpu/quantization.h"

namespace onnxd {

Result<std::unique_ptr<Kernel>> MakeQuantizedProductConv(const KernelInfo&,
                                                         onednn::QuantizedConvConstants,
                                                         Initializer weights);

namespace onednn {
namespace {

constexpr size_t kX = 0, kW = 3, kBias = 8;

bool IsUsable(float scale) { return std::isfinite(scale) && scale > 0; }

Result<math::Quantization> FormatOf(const Tensor& scale, const Tensor& zero) {
  if (scale.ElementCount() != 1 || zero.ElementCount() != 1 || !IsByte(zero.type()) ||
      scale.type() != DataType::kFloat || !IsUsable(scale.data<float>()[0])) {
    return Unimplemented("one usable scale and zero point are needed");
  }
  const bool is_signed = zero.type() == DataType::kInt8;
  return math::Quantization{is_signed, scale.data<float>()[0],
                            ByteAt(static_cast<const uint8_t*>(zero.raw()), is_signed)};
}

// w minus its zero point, when that fits signed bytes.
Result<Tensor> SignedWeights(const Tensor& w, const Tensor& zero) {
  const auto zeros = ElementsAs<int32_t>(zero);
  if (std::all_of(zeros.begin(), zeros.end(), [](int32_t z) { return z == 0; }) &&
      w.type() == DataType::kInt8) {
    return w;
  }
  const bool fits = w.type() == DataType::kUint8 &&
                    std::all_of(zeros.begin(), zeros.end(), [](int32_t z) { return z == 128; });
  if (!fits) return Unimplemented("the weights' zero point");
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kInt8, w.shape()));
  math::CurrentSimd().flip_signs(
      w.data<uint8_t>(), reinterpret_cast<uint8_t*>(out.mutable_data<int8_t>()), w.ElementCount());
  return out;
}

}  // namespace

Result<QuantizedConvConstants> ConstantsOf(
    const Node& node, const std::function<const Initializer*(size_t)>& constant) {
  Tensor operands[9];
  for (size_t i = 1; i < 9; ++i) {
    if (node.input(i) == kNoValue) continue;
    const Initializer* initializer = constant(i);
    if (initializer == nullptr) return Unimplemented("an operand is not constant");
    ONNXD_ASSIGN_OR_RETURN(operands[i], initializer->Materialize());
  }
  for (size_t i = 1; i < 8; ++i) {
    if (!operands[i].defined()) return Unimplemented("an operand is missing");
  }
  QuantizedConvConstants out;
  ONNXD_ASSIGN_OR_RETURN(out.x, FormatOf(operands[1], operands[2]));
  ONNXD_ASSIGN_OR_RETURN(out.y, FormatOf(operands[6], operands[7]));
  const Tensor &w = operands[kW], &w_scale = operands[4], &bias = operands[kBias];
  if (w.shape().rank() != 4 || w.shape().ElementCount() == 0 ||
      w_scale.type() != DataType::kFloat) {
    return Unimplemented("weights of rank 4 are needed");
  }
  const int64_t filters = w.shape()[0];
  const auto per_filter = [&](const Tensor& t) {
    return t.ElementCount() == 1 || t.ElementCount() == filters;
  };
  if (!per_filter(w_scale) || !per_filter(operands[5]) ||
      (bias.defined() && (bias.type() != DataType::kInt32 || bias.ElementCount() != filters))) {
    return Unimplemented("a scale, a zero point or the bias does not fit the weights");
  }
  ONNXD_ASSIGN_OR_RETURN(out.weights, SignedWeights(w, operands[5]));
  out.scales.resize(static_cast<size_t>(filters));
  for (int64_t f = 0; f < filters; ++f) {
    const float scale = w_scale.data<float>()[w_scale.ElementCount() == 1 ? 0 : f];
    float& combined = out.scales[static_cast<size_t>(f)];
    combined = out.x.scale * scale / out.y.scale;
    if (!IsUsable(scale) || !IsUsable(combined)) return Unimplemented("a scale is not usable");
  }
  out.bias.assign(static_cast<size_t>(filters), 0);
  if (bias.defined()) std::copy_n(bias.data<int32_t>(), filters, out.bias.begin());
  return out;
}

std::vector<int32_t> CompensatedBias(const QuantizedConvConstants& constants, int32_t zero) {
  std::vector<int32_t> bias = constants.bias;
  const auto filters = static_cast<int64_t>(bias.size());
  const int64_t taps = constants.weights.ElementCount() / filters;
  const int8_t* w = constants.weights.data<int8_t>();
  for (int32_t& total : bias) {
    uint32_t sum = 0;
    for (int64_t i = 0; i < taps; ++i) sum += static_cast<uint32_t>(int32_t{*w++});
    total = static_cast<int32_t>(static_cast<uint32_t>(total) - sum * static_cast<uint32_t>(zero));
  }
  return bias;
}

bool IsQuantizedConv(const Graph& graph, const Node& node) {
  if (!node.Is("QLinearConv")) return false;
  // Ours have no groups.
  if (OwnProductsAreFaster() && node.attributes.Int("group", 1) != 1) return false;
  return ConstantsOf(node,
                     [&](size_t i) -> const Initializer* {
                       const auto found = graph.initializers.find(node.input(i));
                       return found == graph.initializers.end() ? nullptr : &found->second;
                     })
      .ok();
}

namespace {

// x with its padding written out, and unsigned.
struct PaddedCopy {
  Shape x;       // the original's
  Shape padded;  // the copy's
  int64_t top, left;
  bool flips;
  uint8_t fill;

  void Run(const KernelContext& k, uint8_t* out) const {
    const math::Simd& simd = math::CurrentSimd();
    const int64_t channels = x[3], row_bytes = padded[2] * channels;
    k.pool().ParallelFor(
        padded[0] * padded[1], 1 + (1 << 16) / row_bytes, [&](int64_t begin, int64_t end) {
          for (int64_t row = begin; row < end; ++row) {
            uint8_t* to = out + row * row_bytes;
            const int64_t source = row % padded[1] - top;
            if (source < 0 || source >= x[1]) {
              std::memset(to, fill, static_cast<size_t>(row_bytes));
              continue;
            }
            const int64_t before = left * channels, width = x[2] * channels;
            const uint8_t* from = k.input<uint8_t>(kX) + (row / padded[1] * x[1] + source) * width;
            std::memset(to, fill, static_cast<size_t>(before));
            if (flips) {
              simd.flip_signs(from, to + before, width);
            } else {
              std::memcpy(to + before, from, static_cast<size_t>(width));
            }
            std::memset(to + before + width, fill, static_cast<size_t>(row_bytes - before - width));
          }
        });
  }
};

struct QuantizedBandStates : KernelState {
  std::vector<Arguments> arguments;  // one per band
};

struct QuantizedConvPlan {
  bool copies = false;
  PaddedCopy copy;
  size_t copy_bytes = 0;
  Shape x, y;  // x as the primitives see it
  std::vector<Primitive> primitives;
  Bands cut;
  size_t scratch = 0;  // bytes of a band
};

class QuantizedConv : public Kernel {
 public:
  QuantizedConv(QuantizedConvConstants constants, Initializer packed_from)
      : x_(constants.x),
        y_(constants.y),
        weight_shape_(constants.weights.shape()),
        scales_(std::move(constants.scales)) {
    fill_ = static_cast<uint8_t>(static_cast<int32_t>(x_.zero) + (x_.is_signed ? 128 : 0));
    bias_ = CompensatedBias(constants, fill_);
    weights_ = std::make_shared<PackedWeights>(std::move(packed_from));
  }

  bool ReadsInput(size_t i) const override { return i == kX; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape& x = context.InputShape(kX);
    const Shape& w = weight_shape_;
    ONNXD_ASSIGN_OR_RETURN(Window window, PoolWindow(context.node, {x[1], x[2]}, {w[2], w[3]}));
    ONNXD_RETURN_IF_ERROR(CheckPads(context.node, window));
    PreparedKernel prepared;
    if (context.OutputShape(0).ElementCount() == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    auto plan = std::make_shared<QuantizedConvPlan>();
    plan->x = x;
    plan->y = context.OutputShape(0);
    ONNXD_RETURN_IF_ERROR(PlanCopy(*plan, window));
    const int64_t per_image = BandsPerImage(plan->y, w.ElementCount() / w[0], context.threads);
    plan->cut = CutIntoBands(window, plan->x, plan->y, per_image, context.threads);
    for (const BandShape& band : plan->cut.shapes) {
      ONNXD_ASSIGN_OR_RETURN(Primitive made, MakePrimitive(context.node, *plan, window, band));
      plan->scratch = std::max(plan->scratch, made.ScratchBytes());
      plan->primitives.push_back(std::move(made));
    }
    prepared.scratch_bytes = plan->copy_bytes + plan->scratch * plan->cut.bands.size();
    prepared.make_state = [plan]() -> Result<std::unique_ptr<KernelState>> {
      auto states = std::make_unique<QuantizedBandStates>();
      ONNXD_RETURN_IF_ERROR(Guard([&] {
        for (const Band& band : plan->cut.bands) {
          states->arguments.emplace_back(plan->primitives[band.shape]);
        }
      }));
      return std::unique_ptr<KernelState>(std::move(states));
    };
    prepared.compute = [plan, bias = std::make_shared<const std::vector<int32_t>>(bias_)](
                           const KernelContext& k) { return Run(*plan, *bias, k); };
    return prepared;
  }

 private:
  static Status Run(const QuantizedConvPlan& plan, const std::vector<int32_t>& bias,
                    const KernelContext& k) {
    const uint8_t* x = k.input<uint8_t>(kX);
    if (plan.copies) {
      plan.copy.Run(k, k.scratch<uint8_t>());
      x = k.scratch<uint8_t>();
    }
    return ForBands(k.pool(), plan.cut.bands.size(), [&](size_t i) {
      const Band& band = plan.cut.bands[i];
      return k.state<QuantizedBandStates>().arguments[i].Execute(
          plan.primitives[band.shape].handle, x + band.InputOffset(plan.x), bias.data(),
          k.output<uint8_t>(0) + band.OutputOffset(plan.y),
          k.scratch<std::byte>() + plan.copy_bytes + i * plan.scratch);
    });
  }

  // Decides on the copy; afterwards plan.x and the window are what the primitives see.
  Status PlanCopy(QuantizedConvPlan& plan, Window& window) const {
    int64_t added[2];
    for (size_t axis = 0; axis < 2; ++axis) {
      added[axis] = window.pads_begin[axis] + window.pads_end[axis];
    }
    const bool pads = added[0] + added[1] > 0;
    plan.copies = x_.is_signed || (pads && fill_ != 0);
    if (!plan.copies) return Status::Ok();
    const Shape x = plan.x;
    plan.x = Shape{x[0], x[1] + added[0], x[2] + added[1], x[3]};
    ONNXD_RETURN_IF_ERROR(plan.x.Validate());
    plan.copy = {x, plan.x, window.pads_begin[0], window.pads_begin[1], x_.is_signed, fill_};
    plan.copy_bytes = (static_cast<size_t>(plan.x.ElementCount()) + 63) / 64 * 64;
    window.pads_begin = window.pads_end = {0, 0};
    return Status::Ok();
  }

  Result<Primitive> MakePrimitive(const Node& node, const QuantizedConvPlan& plan,
                                  const Window& window, const BandShape& band) const {
    using dnnl::memory;
    const Shape &w = weight_shape_, &x = plan.x, &y = plan.y;
    const int64_t group = node.attributes.Int("group", 1);
    Primitive conv;
    memory::desc wanted, plain;
    ONNXD_RETURN_IF_ERROR(Guard([&] {
      const auto nhwc = memory::format_tag::nhwc;
      const auto signed_byte = memory::data_type::s8;
      const auto result = y_.is_signed ? signed_byte : memory::data_type::u8;
      conv.source =
          memory::desc({band.images, x[3], band.input_rows, x[2]}, memory::data_type::u8, nhwc);
      conv.target = memory::desc({band.images, y[3], band.rows, y[2]}, result, nhwc);
      conv.bias = memory::desc({w[0]}, memory::data_type::s32, memory::format_tag::x);
      const memory::dims filter = group == 1 ? memory::dims{w[0], w[1], w[2], w[3]}
                                             : memory::dims{group, w[0] / group, w[1], w[2], w[3]};
      plain = memory::desc(filter, signed_byte,
                           group == 1 ? memory::format_tag::oihw : memory::format_tag::goihw);
      const memory::desc any(filter, signed_byte, memory::format_tag::any);
      dnnl::primitive_attr attributes;
      attributes.set_output_scales(1 << 1, scales_);
      if (y_.zero != 0) {
        attributes.set_zero_points(DNNL_ARG_DST, 0, {static_cast<int32_t>(y_.zero)});
      }
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::convolution_forward::desc description(
          dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, conv.source, any,
          conv.bias, conv.target, window.strides,
          {window.dilations[0] - 1, window.dilations[1] - 1}, {band.pad_top, window.pads_begin[1]},
          {band.pad_bottom, window.pads_end[1]});
      const dnnl::convolution_forward::primitive_desc chosen(description, attributes, Engine());
      conv.handle = dnnl::convolution_forward(chosen);
      conv.scratchpad = chosen.scratchpad_desc();
      wanted = chosen.weights_desc();
    }));
    ONNXD_ASSIGN_OR_RETURN(conv.weights, weights_->InLayout(wanted, plain));
    return conv;
  }

  math::Quantization x_, y_;
  uint8_t fill_;  // the zero point of x as an unsigned byte
  Shape weight_shape_;
  std::vector<float> scales_;
  std::vector<int32_t> bias_;
  std::shared_ptr<PackedWeights> weights_;
};

}  // namespace
}  // namespace onednn

Result<std::unique_ptr<Kernel>> MakeQLinearConvChannelsLast(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(auto constants, onednn::ConstantsOf(info.node, info.constant_input));
  const Initializer* own = info.constant_input(onednn::kW);
  Initializer weights = own->type() == DataType::kInt8 ? *own : Initializer(constants.weights);
  if (onednn::OwnProductsAreFaster()) {
    return MakeQuantizedProductConv(info, std::move(constants), std::move(weights));
  }
  return std::unique_ptr<Kernel>(
      std::make_unique<onednn::QuantizedConv>(std::move(constants), std::move(weights)));
}

}  // namespace onnxd
