// Products of bytes with a constant right side: MatMulInteger-10, QLinearMatMul-10 to -21 and
// com.microsoft MatMulIntegerToFloat, DynamicQuantizeMatMul and QGemm. What zero points add to the
// 32-bit sums is taken off, and they are scaled, while they are in registers; bytes are made of
// them while a panel of the result is cached.
#include "runtime/providers/cpu/quantized_matmul.h"

#include <algorithm>

#include "runtime/base/function_ref.h"
#include "runtime/base/str_cat.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/eager_kernel.h"
#include "runtime/providers/cpu/packed_bytes.h"
#include "runtime/providers/cpu/quantization.h"
#include "runtime/providers/cpu/quantize_bytes.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

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

constexpr int64_t kRowBlock = 256;
constexpr int64_t kMaxChunks = 16;

int64_t RoundedUp(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

// What a call's scales and zero points come to, per column.
struct Epilogue {
  int32_t* offsets;  // taken off the sums
  float* scales;     // null: sums are the result
  const float* bias;
};

struct ProductSizes {
  int64_t m, k, n;
  bool one_scale;  // of B
  bool copies_a;   // A is quantized, made unsigned or padded first
  bool widens_a;   // into 16-bit integers, afterwards
  bool sums_rows;  // B has zero points
  int64_t padded_k;
  int64_t lda() const { return copies_a ? padded_k : k; }
  // The scratch memory holds A's copies, offsets, scales, the sums of A's rows and tiles.
  size_t copy_bytes() const {
    return copies_a ? static_cast<size_t>(RoundedUp(m * lda(), 64)) : size_t{0};
  }
  size_t a_bytes() const {
    const int64_t wide = widens_a ? RoundedUp(m * padded_k * 2, 64) : 0;
    return copy_bytes() + static_cast<size_t>(wide);
  }
  int64_t row_floats() const { return RoundedUp(n, 16); }
  int64_t row_sums() const { return sums_rows ? RoundedUp(m, 16) : 0; }
};

class ByteProduct : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const Operands& operands, DataType a, DataType y,
                                              const Initializer& b, std::vector<int32_t> zeros,
                                              bool transposed) {
    auto kernel = std::unique_ptr<ByteProduct>(new ByteProduct(operands, a, y));
    ONNXD_ASSIGN_OR_RETURN(kernel->b_, PackByteMatrix(b, transposed));
    kernel->zeros_ = SignedZeros(std::move(zeros), b.type(), kernel->b_.n);
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  bool ReadsInput(size_t i) const override { return i != operands_.b && i != operands_.b_zero; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    ONNXD_RETURN_IF_ERROR(Check(context));
    ProductSizes z{context.InputShape(operands_.a).ElementCount() / b_.k,
                   b_.k,
                   b_.n,
                   true,
                   false,
                   simd_.wide_bytes,
                   !zeros_.empty(),
                   math::PaddedBytes(simd_, b_.k)};
    z.copies_a = a_type_ == DataType::kFloat ||
                 (!z.widens_a && (a_type_ != DataType::kUint8 || z.padded_k != b_.k));
    z.one_scale =
        operands_.b_scale == kNone || context.InputShape(operands_.b_scale).ElementCount() == 1;
    PreparedKernel prepared;
    const int64_t tile = std::min(z.m, kRowBlock) * simd_.gemm_width;
    const int64_t floats =
        2 * z.row_floats() + z.row_sums() + (IsByte(y_type_) ? kMaxChunks * tile : 0);
    prepared.scratch_bytes = z.a_bytes() + static_cast<size_t>(floats) * sizeof(float);
    prepared.compute = [z, this](const KernelContext& k) {
      if (z.m > 0) Run(z, k);
      return Status::Ok();
    };
    return prepared;
  }

 private:
  ByteProduct(const Operands& operands, DataType a, DataType y)
      : simd_(math::CurrentSimd()), operands_(operands), a_type_(a), y_type_(y) {}

  Status Check(const PrepareContext& context) const {
    const auto fail = [&](std::string_view what, size_t i) {
      return InvalidArgument(StrCat(Describe(context.node), ": ", what, " has shape ",
                                    context.InputShape(i).ToString()));
    };
    const Shape& a = context.InputShape(operands_.a);
    if (a.rank() < 1 || a[a.rank() - 1] != b_.k) {
      return fail(StrCat("A, whose rows have ", b_.k, " elements,"), operands_.a);
    }
    for (const size_t i :
         {operands_.a_scale, operands_.a_zero, operands_.y_scale, operands_.y_zero}) {
      if (context.HasInput(i) && context.InputShape(i).ElementCount() != 1) {
        return fail(StrCat("operand ", i, ", which must be one number,"), i);
      }
    }
    for (const size_t i : {operands_.bias, operands_.integers}) {
      if (context.HasInput(i) && context.InputShape(i).ElementCount() != b_.n) {
        return fail(StrCat("operand ", i, ", one number per column,"), i);
      }
    }
    if (operands_.b_scale != kNone) {
      const int64_t scales = context.InputShape(operands_.b_scale).ElementCount();
      if (scales != 1 && scales != b_.n) return fail("B's scale", operands_.b_scale);
    }
    return Status::Ok();
  }

  void Run(const ProductSizes& z, const KernelContext& k) const {
    math::Quantization from{false, 1.0f, 0.0f};
    const Rows a = RowsOfA(z, k, from);
    auto* numbers = reinterpret_cast<float*>(k.scratch<std::byte>() + z.a_bytes());
    const Epilogue epilogue = MakeEpilogue(z, from, k, numbers);
    auto* row_sums = reinterpret_cast<int32_t*>(numbers + 2 * z.row_floats());
    if (z.sums_rows && z.widens_a) SumRows(a.wide, z.m, z.k, z.padded_k, from, row_sums);
    if (z.sums_rows && !z.widens_a) SumRows(a.bytes, z.m, z.k, z.lda(), from, row_sums);
    float* tiles = numbers + 2 * z.row_floats() + z.row_sums();
    const int64_t panels = (z.n + simd_.gemm_width - 1) / simd_.gemm_width;
    const int64_t chunks = z.m * z.k * z.n < kLeastWork
                               ? 1
                               : std::min<int64_t>({kMaxChunks, panels, k.pool().threads()});
    const int64_t tile = std::min(z.m, kRowBlock) * simd_.gemm_width;
    k.pool().ParallelFor(chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t chunk = begin; chunk < end; ++chunk) {
        const int64_t first = panels * chunk / chunks, last = panels * (chunk + 1) / chunks;
        for (int64_t row = 0; row < z.m; row += kRowBlock) {
          const int64_t rows = std::min(kRowBlock, z.m - row);
          if (!IsByte(y_type_)) {
            RunPanels(z, {row, rows, first, last}, a, epilogue, row_sums, k, nullptr);
            continue;
          }
          for (int64_t p = first; p < last; ++p) {
            RunPanels(z, {row, rows, p, p + 1}, a, epilogue, row_sums, k, tiles + chunk * tile);
          }
        }
      }
    });
  }

  // As byte_gemm takes them.
  struct Rows {
    const uint8_t* bytes;  // lda() after each other
    const int16_t* wide;   // or these, padded_k after each other
  };

  // A and the format of its bytes.
  Rows RowsOfA(const ProductSizes& z, const KernelContext& k, math::Quantization& from) const {
    const uint8_t* codes = k.input<uint8_t>(operands_.a);
    bool is_signed = a_type_ == DataType::kInt8;
    if (a_type_ == DataType::kFloat) {
      const auto* x = k.input<float>(operands_.a);
      from = DynamicFormat(x, z.m * z.k);
      auto* copy = k.scratch<uint8_t>();
      ForRows(z, k,
              [&](int64_t row) { simd_.quantize(x + row * z.k, from, copy + row * z.lda(), z.k); });
      codes = copy;
    } else {
      if (const auto* scale = k.input<float>(operands_.a_scale)) from.scale = *scale;
      if (const auto* zero = k.input<uint8_t>(operands_.a_zero)) {
        from.zero = ByteAt(zero, is_signed);
      }
    }
    if (z.widens_a) return {nullptr, WideRows(z, k, codes, is_signed)};
    if (!z.copies_a || a_type_ == DataType::kFloat) return {codes, nullptr};
    if (is_signed) from.zero += 128.0f;
    return {UnsignedRows(z, k, codes, is_signed), nullptr};
  }

  const int16_t* WideRows(const ProductSizes& z, const KernelContext& k, const uint8_t* codes,
                          bool is_signed) const {
    auto* wide = reinterpret_cast<int16_t*>(k.scratch<std::byte>() + z.copy_bytes());
    ForRows(z, k, [&](int64_t row) {
      simd_.widen_bytes(codes + row * z.lda(), wide + row * z.padded_k, z.k, is_signed);
    });
    return wide;
  }

  const uint8_t* UnsignedRows(const ProductSizes& z, const KernelContext& k, const uint8_t* codes,
                              bool is_signed) const {
    auto* copy = k.scratch<uint8_t>();
    ForRows(z, k, [&](int64_t row) {
      if (is_signed) {
        simd_.flip_signs(codes + row * z.k, copy + row * z.lda(), z.k);
      } else {
        std::copy_n(codes + row * z.k, z.k, copy + row * z.lda());
      }
    });
    return copy;
  }

  static void ForRows(const ProductSizes& z, const KernelContext& k,
                      FunctionRef<void(int64_t)> run) {
    k.pool().ParallelFor(z.m, 1 + kLeastCopied / z.k, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) run(row);
    });
  }

  Epilogue MakeEpilogue(const ProductSizes& z, const math::Quantization& from,
                        const KernelContext& k, float* numbers) const {
    auto* offsets = reinterpret_cast<int32_t*>(numbers);
    float* scales = numbers + z.row_floats();
    const auto zero = static_cast<uint32_t>(static_cast<int32_t>(from.zero));
    const auto* integers = k.input<int32_t>(operands_.integers);
    for (int64_t j = 0; j < b_.n; ++j) {  // wraps, as the sums do
      uint32_t offset = zero * b_.sums.data<uint32_t>()[j];
      if (integers != nullptr) offset -= static_cast<uint32_t>(integers[j]);
      offsets[j] = static_cast<int32_t>(offset);
    }
    const auto* b_scale = k.input<float>(operands_.b_scale);
    if (b_scale == nullptr) return {offsets, nullptr, nullptr};
    const auto* y_scale = k.input<float>(operands_.y_scale);
    for (int64_t j = 0; j < z.n; ++j) {
      const float scale = from.scale * b_scale[z.one_scale ? 0 : j];
      scales[j] = y_scale != nullptr ? scale / *y_scale : scale;
    }
    return {offsets, scales, k.input<float>(operands_.bias)};
  }

  struct Part {
    int64_t row, rows, first_panel, last_panel;
  };

  // `tile` takes the floats of one panel before they become bytes.
  void RunPanels(const ProductSizes& z, const Part& part, const Rows& a, const Epilogue& epilogue,
                 const int32_t* row_sums, const KernelContext& k, float* tile) const {
    const int64_t column = part.first_panel * simd_.gemm_width;
    const int64_t panels = part.last_panel - part.first_panel;
    const int64_t width = std::min(panels * simd_.gemm_width, z.n - column);
    const int64_t at = part.row * z.n + column;
    math::ByteGemmArguments g;
    g.m = part.rows;
    g.n = width;
    g.k = z.k;
    if (z.widens_a) {
      g.wide = a.wide + part.row * z.padded_k;
      g.lda = z.padded_k;
    } else {
      g.a = a.bytes + part.row * z.lda();
      g.lda = z.lda();
    }
    g.packed_b = b_.elements.data<int8_t>() +
                 part.first_panel * math::PackedBytesSize(simd_, z.k, simd_.gemm_width);
    g.offsets = epilogue.offsets + column;
    if (epilogue.scales != nullptr) g.scales = epilogue.scales + column;
    if (epilogue.bias != nullptr) g.bias = epilogue.bias + column;
    if (z.sums_rows) {
      g.b_zeros = zeros_.data() + column;
      g.row_sums = row_sums + part.row;
    }
    g.ldc = z.n;
    if (y_type_ == DataType::kInt32) {
      g.sums = k.output<int32_t>(0) + at;
    } else if (y_type_ == DataType::kFloat) {
      g.c = k.output<float>(0) + at;
    } else {
      g.c = tile;
      g.ldc = simd_.gemm_width;
    }
    simd_.byte_gemm(g, 0, panels);
    if (!IsByte(y_type_)) return;
    const bool is_signed = y_type_ == DataType::kInt8;
    const auto* zero = k.input<uint8_t>(operands_.y_zero);
    const math::Quantization to{is_signed, 1.0f, zero == nullptr ? 0.0f : ByteAt(zero, is_signed)};
    simd_.quantize_rows(tile, simd_.gemm_width, to, k.output<uint8_t>(0) + at, z.n, part.rows,
                        width);
  }

  static constexpr int64_t kLeastWork = 1 << 18;    // products that are worth several threads
  static constexpr int64_t kLeastCopied = 1 << 16;  // bytes of A that are

  const math::Simd& simd_;
  Operands operands_;
  DataType a_type_, y_type_;
  PackedByteMatrix b_;
  std::vector<int32_t> zeros_;  // of B's columns as signed bytes; empty: 0
};

// Whether an operand is absent or its shape is known to be one number.
bool IsOneNumber(const KernelInfo& info, size_t i) {
  if (i == kNone || info.node.input(i) == kNoValue) return true;
  const auto& shape = info.input_types[i].shape;
  if (!shape) return false;
  return std::all_of(shape->begin(), shape->end(),
                     [](const Dimension& d) { return d.known() && d.value == 1; });
}

// B's zero points: one, or one per column; 0 where they are absent.
Result<std::vector<int32_t>> ZerosOfB(const KernelInfo& info, size_t operand, int64_t columns) {
  if (info.node.input(operand) == kNoValue) return std::vector<int32_t>{0};
  const Initializer* initializer = info.constant_input(operand);
  if (initializer == nullptr) return Unimplemented("B's zero point is not constant");
  ONNXD_ASSIGN_OR_RETURN(const Tensor zero, initializer->Materialize());
  auto zeros = ElementsAs<int32_t>(zero);
  if (zeros.size() != 1 && static_cast<int64_t>(zeros.size()) != columns) {
    return Unimplemented("B's zero points do not fit its columns");
  }
  return zeros;
}

Result<std::unique_ptr<Kernel>> MakeByteProduct(const KernelInfo& info, const Operands& operands,
                                                bool transposed = false) {
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
  ONNXD_ASSIGN_OR_RETURN(std::vector<int32_t> zeros,
                         ZerosOfB(info, operands.b_zero, initializer->shape()[transposed ? 0 : 1]));
  return ByteProduct::Make(operands, a, y, *initializer, std::move(zeros), transposed);
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
