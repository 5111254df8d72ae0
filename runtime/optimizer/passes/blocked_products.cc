#include <algorithm>

#include "runtime/graph/graph_match.h"
#include "runtime/ops/matmul_nbits.h"
#include "runtime/optimizer/passes/passes.h"

namespace onnxd {
namespace {

// Constant codes of a matrix [k, n], or [n, k] where `rows_are_columns`, with one scale for each
// `block` neighbours along k.
struct BlockedMatrix {
  const Initializer& codes;
  const Initializer& scales;
  const Initializer* zeros = nullptr;
  MatMulNBitsSizes sizes{};
  bool rows_are_columns = false;

  bool has_signs() const {
    return codes.type() == DataType::kInt4 || codes.type() == DataType::kInt8 ||
           codes.type() == DataType::kInt2;
  }
  // Codes of MatMulNBits have no signs: what is added to those that do.
  uint32_t middle() const { return has_signs() ? 1U << (sizes.bits - 1) : 0U; }
};

bool HasCodes(DataType type) {
  return type == DataType::kInt2 || type == DataType::kUint2 || type == DataType::kInt4 ||
         type == DataType::kUint4 || type == DataType::kInt8 || type == DataType::kUint8;
}

// Codes of `bits` bits, the first in the lowest ones of its byte, as ONNX packs them.
uint32_t CodeAt(const uint8_t* bytes, int64_t i, int64_t bits) {
  const uint32_t mask = (1U << bits) - 1;
  return static_cast<uint32_t>(bytes[i * bits / 8] >> (i * bits % 8)) & mask;
}

// Codes [k, n] or [n, k] as rows of n with their own bytes, from bit 0 of zeroed memory on.
void PackRows(const Tensor& from, bool rows_are_columns, int64_t k, int64_t n, int64_t bits,
              uint32_t middle, int64_t row_bytes, uint8_t* to) {
  constexpr int64_t kTile = 64;  // columns whose bytes stay in the first-level cache
  const auto* bytes = static_cast<const uint8_t*>(from.raw());
  const uint32_t mask = (1U << bits) - 1;
  for (int64_t first = 0; first < n; first += kTile) {
    const int64_t last = std::min(n, first + kTile);
    for (int64_t p = 0; p < k; ++p) {
      for (int64_t j = first; j < last; ++j) {
        const uint32_t code = CodeAt(bytes, rows_are_columns ? j * k + p : p * n + j, bits);
        to[j * row_bytes + p * bits / 8] |=
            static_cast<uint8_t>(((code + middle) & mask) << (p * bits % 8));
      }
    }
  }
}

class Fusion {
 public:
  explicit Fusion(Graph& graph) : graph_(graph), match_(graph) {}

  Result<bool> Run() {
    bool changed = false;
    const size_t count = graph_.nodes.size();
    for (size_t i = 0; i < count; ++i) {
      if (!IsProduct(graph_.nodes[i])) continue;
      const auto matrix = MatrixOf(graph_.nodes[i]);
      if (!matrix) continue;
      ONNXD_RETURN_IF_ERROR(Rewrite(graph_.nodes[i], *matrix));
      changed = true;
    }
    return changed;
  }

 private:
  // Of floats, and with nothing but one row to add.
  bool IsProduct(const Node& node) const {
    if (node.Is("MatMul")) return IsFloat(graph_, node.inputs[0]) && HasRows(node);
    if (!node.Is("Gemm") || node.attributes.Int("transA", 0) != 0 ||
        node.attributes.Float("alpha", 1) != 1) {
      return false;
    }
    return IsFloat(graph_, node.inputs[0]) &&
           (node.input(2) == kNoValue || node.attributes.Float("beta", 1) == 1);
  }

  bool HasRows(const Node& node) const { return RankOf(graph_, node.inputs[0]).value_or(0) >= 1; }

  const Initializer* ConstantOf(ValueId id) const {
    const auto found = graph_.initializers.find(id);
    return found == graph_.initializers.end() ? nullptr : &found->second;
  }

  // Its second operand: dequantized, and transposed perhaps.
  std::optional<BlockedMatrix> MatrixOf(const Node& product) const {
    bool transposed = product.Is("Gemm") && product.attributes.Int("transB", 0) != 0;
    ValueId operand = product.inputs[1];
    if (const Node* transpose = Reversal(operand)) {
      operand = transpose->inputs[0];
      transposed = !transposed;
    }
    const Node* dequantize = match_.Producer(operand, "DequantizeLinear");
    if (dequantize == nullptr || !UsedByProducts(dequantize->outputs[0])) return std::nullopt;
    const Initializer* codes = ConstantOf(dequantize->inputs[0]);
    const Initializer* scales = ConstantOf(dequantize->inputs[1]);
    if (codes == nullptr || scales == nullptr || codes->shape().rank() != 2 ||
        !HasCodes(codes->type()) || scales->type() != DataType::kFloat) {
      return std::nullopt;
    }
    const MatMulNBitsSizes sizes{
        codes->shape()[transposed ? 0 : 1], codes->shape()[transposed ? 1 : 0],
        dequantize->attributes.Int("block_size", 0), DataTypeBits(codes->type())};
    BlockedMatrix matrix{*codes, *scales, nullptr, sizes, transposed};
    if (dequantize->input(2) != kNoValue) {
      matrix.zeros = ConstantOf(dequantize->inputs[2]);
      if (matrix.zeros == nullptr || matrix.zeros->type() != codes->type()) return std::nullopt;
    }
    const int64_t axis = dequantize->attributes.Int("axis", 1);
    if ((axis < 0 ? axis + 2 : axis) != (transposed ? 1 : 0)) return std::nullopt;
    if (!Fits(matrix) || !BiasFits(product, sizes.n)) return std::nullopt;
    return matrix;
  }

  // The transposition of a matrix that makes a value.
  const Node* Reversal(ValueId id) const {
    const Node* transpose = match_.Producer(id, "Transpose");
    if (transpose == nullptr || RankOf(graph_, id) != 2) return nullptr;
    const auto permutation = transpose->attributes.Ints("perm", {1, 0});
    return permutation == std::vector<int64_t>{1, 0} ? transpose : nullptr;
  }

  // Else its floats would be there as well.
  bool UsedByProducts(ValueId id) const {
    const auto& consumers = match_.index().consumers(id);
    return !graph_.IsOutput(id) && std::all_of(consumers.begin(), consumers.end(), [&](int i) {
      const Node& node = graph_.nodes[static_cast<size_t>(i)];
      if (Reversal(node.outputs[0]) != nullptr) return UsedByProducts(node.outputs[0]);
      return IsProduct(node) && node.inputs[0] != id && node.inputs[1] == id;
    });
  }

  // What MatMulNBits can say.
  static bool Fits(const BlockedMatrix& m) {
    const auto fits = [&](const Shape& shape) {
      return shape.rank() == 2 && shape[m.rows_are_columns ? 1 : 0] == m.sizes.blocks() &&
             shape[m.rows_are_columns ? 0 : 1] == m.sizes.n;
    };
    return m.sizes.InRange() && fits(m.scales.shape()) &&
           (m.zeros == nullptr || fits(m.zeros->shape()));
  }

  bool BiasFits(const Node& product, int64_t n) const {
    if (product.Is("MatMul") || product.input(2) == kNoValue) return true;
    const Initializer* bias = ConstantOf(product.inputs[2]);
    return bias != nullptr && bias->type() == DataType::kFloat && bias->shape().rank() >= 1 &&
           bias->shape().ElementCount() == n && bias->shape()[bias->shape().rank() - 1] == n;
  }

  Status Rewrite(Node& product, const BlockedMatrix& m) {
    const std::string name = graph_.value(product.inputs[1]).name;  // adding moves values
    ONNXD_ASSIGN_OR_RETURN(Tensor codes, Codes(m));
    ONNXD_ASSIGN_OR_RETURN(Tensor scales, Scales(m));
    ONNXD_ASSIGN_OR_RETURN(Tensor zeros, Zeros(m));
    const ValueId bias = product.Is("Gemm") ? product.input(2) : kNoValue;
    std::vector<ValueId> inputs = {product.inputs[0],
                                   graph_.AddInitializer(name + "_codes", std::move(codes)),
                                   graph_.AddInitializer(name + "_scales", std::move(scales))};
    if (zeros.defined()) inputs.push_back(graph_.AddInitializer(name + "_zeros", std::move(zeros)));
    if (bias != kNoValue) {
      inputs.resize(5, kNoValue);
      inputs.push_back(bias);
    }
    product.op_type = "MatMulNBits";
    product.domain = "com.microsoft";
    product.since_version = 1;
    product.inputs = std::move(inputs);
    product.attributes = {};
    for (const auto& [key, value] : {std::pair("K", m.sizes.k),
                                     {"N", m.sizes.n},
                                     {"bits", m.sizes.bits},
                                     {"block_size", m.sizes.block}}) {
      product.attributes.Set(key, value);
    }
    return Status::Ok();
  }

  static Result<Tensor> Packed(const Initializer& from, const BlockedMatrix& m, int64_t k,
                               Shape shape) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, from.Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor packed, Tensor::Create(DataType::kUint8, shape));
    auto* to = packed.mutable_data<uint8_t>();
    std::fill(to, to + packed.bytes(), uint8_t{0});
    PackRows(plain, m.rows_are_columns, k, m.sizes.n, m.sizes.bits, m.middle(),
             static_cast<int64_t>(packed.bytes()) / m.sizes.n, to);
    return packed;
  }

  static Result<Tensor> Codes(const BlockedMatrix& m) {
    return Packed(m.codes, m, m.sizes.k,
                  Shape{m.sizes.n, m.sizes.blocks(), m.sizes.block * m.sizes.bits / 8});
  }

  // Undefined where they are what MatMulNBits supposes, the middle of the codes.
  static Result<Tensor> Zeros(const BlockedMatrix& m) {
    const Shape shape{m.sizes.n, m.sizes.zero_row_bytes()};
    if (m.zeros != nullptr) return Packed(*m.zeros, m, m.sizes.blocks(), shape);
    if (m.has_signs()) return Tensor();
    ONNXD_ASSIGN_OR_RETURN(Tensor zeros, Tensor::Create(DataType::kUint8, shape));
    std::fill_n(zeros.mutable_data<uint8_t>(), zeros.bytes(), uint8_t{0});
    return zeros;
  }

  static Result<Tensor> Scales(const BlockedMatrix& m) {
    ONNXD_ASSIGN_OR_RETURN(const Tensor plain, m.scales.Materialize());
    ONNXD_ASSIGN_OR_RETURN(Tensor scales,
                           Tensor::Create(DataType::kFloat, Shape{m.sizes.n, m.sizes.blocks()}));
    const auto* from = plain.data<float>();
    auto* to = scales.mutable_data<float>();
    for (int64_t j = 0; j < m.sizes.n; ++j) {
      for (int64_t b = 0; b < m.sizes.blocks(); ++b) {
        to[j * m.sizes.blocks() + b] =
            from[m.rows_are_columns ? j * m.sizes.blocks() + b : b * m.sizes.n + j];
      }
    }
    return scales;
  }

  Graph& graph_;
  GraphMatcher match_;
};

class Pass : public GraphPass {
 public:
  std::string_view name() const override { return "blocked_products"; }
  OptimizationLevel level() const override { return OptimizationLevel::kExtended; }

  Result<bool> Run(Graph& graph, const PassContext&) const override { return Fusion(graph).Run(); }
};

}  // namespace

const GraphPass* BlockedProducts() {
  static const Pass pass;
  return &pass;
}

}  // namespace onnxd
