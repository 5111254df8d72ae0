// com.microsoft MatMulNBits, MatMulIntegerToFloat and
// DynamicQuantizeMatMul. Source of the semantics: onnxruntime's ContribOperators document.
#include <algorithm>
#include <array>
#include <cmath>

#include "runtime/math/simd.h"
#include "runtime/ops/inference_rules.h"
#include "runtime/providers/cpu/block_quantized.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/packed_matrix.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

float OneFloat(const Tensor* tensor, float fallback) {
  return tensor == nullptr || tensor->ElementCount() < 1 ? fallback : ElementsAs<float>(*tensor)[0];
}

struct BlockedSizes {
  int64_t n, k, block, bits, blocks;
};

Result<BlockedSizes> SizesOf(const Node& node) {
  BlockedSizes z{};
  z.n = node.attributes.Int("N", 0);
  z.k = node.attributes.Int("K", 0);
  z.block = node.attributes.Int("block_size", 0);
  z.bits = node.attributes.Int("bits", 4);
  constexpr int64_t kMax = int64_t{1} << 30;
  if (z.n < 1 || z.k < 1 || z.n > kMax || z.k > kMax || z.block < 16 || z.block > kMax ||
      (z.block & (z.block - 1)) != 0 || (z.bits != 2 && z.bits != 4 && z.bits != 8)) {
    return Fail(node, "N, K, block_size or bits are out of range");
  }
  z.blocks = (z.k + z.block - 1) / z.block;
  return z;
}

// The weights of MatMulNBits: B[n, blocks, block * bits / 8], scales [n, blocks], zero points and
// the block of each column, where given.
struct BlockedWeights {
  const Tensor& b;
  const Tensor& scales;
  const Tensor* zero_points;
  const Tensor* groups;
};

// As floats [n, k].
Result<std::vector<float>> DequantizeBlocks(const Node& node, const BlockedSizes& z,
                                            const BlockedWeights& weights) {
  const Tensor &b = weights.b, &scales = weights.scales;
  const Tensor* zero_points = weights.zero_points;
  const int64_t row_bytes = z.blocks * z.block * z.bits / 8;
  const int64_t zero_row = (z.blocks * z.bits + 7) / 8;
  const bool packed_zeros = zero_points != nullptr && zero_points->type() == DataType::kUint8;
  bool fits =
      static_cast<int64_t>(b.bytes()) == z.n * row_bytes && scales.ElementCount() == z.n * z.blocks;
  if (fits && zero_points != nullptr) {
    fits = zero_points->ElementCount() == z.n * (packed_zeros ? zero_row : z.blocks);
  }
  if (!fits) return Fail(node, "B, scales or zero_points do not fit N, K and block_size");
  const std::vector<float> scale = ElementsAs<float>(scales);
  std::vector<float> zeros;
  if (zero_points != nullptr && !packed_zeros) zeros = ElementsAs<float>(*zero_points);
  BlockQuantizedRows rows{.codes = b.data<uint8_t>(),
                          .scales = scale.data(),
                          .row_bytes = row_bytes,
                          .block = z.block,
                          .blocks = z.blocks,
                          .bits = z.bits};
  if (packed_zeros) rows.packed_zeros = zero_points->data<uint8_t>();
  if (!zeros.empty()) rows.zeros = zeros.data();
  std::vector<int32_t> groups;
  if (weights.groups != nullptr) {
    groups = ElementsAs<int32_t>(*weights.groups);
    const bool known = static_cast<int64_t>(groups.size()) >= z.k &&
                       std::all_of(groups.begin(), groups.end(),
                                   [&](int32_t group) { return group >= 0 && group < z.blocks; });
    if (!known) return Fail(node, "g_idx does not name a block of each column");
    rows.groups = groups.data();
  }
  std::vector<float> out(static_cast<size_t>(z.n * z.k));
  for (int64_t row = 0; row < z.n; ++row) {
    rows.Dequantize(
        row, std::span(out).subspan(static_cast<size_t>(row * z.k), static_cast<size_t>(z.k)));
  }
  return out;
}

// y[rows, n] = x[rows, k] * b[n, k]^T + bias
Result<Tensor> MultiplyRows(const Tensor& x, const PackedMatrix& b, const Tensor* bias) {
  const int64_t rows = b.k == 0 ? 0 : x.ElementCount() / b.k;
  Shape shape = x.shape();
  shape[shape.rank() - 1] = b.n;
  ONNXD_ASSIGN_OR_RETURN(Tensor out, Tensor::Create(DataType::kFloat, shape));
  math::GemmArguments g{rows, b.n, b.k, x.data<float>(), b.k, b.data(), out.mutable_data<float>(),
                        b.n};
  if (bias != nullptr) g.bias = bias->data<float>();
  b.simd->gemm(g);
  return out;
}

Status CheckNBits(const Node& node, const BlockedSizes& z, std::span<const Value> inputs) {
  const Shape& a = inputs[0].tensor().shape();
  const Tensor* bias = TensorAt(inputs, 5);
  if (a.rank() < 1 || a[a.rank() - 1] != z.k) {
    return Fail(node, StrCat("A of shape ", a.ToString(), " does not end in K = ", z.k));
  }
  if (bias != nullptr && bias->ElementCount() != z.n) return Fail(node, "bias does not fit");
  return Status::Ok();
}

Result<PackedMatrix> PackBlocks(const Node& node, const BlockedSizes& z,
                                const BlockedWeights& weights) {
  ONNXD_ASSIGN_OR_RETURN(const auto floats, DequantizeBlocks(node, z, weights));
  return PackMatrix(floats.data(), true, z.k, z.n);
}

// B's scale and zero point are one number or one per column.
Result<Values> IntegerToFloat(const Node& node, const Shape& a_shape, const std::vector<float>& a,
                              float a_scale, const Tensor& b, const Tensor& b_scale,
                              const Tensor* b_zero, const Tensor* bias, DataType type) {
  const Shape& bs = b.shape();
  if (a_shape.rank() < 1 || bs.rank() != 2 || a_shape[a_shape.rank() - 1] != bs[0]) {
    return Fail(node, StrCat("shapes ", a_shape.ToString(), " and ", bs.ToString(),
                             " cannot be multiplied"));
  }
  const int64_t k = bs[0], n = bs[1], rows = k == 0 ? 0 : static_cast<int64_t>(a.size()) / k;
  const auto scales = ElementsAs<float>(b_scale);
  const auto zeros = b_zero != nullptr ? ElementsAs<float>(*b_zero) : std::vector<float>{0.0f};
  const auto fits = [&](size_t size) { return size == 1 || static_cast<int64_t>(size) == n; };
  if (!fits(scales.size()) || !fits(zeros.size()) ||
      (bias != nullptr && bias->ElementCount() != n)) {
    return Fail(node, "b_scale, b_zero_point or bias do not fit");
  }
  const auto at = [](const std::vector<float>& list, int64_t i) {
    return list[list.size() == 1 ? 0 : static_cast<size_t>(i)];
  };
  const std::vector<float> codes = ElementsAs<float>(b);
  const std::vector<float> offsets =
      bias != nullptr ? ElementsAs<float>(*bias) : std::vector<float>();
  Shape shape = a_shape;
  shape[shape.rank() - 1] = n;
  std::vector<float> out(static_cast<size_t>(shape.ElementCount()));
  std::vector<double> sums(static_cast<size_t>(n));
  for (int64_t row = 0; row < rows; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t p = 0; p < k; ++p) {
      const double left = static_cast<double>(a[static_cast<size_t>(row * k + p)]);
      for (int64_t j = 0; j < n; ++j) {
        sums[static_cast<size_t>(j)] +=
            left * static_cast<double>(codes[static_cast<size_t>(p * n + j)] - at(zeros, j));
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      out[static_cast<size_t>(row * n + j)] =
          static_cast<float>(sums[static_cast<size_t>(j)]) * (a_scale * at(scales, j)) +
          (offsets.empty() ? 0.0f : offsets[static_cast<size_t>(j)]);
    }
  }
  return OneValue(TensorFrom(type, shape, out));
}

Result<Values> MatMulIntegerToFloat(const Node& node, std::span<const Value> inputs,
                                    DataType type) {
  const Tensor& a = inputs[0].tensor();
  const float zero = OneFloat(TensorAt(inputs, 4), 0);
  std::vector<float> centered = ElementsAs<float>(a);
  for (float& value : centered) value -= zero;
  return IntegerToFloat(node, a.shape(), centered, OneFloat(TensorAt(inputs, 2), 1),
                        inputs[1].tensor(), inputs[3].tensor(), TensorAt(inputs, 5),
                        TensorAt(inputs, 6), type);
}

// A is quantized to 8 bits as DynamicQuantizeLinear does it.
Result<Values> DynamicQuantizeMatMul(const Node& node, std::span<const Value> inputs) {
  const Tensor& a = inputs[0].tensor();
  float low = 0, high = 0;
  for (const float value : a.elements<float>()) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const float scale = high == low ? 1.0f : (high - low) / 255.0f;
  const float zero = std::clamp(std::nearbyint(-low / scale), 0.0f, 255.0f);
  std::vector<float> codes = ElementsAs<float>(a);
  for (float& code : codes) {
    code = std::clamp(std::nearbyint(code / scale) + zero, 0.0f, 255.0f) - zero;
  }
  return IntegerToFloat(node, a.shape(), codes, scale, inputs[1].tensor(), inputs[2].tensor(),
                        TensorAt(inputs, 3), TensorAt(inputs, 4), DataType::kFloat);
}

}  // namespace

// Constant weights are unpacked once, when the model loads.
Result<std::unique_ptr<Kernel>> MakeMatMulNBits(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return DeclineType("MatMulNBits", info.InputType(0));
  ONNXD_ASSIGN_OR_RETURN(const BlockedSizes z, SizesOf(info.node));
  // What of B, scales, zero points and g_idx is there, when all of it is constant.
  Tensor constants[4];
  bool constant = true;
  for (size_t i = 0; i < 4; ++i) {
    if (info.node.input(i + 1) == kNoValue) continue;
    const Initializer* initializer = info.constant_input(i + 1);
    constant = constant && initializer != nullptr;
    if (!constant) break;
    ONNXD_ASSIGN_OR_RETURN(constants[i], initializer->Materialize());
  }
  const auto given = [&](size_t i) { return constants[i].defined() ? &constants[i] : nullptr; };
  std::shared_ptr<const PackedMatrix> packed;
  if (constant) {
    ONNXD_ASSIGN_OR_RETURN(
        PackedMatrix matrix,
        PackBlocks(info.node, z, {constants[0], constants[1], given(2), given(3)}));
    packed = std::make_shared<const PackedMatrix>(std::move(matrix));
  }
  return MakeEagerKernel(
      [z, packed](const Node& node, std::span<const Value> inputs) -> Result<Values> {
        ONNXD_RETURN_IF_ERROR(CheckNBits(node, z, inputs));
        if (packed != nullptr) {
          return OneValue(MultiplyRows(inputs[0].tensor(), *packed, TensorAt(inputs, 5)));
        }
        ONNXD_ASSIGN_OR_RETURN(const PackedMatrix matrix,
                               PackBlocks(node, z,
                                          {inputs[1].tensor(), inputs[2].tensor(),
                                           TensorAt(inputs, 3), TensorAt(inputs, 4)}));
        return OneValue(MultiplyRows(inputs[0].tensor(), matrix, TensorAt(inputs, 5)));
      });
}

Result<std::unique_ptr<Kernel>> MakeMatMulIntegerToFloat(const KernelInfo& info) {
  return MakeEagerKernel([type = info.OutputType(0)](const Node& node, std::span<const Value> in) {
    return MatMulIntegerToFloat(node, in, type);
  });
}

Result<std::unique_ptr<Kernel>> MakeDynamicQuantizeMatMul(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) {
    return DeclineType("DynamicQuantizeMatMul", info.InputType(0));
  }
  return MakeEagerKernel(DynamicQuantizeMatMul);
}

}  // namespace onnxd
