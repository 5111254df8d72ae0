// com.microsoft MatMulNBits: the product reads codes, scales and zero points of B as they lie.
#include "runtime/ops/matmul_nbits.h"

#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {
namespace {

constexpr size_t kScales = 2, kZeros = 3, kGroups = 4, kBias = 5;

struct Operands {
  bool has_zeros, packed_zeros, has_bias;
};

// The code of `bits` bits at index `at` of a row.
std::string CodeOf(std::string_view row, std::string_view at, int64_t bits) {
  return StrCat("((", row, "[", at, " * ", bits, " / 8] >> (", at, " * ", bits, " % 8)) & ",
                (1 << bits) - 1, ")");
}

ProductText TextOf(const MatMulNBitsSizes& z, const Operands& o, DataType type) {
  ProductText text;
  text.a = text.y = type;
  text.b = DataType::kUint8;
  text.accumulator = "f32";
  text.parameters = "i64 row_bytes, GLOBAL const A* scales, i64 blocks, ";
  const std::string block = StrCat("(p / ", z.block, ")");
  std::string zero = StrCat(1 << (z.bits - 1));
  if (o.packed_zeros) {
    text.parameters += "GLOBAL const B* zeros, i64 zero_bytes, ";
    zero = StrCat("(f32)", CodeOf("(zeros + (i64)j * zero_bytes)", block, z.bits));
  } else if (o.has_zeros) {
    text.parameters += "GLOBAL const A* zeros, ";
    zero = StrCat("(f32)A_GET(zeros, (i64)j * blocks + ", block, ")");
  }
  text.load_a = "A_GET(a, (i64)i * k + p)";
  text.load_b = StrCat("((f32)", CodeOf("(b + (i64)j * row_bytes)", "p", z.bits), " - ", zero,
                       ") * (f32)A_GET(scales, (i64)j * blocks + ", block, ")");
  text.a_by_p = text.a_rows = text.b_by_p = true;
  if (o.has_bias) {
    text.parameters += "GLOBAL const A* bias, ";
    text.result = "sum + (ACC)A_GET(bias, j)";
  }
  return text;
}

Status CheckShapes(const PrepareContext& context, const MatMulNBitsSizes& z, const Operands& o) {
  const Shape& a = context.InputShape(0);
  const auto has = [&](size_t input, int64_t elements) {
    return context.InputShape(input).ElementCount() == elements;
  };
  if (a.rank() < 1 || a[a.rank() - 1] != z.k) {
    return InvalidArgument(StrCat(Describe(context.node), ": A of shape ", a.ToString(),
                                  " does not end in K = ", z.k));
  }
  const int64_t zeros = z.n * (o.packed_zeros ? z.zero_row_bytes() : z.blocks());
  if (!has(1, z.n * z.row_bytes()) || !has(kScales, z.n * z.blocks()) ||
      (o.has_zeros && !has(kZeros, zeros)) || (o.has_bias && !has(kBias, z.n))) {
    return InvalidArgument(StrCat(Describe(context.node),
                                  ": B, scales, zero_points or bias do not fit N, K and "
                                  "block_size"));
  }
  return Status::Ok();
}

}  // namespace

Result<ProductPlanner> PlanMatMulNBits(const KernelInfo& info) {
  ONNXD_ASSIGN_OR_RETURN(const MatMulNBitsSizes z, MatMulNBitsSizesOf(info.node));
  const DataType type = info.InputType(0);
  const bool has_zeros = info.node.input(kZeros) != kNoValue;
  const bool has_bias = info.node.input(kBias) != kNoValue;
  const Operands o{has_zeros, has_zeros && info.InputType(kZeros) == DataType::kUint8, has_bias};
  if ((type != DataType::kFloat && type != DataType::kFloat16 && type != DataType::kBfloat16) ||
      info.InputType(kScales) != type) {
    return DeclineOnDevice(info, type);
  }
  if ((has_zeros && !o.packed_zeros && info.InputType(kZeros) != type) ||
      (has_bias && info.InputType(kBias) != type)) {
    return DeclineOnDevice(info, info.InputType(has_zeros ? kZeros : kBias));
  }
  if (info.node.input(kGroups) != kNoValue) {
    return Unimplemented("MatMulNBits with g_idx is not computed on the device");
  }
  const ProductText text = TextOf(z, o, type);
  return ProductPlanner([=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_RETURN_IF_ERROR(CheckShapes(context, z, o));
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      arguments.Value(z.row_bytes()).Pointer(k.input<void>(kScales)).Value(z.blocks());
      if (o.has_zeros) arguments.Pointer(k.input<void>(kZeros));
      if (o.packed_zeros) arguments.Value(z.zero_row_bytes());
      if (o.has_bias) arguments.Pointer(k.input<void>(kBias));
    };
    const int64_t rows = context.InputShape(0).ElementCount() / z.k;
    return ProductPlan{text, ProductSizes{1, rows, z.n, z.k}, 0, 1, fill};
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuMatMulNBits(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(ProductPlanner planner, PlanMatMulNBits(info));
  return MakeProductKernel(device, std::move(planner));
}

}  // namespace onnxd
