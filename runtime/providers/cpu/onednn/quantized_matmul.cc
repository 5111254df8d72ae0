// Products of bytes with a constant right side: MatMulInteger-10, QLinearMatMul-10 to -21 and
// com.microsoft MatMulIntegerToFloat, DynamicQuantizeMatMul and QGemm. oneDNN makes the 32-bit sums
// of a tile of the result; what zero points add to them is taken off, and they are scaled, while
// the tile is cached. Other zero points of B than the middle of its range are left to the plain
// kernels.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/onednn/packed_weights.h"
#include "runtime/providers/cpu/onednn/primitive.h"
#include "runtime/providers/cpu/quantization.h"
#include "runtime/providers/cpu/quantize_bytes.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using dnnl::memory;

constexpr size_t kNone = 99;

// Where the operands of an operator are; kNone: it has no such operand.
struct Operands {
  size_t a = 0, a_scale = kNone, a_zero = kNone;
  size_t b = 1, b_scale = kNone, b_zero = kNone;
  size_t bias = kNone;      // float, added to the scaled sums
  size_t integers = kNone;  // int32, added to the sums
  size_t y_scale = kNone, y_zero = kNone;
};

constexpr Operands kMatMulInteger = {.a_zero = 2, .b_zero = 3};
constexpr Operands kQLinearMatMul = {
    .a_scale = 1, .a_zero = 2, .b = 3, .b_scale = 4, .b_zero = 5, .y_scale = 6, .y_zero = 7};
constexpr Operands kMatMulIntegerToFloat = {
    .a_scale = 2, .a_zero = 4, .b_scale = 3, .b_zero = 5, .bias = 6};
constexpr Operands kDynamicQuantizeMatMul = {.b_scale = 2, .b_zero = 3, .bias = 4};
constexpr Operands kQGemm = {.a_scale = 1,
                             .a_zero = 2,
                             .b = 3,
                             .b_scale = 4,
                             .b_zero = 5,
                             .integers = 6,
                             .y_scale = 7,
                             .y_zero = 8};

constexpr int64_t kTileRows = 256;
constexpr int64_t kTileColumns = 512;

// A part of B's columns with weights of its own.
struct Columns {
  int64_t first, count;
  std::shared_ptr<onednn::PackedWeights> weights;
};

struct Tile {
  int64_t row, rows;
  size_t columns;
  size_t primitive;
};

struct TileStates : KernelState {
  std::vector<onednn::Arguments> arguments;  // one per tile
};

struct ProductPlan {
  int64_t m, k, n;
  std::vector<Columns> columns;
  std::vector<onednn::Primitive> primitives;
  std::vector<Tile> tiles;
  size_t codes_bytes;   // of A when it is quantized here
  size_t tile_scratch;  // of a primitive
  size_t sums_bytes;    // of a tile
  bool one_scale;       // of B
  size_t tile_bytes() const { return sums_bytes + tile_scratch; }
  size_t row_bytes() const { return (static_cast<size_t>(n) * 4 + 63) / 64 * 64; }
};

// What a call's scales and zero points come to, per column.
struct Epilogue {
  int32_t* offsets;  // taken off the sums
  float* scales;
  const float* bias;  // null: none
};

class ByteProduct : public Kernel {
 public:
  ByteProduct(Operands operands, DataType a, DataType y, const Tensor& b, bool transposed)
      : operands_(operands),
        a_type_(a),
        y_type_(y),
        k_(b.shape()[transposed ? 1 : 0]),
        n_(b.shape()[transposed ? 0 : 1]),
        sums_(static_cast<size_t>(n_), 0) {
    PackColumns(b, transposed);
  }

  bool ReadsInput(size_t i) const override { return i != operands_.b && i != operands_.b_zero; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    ONNXD_RETURN_IF_ERROR(Check(context));
    auto plan = std::make_shared<ProductPlan>();
    plan->k = k_;
    plan->n = n_;
    plan->m = context.InputShape(operands_.a).ElementCount() / k_;
    PreparedKernel prepared;
    if (plan->m == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    plan->one_scale =
        operands_.b_scale == kNone || context.InputShape(operands_.b_scale).ElementCount() == 1;
    ONNXD_RETURN_IF_ERROR(PlanTiles(*plan));
    prepared.scratch_bytes =
        plan->codes_bytes + 2 * plan->row_bytes() + plan->tiles.size() * plan->tile_bytes();
    prepared.make_state = [plan]() -> Result<std::unique_ptr<KernelState>> {
      auto states = std::make_unique<TileStates>();
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
        for (const Tile& tile : plan->tiles) {
          states->arguments.emplace_back(plan->primitives[tile.primitive]);
        }
      }));
      return std::unique_ptr<KernelState>(std::move(states));
    };
    prepared.compute = [plan, this](const KernelContext& k) { return Run(*plan, k); };
    return prepared;
  }

 private:
  bool QuantizesA() const { return a_type_ == DataType::kFloat; }
  bool SignedA() const { return a_type_ == DataType::kInt8; }

  void PackColumns(const Tensor& b, bool transposed) {
    const uint8_t flip = b.type() == DataType::kUint8 ? 0x80 : 0;
    const auto* codes = static_cast<const uint8_t*>(b.raw());
    const int64_t parts = (n_ + kTileColumns - 1) / kTileColumns;
    const int64_t width = ((n_ + parts - 1) / parts + 63) / 64 * 64;
    for (int64_t first = 0; first < n_; first += width) {
      const int64_t count = std::min(width, n_ - first);
      Tensor part = *Tensor::Create(DataType::kInt8, Shape{k_, count});
      auto* to = part.mutable_data<int8_t>();
      for (int64_t p = 0; p < k_; ++p) {
        for (int64_t j = 0; j < count; ++j) {
          const int64_t at = transposed ? (first + j) * k_ + p : p * n_ + first + j;
          const auto code = static_cast<int8_t>(codes[at] ^ flip);
          *to++ = code;
          uint32_t& sum = sums_[static_cast<size_t>(first + j)];
          sum += static_cast<uint32_t>(static_cast<int32_t>(code));
        }
      }
      columns_.push_back({first, count, std::make_shared<onednn::PackedWeights>(std::move(part))});
    }
  }

  Status Check(const PrepareContext& context) const {
    const auto fail = [&](std::string_view what, size_t i) {
      return InvalidArgument(StrCat(Describe(context.node), ": ", what, " has shape ",
                                    context.InputShape(i).ToString()));
    };
    const Shape& a = context.InputShape(operands_.a);
    if (a.rank() < 1 || a[a.rank() - 1] != k_)
      return fail(StrCat("A, whose rows have ", k_, " elements,"), operands_.a);
    for (const size_t i :
         {operands_.a_scale, operands_.a_zero, operands_.y_scale, operands_.y_zero}) {
      if (context.HasInput(i) && context.InputShape(i).ElementCount() != 1) {
        return fail(StrCat("operand ", i, ", which must be one number,"), i);
      }
    }
    for (const size_t i : {operands_.bias, operands_.integers}) {
      if (context.HasInput(i) && context.InputShape(i).ElementCount() != n_) {
        return fail(StrCat("operand ", i, ", one number per column,"), i);
      }
    }
    if (operands_.b_scale != kNone) {
      const int64_t scales = context.InputShape(operands_.b_scale).ElementCount();
      if (scales != 1 && scales != n_) return fail("B's scale", operands_.b_scale);
    }
    return Status::Ok();
  }

  Status PlanTiles(ProductPlan& plan) const {
    plan.columns = columns_;
    plan.codes_bytes = QuantizesA() ? (static_cast<size_t>(plan.m * k_) + 63) / 64 * 64 : 0;
    const int64_t parts = (plan.m + kTileRows - 1) / kTileRows;
    const int64_t rows = (plan.m + parts - 1) / parts;
    std::vector<std::pair<int64_t, int64_t>> sizes;
    plan.tile_scratch = 0;
    for (size_t c = 0; c < columns_.size(); ++c) {
      for (int64_t row = 0; row < plan.m; row += rows) {
        const std::pair size{std::min(rows, plan.m - row), columns_[c].count};
        // Primitives hold their weights: tiles of the same columns alone can share one.
        const bool first = row == 0 || size.first != rows;
        if (first) {
          ONNXD_ASSIGN_OR_RETURN(onednn::Primitive made, MakePrimitive(size.first, columns_[c]));
          plan.tile_scratch = std::max(plan.tile_scratch, made.ScratchBytes());
          plan.primitives.push_back(std::move(made));
        }
        plan.tiles.push_back({row, size.first, c, plan.primitives.size() - 1});
      }
    }
    plan.sums_bytes = 0;
    if (y_type_ != DataType::kInt32 || columns_.size() > 1) {
      int64_t widest = 0;
      for (const Columns& part : columns_) widest = std::max(widest, part.count);
      plan.sums_bytes = (static_cast<size_t>(rows * widest) * 4 + 63) / 64 * 64;
    }
    return Status::Ok();
  }

  Result<onednn::Primitive> MakePrimitive(int64_t rows, const Columns& part) const {
    onednn::Primitive made;
    memory::desc wanted, plain;
    ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
      const auto row_major = memory::format_tag::ab;
      const auto bytes = SignedA() ? memory::data_type::s8 : memory::data_type::u8;
      made.source = memory::desc({rows, k_}, bytes, row_major);
      made.target = memory::desc({rows, part.count}, memory::data_type::s32, row_major);
      plain = memory::desc({k_, part.count}, memory::data_type::s8, row_major);
      const memory::desc any({k_, part.count}, memory::data_type::s8, memory::format_tag::any);
      dnnl::primitive_attr attributes;
      attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
      const dnnl::matmul::desc description(made.source, any, made.target);
      const dnnl::matmul::primitive_desc chosen(description, attributes, onednn::Engine());
      made.handle = dnnl::matmul(chosen);
      made.scratchpad = chosen.scratchpad_desc();
      wanted = chosen.weights_desc();
    }));
    ONNXD_ASSIGN_OR_RETURN(made.weights, part.weights->InLayout(wanted, plain));
    return made;
  }

  Status Run(const ProductPlan& plan, const KernelContext& k) const {
    auto* scratch = k.scratch<std::byte>();
    math::Quantization from{SignedA(), 1.0f, 0.0f};
    const auto* a = k.input<uint8_t>(operands_.a);
    if (QuantizesA()) {
      const auto* x = k.input<float>(operands_.a);
      from = DynamicFormat(x, plan.m * k_);
      auto* codes = reinterpret_cast<uint8_t*>(scratch);
      math::CurrentSimd().quantize(x, from, codes, plan.m * k_);
      a = codes;
    } else {
      if (const auto* scale = k.input<float>(operands_.a_scale)) from.scale = *scale;
      if (const auto* zero = k.input<uint8_t>(operands_.a_zero)) {
        from.zero = ByteAt(zero, from.is_signed);
      }
    }
    scratch += plan.codes_bytes;
    const Epilogue epilogue = MakeEpilogue(plan, from, k, reinterpret_cast<int32_t*>(scratch),
                                           reinterpret_cast<float*>(scratch + plan.row_bytes()));
    scratch += 2 * plan.row_bytes();
    Status failure;
    std::mutex mutex;
    const auto run = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto at = static_cast<size_t>(i);
        const Status status = RunTile(plan, at, a, epilogue, k, scratch + at * plan.tile_bytes());
        if (status.ok()) continue;
        std::lock_guard lock(mutex);
        failure = status;
      }
    };
    const auto tiles = static_cast<int64_t>(plan.tiles.size());
    if (tiles == 1) {
      run(0, 1);
    } else {
      k.pool().ParallelFor(tiles, 1, run);
    }
    return failure;
  }

  Epilogue MakeEpilogue(const ProductPlan& plan, const math::Quantization& from,
                        const KernelContext& k, int32_t* offsets, float* scales) const {
    const auto zero = static_cast<uint32_t>(static_cast<int32_t>(from.zero));
    const auto* integers = k.input<int32_t>(operands_.integers);
    for (size_t j = 0; j < sums_.size(); ++j) {  // wraps, as the sums do
      uint32_t offset = zero * sums_[j];
      if (integers != nullptr) offset -= static_cast<uint32_t>(integers[j]);
      offsets[j] = static_cast<int32_t>(offset);
    }
    const auto* b_scale = k.input<float>(operands_.b_scale);
    const auto* y_scale = k.input<float>(operands_.y_scale);
    const float common = y_scale != nullptr ? 1.0f / *y_scale : 1.0f;
    for (int64_t j = 0; b_scale != nullptr && j < plan.n; ++j) {
      scales[j] = from.scale * b_scale[plan.one_scale ? 0 : j] * common;
    }
    return {offsets, scales, k.input<float>(operands_.bias)};
  }

  Status RunTile(const ProductPlan& plan, size_t index, const uint8_t* a, const Epilogue& epilogue,
                 const KernelContext& k, std::byte* scratch) const {
    const math::Simd& simd = math::CurrentSimd();
    const Tile& tile = plan.tiles[index];
    const Columns& part = plan.columns[tile.columns];
    const int64_t target = tile.row * plan.n + part.first;
    auto* sums =
        plan.sums_bytes == 0 ? k.output<int32_t>(0) + target : reinterpret_cast<int32_t*>(scratch);
    ONNXD_RETURN_IF_ERROR(k.state<TileStates>().arguments[index].Execute(
        plan.primitives[tile.primitive].handle, a + tile.row * plan.k, nullptr, sums,
        scratch + plan.sums_bytes));
    const int32_t* offsets = epilogue.offsets + part.first;
    const float* scales = epilogue.scales + part.first;
    const float* bias = epilogue.bias == nullptr ? nullptr : epilogue.bias + part.first;
    for (int64_t row = 0; row < tile.rows; ++row) {
      int32_t* line = sums + row * part.count;
      const int64_t at = target + row * plan.n;
      if (y_type_ == DataType::kInt32) {
        simd.subtract_integers(line, offsets, k.output<int32_t>(0) + at, part.count);
      } else if (y_type_ == DataType::kFloat) {
        simd.scale_sums(line, offsets, scales, bias, k.output<float>(0) + at, part.count);
      } else {
        auto* floats = reinterpret_cast<float*>(line);
        simd.scale_sums(line, offsets, scales, bias, floats, part.count);
        const bool is_signed = y_type_ == DataType::kInt8;
        const auto* zero = k.input<uint8_t>(operands_.y_zero);
        simd.quantize(floats, {is_signed, 1.0f, zero == nullptr ? 0.0f : ByteAt(zero, is_signed)},
                      k.output<uint8_t>(0) + at, part.count);
      }
    }
    return Status::Ok();
  }

  Operands operands_;
  DataType a_type_, y_type_;
  int64_t k_, n_;
  std::vector<uint32_t> sums_;  // of B's columns, modulo 2^32
  std::vector<Columns> columns_;
};

// Whether an operand is absent or its shape is known to be one number.
bool IsOneNumber(const KernelInfo& info, size_t i) {
  if (i == kNone || info.node.input(i) == kNoValue) return true;
  const auto& shape = info.input_types[i].shape;
  if (!shape) return false;
  return std::all_of(shape->begin(), shape->end(),
                     [](const Dimension& d) { return d.known() && d.value == 1; });
}

// Signed bytes without a zero point, or unsigned ones around 128.
Status CheckZeroOfB(const KernelInfo& info, const Tensor& b, size_t operand) {
  int32_t expected = b.type() == DataType::kUint8 ? 128 : 0;
  if (info.node.input(operand) == kNoValue) {
    return expected == 0 ? Status::Ok() : Unimplemented("B's zero point");
  }
  const Initializer* initializer = info.constant_input(operand);
  if (initializer == nullptr) return Unimplemented("B's zero point is not constant");
  ONNXD_ASSIGN_OR_RETURN(const Tensor zero, initializer->Materialize());
  for (const int32_t z : ElementsAs<int32_t>(zero)) {
    if (z != expected) return Unimplemented("B's zero point");
  }
  return Status::Ok();
}

Result<std::unique_ptr<Kernel>> MakeByteProduct(const KernelInfo& info, const Operands& operands,
                                                bool transposed = false) {
  if (!math::HasByteProducts()) return Unimplemented("the processor does not multiply bytes");
  const DataType a = info.InputType(operands.a), y = info.OutputType(0);
  const bool quantizes = operands.a_zero == kNone;
  if (quantizes ? a != DataType::kFloat : !IsByte(a)) return DeclineType(info.node.op_type, a);
  if (y != DataType::kFloat && y != DataType::kInt32 && !IsByte(y)) {
    return DeclineType(info.node.op_type, y);
  }
  const Initializer* initializer = info.constant_input(operands.b);
  if (initializer == nullptr || initializer->shape().rank() != 2 ||
      initializer->shape().ElementCount() == 0) {
    return Unimplemented("B is not a constant matrix");
  }
  for (const size_t i : {operands.a_scale, operands.a_zero, operands.y_scale, operands.y_zero}) {
    if (!IsOneNumber(info, i)) return Unimplemented("scales per row");
  }
  ONNXD_ASSIGN_OR_RETURN(const Tensor b, initializer->Materialize());
  ONNXD_RETURN_IF_ERROR(CheckZeroOfB(info, b, operands.b_zero));
  return std::unique_ptr<Kernel>(std::make_unique<ByteProduct>(operands, a, y, b, transposed));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeByteMatMulInteger(const KernelInfo& info) {
  return MakeByteProduct(info, kMatMulInteger);
}
Result<std::unique_ptr<Kernel>> MakeByteQLinearMatMul(const KernelInfo& info) {
  return MakeByteProduct(info, kQLinearMatMul);
}
Result<std::unique_ptr<Kernel>> MakeByteMatMulIntegerToFloat(const KernelInfo& info) {
  return MakeByteProduct(info, kMatMulIntegerToFloat);
}
Result<std::unique_ptr<Kernel>> MakeByteDynamicQuantizeMatMul(const KernelInfo& info) {
  return MakeByteProduct(info, kDynamicQuantizeMatMul);
}

// C must be one number per column.
Result<std::unique_ptr<Kernel>> MakeByteQGemm(const KernelInfo& info) {
  const Attributes& a = info.node.attributes;
  const Initializer* b = info.constant_input(kQGemm.b);
  const bool transposed = a.Int("transB", 0) != 0;
  bool fits =
      a.Int("transA", 0) == 0 && a.Float("alpha", 1) == 1 && b != nullptr && b->shape().rank() == 2;
  if (fits && info.node.input(kQGemm.integers) != kNoValue) {
    const Initializer* c = info.constant_input(kQGemm.integers);
    fits = c != nullptr && c->shape().ElementCount() == b->shape()[transposed ? 0 : 1];
  }
  if (!fits) return Unimplemented("A * B + row alone");
  return MakeByteProduct(info, kQGemm, transposed);
}

}  // namespace onnxd
