// com.microsoft MatMulNBits: A * B with B in blocks of 2, 4 or 8 bits. Constant weights stay packed
// and are unpacked in registers for few rows, by panels for many. Source of the semantics:
// onnxruntime's ContribOperators document.
#include "runtime/ops/matmul_nbits.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/block_quantized.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/packed_matrix.h"
#include "runtime/providers/cpu/type_dispatch.h"
#include "runtime/tensor/shared_tensor.h"

namespace onnxd {
namespace {

using Values = std::vector<Value>;

Status Fail(const Node& node, std::string_view why) {
  return InvalidArgument(StrCat(Describe(node), ": ", why));
}

// The weights of MatMulNBits: B[n, blocks, block * bits / 8], scales [n, blocks], zero points and
// the block of each column, where given.
struct BlockedWeights {
  const Tensor& b;
  const Tensor& scales;
  const Tensor* zero_points;
  const Tensor* groups;
};

// The same, checked, with its numbers as floats.
struct CheckedWeights {
  BlockQuantizedRows rows;  // refers to the vectors and to the node's tensors
  std::vector<float> scales, zeros;
  std::vector<int32_t> groups;
};

Status CheckWeights(const Node& node, const MatMulNBitsSizes& z, const BlockedWeights& weights,
                    CheckedWeights& out) {
  const Tensor &b = weights.b, &scales = weights.scales;
  const Tensor* zero_points = weights.zero_points;
  const int64_t row_bytes = z.row_bytes();
  const int64_t zero_row = z.zero_row_bytes();
  const bool packed_zeros = zero_points != nullptr && zero_points->type() == DataType::kUint8;
  bool fits = static_cast<int64_t>(b.bytes()) == z.n * row_bytes &&
              scales.ElementCount() == z.n * z.blocks();
  if (fits && zero_points != nullptr) {
    fits = zero_points->ElementCount() == z.n * (packed_zeros ? zero_row : z.blocks());
  }
  if (!fits) return Fail(node, "B, scales or zero_points do not fit N, K and block_size");
  out.scales = ElementsAs<float>(scales);
  if (zero_points != nullptr && !packed_zeros) out.zeros = ElementsAs<float>(*zero_points);
  out.rows = {.codes = b.data<uint8_t>(),
              .scales = out.scales.data(),
              .row_bytes = row_bytes,
              .block = z.block,
              .blocks = z.blocks(),
              .bits = z.bits};
  if (packed_zeros) out.rows.packed_zeros = zero_points->data<uint8_t>();
  if (!out.zeros.empty()) out.rows.zeros = out.zeros.data();
  if (weights.groups == nullptr) return Status::Ok();
  out.groups = ElementsAs<int32_t>(*weights.groups);
  const bool known = static_cast<int64_t>(out.groups.size()) >= z.k &&
                     std::all_of(out.groups.begin(), out.groups.end(),
                                 [&](int32_t group) { return group >= 0 && group < z.blocks(); });
  if (!known) return Fail(node, "g_idx does not name a block of each column");
  out.rows.groups = out.groups.data();
  return Status::Ok();
}

// As floats [n, k].
Result<std::vector<float>> DequantizeBlocks(const Node& node, const MatMulNBitsSizes& z,
                                            const BlockedWeights& weights) {
  CheckedWeights checked;
  ONNXD_RETURN_IF_ERROR(CheckWeights(node, z, weights, checked));
  std::vector<float> out(static_cast<size_t>(z.n * z.k));
  for (int64_t row = 0; row < z.n; ++row) {
    checked.rows.Dequantize(
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

Status CheckNBits(const Node& node, const MatMulNBitsSizes& z, std::span<const Value> inputs) {
  const Shape& a = inputs[0].tensor().shape();
  const Tensor* bias = TensorAt(inputs, 5);
  if (a.rank() < 1 || a[a.rank() - 1] != z.k) {
    return Fail(node, StrCat("A of shape ", a.ToString(), " does not end in K = ", z.k));
  }
  if (bias != nullptr && bias->ElementCount() != z.n) return Fail(node, "bias does not fit");
  return Status::Ok();
}

Result<PackedMatrix> PackBlocks(const Node& node, const MatMulNBitsSizes& z,
                                const BlockedWeights& weights) {
  ONNXD_ASSIGN_OR_RETURN(const auto floats, DequantizeBlocks(node, z, weights));
  return PackMatrix(floats.data(), true, z.k, z.n);
}

// Up to so many rows, unpacking B for every four of them costs less than panels do.
constexpr int64_t kFewRows = 8;
constexpr int64_t kMaxChunks = 16;

int64_t LanesOf(const math::Simd& simd) { return simd.gemm_width / 2; }

// As math::BlockFormat describes it.
Result<Tensor> PackGroups(const math::Simd& simd, const math::BlockFormat& format,
                          const BlockQuantizedRows& rows) {
  const int64_t lanes = LanesOf(simd), groups = (format.n + lanes - 1) / lanes;
  const int64_t words = format.block * format.bits / 32;
  const int64_t stride = (words + (format.has_zeros ? 2 : 1)) * lanes;
  ONNXD_ASSIGN_OR_RETURN(Tensor packed,
                         Tensor::Create(DataType::kUint32, Shape{groups, rows.blocks, stride}));
  auto* to = packed.mutable_data<uint32_t>();
  std::memset(to, 0, packed.bytes());
  const float middle = static_cast<float>(1 << (format.bits - 1));
  for (int64_t column = 0; column < format.n; ++column) {
    const uint8_t* codes = rows.codes + column * rows.row_bytes;
    uint32_t* at = to + column / lanes * rows.blocks * stride + column % lanes;
    for (int64_t b = 0; b < rows.blocks; ++b, at += stride, codes += 4 * words) {
      for (int64_t w = 0; w < words; ++w) std::memcpy(at + w * lanes, codes + 4 * w, 4);
      std::memcpy(at + words * lanes, rows.scales + column * rows.blocks + b, 4);
      if (!format.has_zeros) continue;
      const float zero = rows.ZeroOf(column, b) - middle;
      std::memcpy(at + (words + 1) * lanes, &zero, 4);
    }
  }
  return packed;
}

class BlockProduct : public Kernel {
 public:
  // `bytes`: rows of A may be rounded to signed bytes, block by block.
  BlockProduct(const math::Simd& simd, const math::BlockFormat& format, Tensor packed, bool bytes)
      : simd_(simd),
        format_(format),
        packed_(std::move(packed)),
        bytes_(bytes && simd.block_byte_product != nullptr) {}

  bool ReadsInput(size_t i) const override { return i == 0 || i == 5; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape& a = context.InputShape(0);
    if (a.rank() < 1 || a[a.rank() - 1] != format_.k) {
      return Fail(context.node,
                  StrCat("A of shape ", a.ToString(), " does not end in K = ", format_.k));
    }
    if (context.HasInput(5) && context.InputShape(5).ElementCount() != format_.n) {
      return Fail(context.node, "bias does not fit");
    }
    const int64_t m = a.ElementCount() / format_.k;
    const int64_t blocks = (format_.k + format_.block - 1) / format_.block;
    if (bytes_ && m <= kFewRows) return PrepareBytes(m, blocks);
    const int64_t padded = blocks * format_.block == format_.k ? 0 : m * blocks * format_.block;
    const int64_t sums = format_.has_zeros && m <= kFewRows ? m * blocks : 0;
    const int64_t panels = m > kFewRows ? kMaxChunks * format_.k * simd_.gemm_width : 0;
    PreparedKernel prepared;
    prepared.scratch_bytes = static_cast<size_t>(Aligned(padded) + Aligned(sums) + panels) * 4;
    prepared.compute = [=, this](const KernelContext& k) {
      if (m == 0) return Status::Ok();
      math::BlockProductArguments g{
          format_, packed_.data<uint32_t>(), m,         k.input<float>(0), format_.k,
          nullptr, k.output<float>(0),       format_.n, k.input<float>(5)};
      float* scratch = k.scratch<float>();
      if (padded > 0) PadRows(g, blocks * format_.block, scratch);
      scratch += Aligned(padded);
      if (sums > 0) SumBlocks(g, blocks, scratch);
      scratch += Aligned(sums);
      if (m <= kFewRows) {
        const int64_t groups = (format_.n + LanesOf(simd_) - 1) / LanesOf(simd_);
        k.pool().ParallelFor(
            groups, 1 + (1 << 16) / (m * format_.k),
            [&](int64_t first, int64_t last) { simd_.block_product(g, first, last); });
      } else {
        RunPanels(g, k.pool(), scratch);
      }
      return Status::Ok();
    };
    return prepared;
  }

 private:
  static int64_t Aligned(int64_t floats) { return (floats + 15) / 16 * 16; }

  Result<PreparedKernel> PrepareBytes(int64_t m, int64_t blocks) const {
    const int64_t width = blocks * format_.block, numbers = Aligned(m * blocks);
    PreparedKernel prepared;
    // A block of floats, scales and sums of all blocks, then their bytes.
    prepared.scratch_bytes = static_cast<size_t>(Aligned(format_.block) + 2 * numbers) * 4 +
                             static_cast<size_t>(m * width + format_.block);
    prepared.compute = [=, this](const KernelContext& k) {
      float* block = k.scratch<float>();
      float* scales = block + Aligned(format_.block);
      float* sums = scales + numbers;
      auto* bytes = reinterpret_cast<int8_t*>(sums + numbers);
      const auto* a = k.input<float>(0);
      for (int64_t row = 0; row < m; ++row) {
        for (int64_t b = 0; b < blocks; ++b) {
          const int64_t begin = b * format_.block;
          const int64_t count = std::min(format_.block, format_.k - begin);
          std::fill(std::copy_n(a + row * format_.k + begin, count, block), block + format_.block,
                    0.0f);
          const int64_t at = row * blocks + b;
          RoundBlock(block, bytes + m * width, bytes + row * width + begin, scales[at], sums[at]);
        }
      }
      const math::BlockByteArguments g{
          format_,   packed_.data<uint32_t>(), m, bytes, scales, sums, k.output<float>(0),
          format_.n, k.input<float>(5)};
      const int64_t groups = (format_.n + LanesOf(simd_) - 1) / LanesOf(simd_);
      k.pool().ParallelFor(
          groups, 1 + (1 << 17) / std::max<int64_t>(1, m * format_.k),
          [&](int64_t first, int64_t last) { simd_.block_byte_product(g, first, last); });
      return Status::Ok();
    };
    return prepared;
  }

  // One block as signed bytes in the order that BlockByteArguments wants; `plain` holds them
  // before.
  void RoundBlock(const float* block, int8_t* plain, int8_t* out, float& scale, float& sum) const {
    const int64_t n = format_.block;
    const float largest = std::max(simd_.max(block, n), -simd_.min(block, n));
    scale = largest > 0 ? largest / 127.0f : 1.0f;
    simd_.quantize(block, {true, scale, 0.0f}, reinterpret_cast<uint8_t*>(plain), n);
    const int64_t parts = 8 / format_.bits;
    int32_t total = 0;
    for (int64_t i = 0; i < n; ++i) total += plain[i];
    for (int64_t word = 0; word < n; word += 4 * parts) {
      for (int64_t part = 0; part < parts; ++part) {
        for (int64_t j = 0; j < 4; ++j) *out++ = plain[word + j * parts + part];
      }
    }
    sum = static_cast<float>(total);
  }

  // Rows followed by zeros up to whole blocks.
  static void PadRows(math::BlockProductArguments& g, int64_t width, float* out) {
    for (int64_t row = 0; row < g.m; ++row) {
      float* end = std::copy_n(g.a + row * g.lda, g.format.k, out + row * width);
      std::fill(end, out + (row + 1) * width, 0.0f);
    }
    g.a = out;
    g.lda = width;
  }

  void SumBlocks(math::BlockProductArguments& g, int64_t blocks, float* out) const {
    for (int64_t row = 0; row < g.m; ++row) {
      for (int64_t b = 0; b < blocks; ++b) {
        out[row * blocks + b] = simd_.sum(g.a + row * g.lda + b * g.format.block, g.format.block);
      }
    }
    g.block_sums = out;
  }

  // Each panel of columns is unpacked once and multiplied with all rows.
  void RunPanels(const math::BlockProductArguments& g, ThreadPool& pool, float* scratch) const {
    const int64_t lanes = LanesOf(simd_), width = simd_.gemm_width;
    const int64_t groups = (g.format.n + lanes - 1) / lanes;
    const int64_t panels = (g.format.n + width - 1) / width;
    const int64_t chunks = std::min<int64_t>({kMaxChunks, panels, pool.threads()});
    pool.ParallelFor(chunks, 1, [&](int64_t first, int64_t last) {
      for (int64_t chunk = first; chunk < last; ++chunk) {
        float* panel = scratch + chunk * g.format.k * width;
        for (int64_t p = panels * chunk / chunks; p < panels * (chunk + 1) / chunks; ++p) {
          if (2 * p + 1 >= groups) std::fill_n(panel, g.format.k * width, 0.0f);
          for (int64_t group = 2 * p; group < std::min(groups, 2 * p + 2); ++group) {
            simd_.unpack_blocks(g.format, g.packed, group, panel + (group - 2 * p) * lanes, width);
          }
          const int64_t column = p * width;
          math::GemmArguments product{g.m,          std::min(width, g.format.n - column),
                                      g.format.k,   g.a,
                                      g.lda,        panel,
                                      g.c + column, g.ldc};
          if (g.bias != nullptr) product.bias = g.bias + column;
          simd_.gemm(product);
        }
      }
    });
  }

  const math::Simd& simd_;
  math::BlockFormat format_;
  Tensor packed_;
  bool bytes_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMatMulNBits(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return DeclineType("MatMulNBits", info.InputType(0));
  ONNXD_ASSIGN_OR_RETURN(const MatMulNBitsSizes z, MatMulNBitsSizesOf(info.node));
  // What of B, scales, zero points and g_idx is there, when all of it is constant.
  Tensor constants[4];
  bool constant = true;
  for (size_t i = 0; constant && i < 4; ++i) {
    if (info.node.input(i + 1) == kNoValue) continue;
    const Initializer* initializer = info.constant_input(i + 1);
    constant = initializer != nullptr;
    if (!constant) break;
    ONNXD_ASSIGN_OR_RETURN(constants[i], initializer->Materialize());
  }
  const auto given = [&](size_t i) { return constants[i].defined() ? &constants[i] : nullptr; };
  if (constant && given(3) == nullptr) {
    CheckedWeights checked;
    ONNXD_RETURN_IF_ERROR(
        CheckWeights(info.node, z, {constants[0], constants[1], given(2), nullptr}, checked));
    const math::Simd& simd = math::CurrentSimd();
    const math::BlockFormat format{z.k, z.n, z.block, static_cast<int>(z.bits),
                                   given(2) != nullptr};
    ONNXD_ASSIGN_OR_RETURN(Tensor packed, PackGroups(simd, format, checked.rows));
    return std::unique_ptr<Kernel>(
        std::make_unique<BlockProduct>(simd, format, ShareTensor(std::move(packed)),
                                       info.node.attributes.Int("accuracy_level", 0) >= 4));
  }
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

}  // namespace onnxd
