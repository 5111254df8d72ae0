// MatMul, Gemm, com.microsoft FusedMatMul and QGemm, onnxd::MatMulAdd, MatMulInteger and
// QLinearMatMul.
#include "runtime/base/str_cat.h"
#include "runtime/providers/gpu/pointwise.h"
#include "runtime/providers/gpu/pointwise_expressions.h"
#include "runtime/providers/gpu/product.h"

namespace onnxd {
namespace {

struct Transposes {
  bool a = false, b = false;
};

// Sizes of a product of stacks of matrices, and how the stacks are broadcast.
struct Stack {
  ProductSizes sizes;
  DeviceDims dims, a_strides, b_strides;
  int32_t rank;
};

Result<Stack> StackOf(const Shape& a, const Shape& b, Transposes transposes) {
  Shape left = a.rank() == 1 ? Shape{1, a[0]} : a;
  Shape right = b.rank() == 1 ? Shape{b[0], 1} : b;
  const int lr = left.rank(), rr = right.rank();
  const bool swap_a = transposes.a && a.rank() > 1, swap_b = transposes.b && b.rank() > 1;
  Stack stack;
  ProductSizes& sizes = stack.sizes;
  sizes.m = swap_a ? left[lr - 1] : left[lr - 2];
  sizes.k = swap_a ? left[lr - 2] : left[lr - 1];
  sizes.n = swap_b ? right[rr - 2] : right[rr - 1];
  const Shape stack_a(std::vector<int64_t>(left.begin(), left.end() - 2));
  const Shape stack_b(std::vector<int64_t>(right.begin(), right.end() - 2));
  std::vector<int64_t> out(static_cast<size_t>(std::max(stack_a.rank(), stack_b.rank())), 1);
  for (const Shape* shape : {&stack_a, &stack_b}) {
    for (int i = 0; i < shape->rank(); ++i) {
      const size_t at = out.size() - static_cast<size_t>(shape->rank() - i);
      if ((*shape)[i] != 1) out[at] = (*shape)[i];
    }
  }
  const Shape batch(out);
  DeviceLoop loop{out, {BroadcastStrides(stack_a, batch), BroadcastStrides(stack_b, batch)}};
  for (int64_t& s : loop.strides[0]) s *= sizes.m * sizes.k;
  for (int64_t& s : loop.strides[1]) s *= sizes.k * sizes.n;
  loop.Join();
  sizes.batch = batch.ElementCount();
  // One matrix on the right: the rows of all on the left are rows of one product.
  if (stack_b.ElementCount() == 1 && !swap_a) {
    sizes.m *= sizes.batch;
    sizes.batch = 1;
    loop = {{}, {{}, {}}};
  }
  ONNXD_ASSIGN_OR_RETURN(stack.dims, ToDeviceDims(loop.dims));
  ONNXD_ASSIGN_OR_RETURN(stack.a_strides, ToDeviceDims(loop.strides[0]));
  ONNXD_ASSIGN_OR_RETURN(stack.b_strides, ToDeviceDims(loop.strides[1]));
  stack.rank = static_cast<int32_t>(loop.dims.size());
  return stack;
}

// What a library may compute of it: floats, stacks whose matrices follow each other.
std::optional<LibraryProduct> LibraryProductOf(const Stack& stack, DataType type,
                                               Transposes transposes) {
  const bool floats =
      type == DataType::kFloat || type == DataType::kFloat16 || type == DataType::kBfloat16;
  if (!floats || stack.rank > 1) return std::nullopt;
  LibraryProduct product;
  product.operands = product.result = type;
  product.batch = stack.sizes.batch;
  product.m = stack.sizes.m;
  product.n = stack.sizes.n;
  product.k = stack.sizes.k;
  product.transpose_a = transposes.a;
  product.transpose_b = transposes.b;
  if (stack.rank == 1) {
    product.a_stride = stack.a_strides.values[0];
    product.b_stride = stack.b_strides.values[0];
  }
  return product;
}

// The product of stacks of matrices; callers add parameters and the result's expression.
ProductText TextOf(DataType a, DataType b, DataType y, Transposes transposes) {
  ProductText text;
  text.a = a;
  text.b = b;
  text.y = y;
  text.accumulator = AccumulatorOf(a);
  text.functions = kOffsetFunction;
  text.parameters = "Dims dims, i32 rank, Dims a_strides, Dims b_strides, ";
  text.setup =
      "a += offset_of(batch, rank, dims, a_strides); "
      "b += offset_of(batch, rank, dims, b_strides);";
  text.load_a = transposes.a ? "A_GET(a, (i64)p * m + i)" : "A_GET(a, (i64)i * k + p)";
  text.load_b = transposes.b ? "B_GET(b, (i64)j * k + p)" : "B_GET(b, (i64)p * n + j)";
  text.a_by_p = !transposes.a;
  text.b_by_p = transposes.b;
  text.a_rows = !transposes.a;
  text.b_rows = transposes.b;
  text.b_columns = !transposes.b;
  return text;
}

void FillStack(const Stack& stack, LaunchArguments& arguments) {
  arguments.Value(stack.dims).Value(stack.rank).Value(stack.a_strides).Value(stack.b_strides);
}

bool Multiplies(DataType type) { return IsDeviceType(type) && type != DataType::kBool; }

Result<ProductPlanner> PlanProduct(const KernelInfo& info, Transposes transposes, float alpha) {
  const DataType type = info.InputType(0);
  if (!Multiplies(type) || info.InputType(1) != type) return DeclineOnDevice(info, type);
  ProductText text = TextOf(type, type, info.OutputType(0), transposes);
  // Of bytes as well, MatMul's sums are of the operands' type.
  text.accumulator = ComputeName(type);
  const bool scaled = alpha != 1.0f, has_row = info.node.Is("MatMulAdd", "onnxd");
  if (has_row) {
    text.parameters += "GLOBAL const A* added, ";
    text.result = "sum + A_GET(added, j)";
  }
  if (scaled) {
    text.parameters += "f32 alpha, ";
    text.result = "(ACC)alpha * sum";
  }
  return ProductPlanner([=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const Stack stack,
                           StackOf(context.InputShape(0), context.InputShape(1), transposes));
    if (has_row && context.InputShape(2).ElementCount() != stack.sizes.n) {
      return InvalidArgument(StrCat(Describe(context.node), ": a row of shape ",
                                    context.InputShape(2).ToString(), " for ", stack.sizes.n,
                                    " columns"));
    }
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      FillStack(stack, arguments);
      if (has_row) arguments.Pointer(k.input<void>(2));
      if (scaled) arguments.Value(alpha);
    };
    ProductPlan plan{text, stack.sizes, 0, 1, fill, LibraryProductOf(stack, type, transposes)};
    if (!scaled && text.y == type) plan.addends = ProductAddends();
    if (has_row && plan.addends) plan.addends->row = 2;
    return plan;
  });
}

}  // namespace

Result<ProductPlanner> PlanMatMul(const KernelInfo& info) {
  if (info.node.domain != "com.microsoft") return PlanProduct(info, {}, 1.0f);
  const Attributes& attributes = info.node.attributes;
  if (attributes.Int("transBatchA", 0) != 0 || attributes.Int("transBatchB", 0) != 0) {
    return Unimplemented("FusedMatMul with transposed stacks");
  }
  const Transposes transposes{attributes.Int("transA", 0) != 0, attributes.Int("transB", 0) != 0};
  return PlanProduct(info, transposes, attributes.Float("alpha", 1.0f));
}

// Y = alpha * op(A) * op(B) + beta * C.
std::optional<ProductAddends> AddendsOf(size_t input, const Shape& shape, const Shape& output,
                                        int64_t columns, ProductAddends before) {
  // A product with a vector has one column, whatever the last axis of its output is.
  const bool is_row = shape.rank() > 0 && output.rank() > 0 && shape.dims().back() == columns &&
                      output.dims().back() == columns && shape.ElementCount() == columns;
  if (before.relu) return std::nullopt;
  if (is_row && !before.row) {
    before.row = input;
  } else if (shape == output && !before.matrix) {
    before.matrix = input;
  } else {
    return std::nullopt;
  }
  return before;
}

Result<ProductPlanner> PlanGemm(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!Multiplies(type) || !IsFloatingPoint(type)) return DeclineOnDevice(info, type);
  const Attributes& attributes = info.node.attributes;
  const Transposes transposes{attributes.Int("transA", 0) != 0, attributes.Int("transB", 0) != 0};
  const float alpha = attributes.Float("alpha", 1.0f), beta = attributes.Float("beta", 1.0f);
  const bool has_c = info.node.input(2) != kNoValue && beta != 0.0f;
  ProductText text = TextOf(type, type, type, transposes);
  text.parameters += "f32 alpha, ";
  text.result = "(ACC)alpha * sum";
  if (has_c) {
    text.parameters += "GLOBAL const A* c, i64 c_row, i64 c_column, f32 beta, ";
    text.result += " + (ACC)beta * A_GET(c, i * c_row + j * c_column)";
  }
  const bool is_plain = alpha == 1.0f && (!has_c || beta == 1.0f);
  return ProductPlanner([=](const PrepareContext& context) -> Result<ProductPlan> {
    ONNXD_ASSIGN_OR_RETURN(const Stack stack,
                           StackOf(context.InputShape(0), context.InputShape(1), transposes));
    std::vector<int64_t> c_strides(2, 0);
    if (has_c) c_strides = BroadcastStrides(context.InputShape(2), context.OutputShape(0));
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      FillStack(stack, arguments);
      arguments.Value(alpha);
      if (!has_c) return;
      arguments.Pointer(k.input<void>(2)).Value(c_strides[0]).Value(c_strides[1]).Value(beta);
    };
    ProductPlan plan{text, stack.sizes, 0, 1, fill, LibraryProductOf(stack, type, transposes)};
    if (is_plain) plan.addends = ProductAddends();
    if (is_plain && has_c) {
      plan.addends = AddendsOf(2, context.InputShape(2), context.OutputShape(0), stack.sizes.n);
    }
    return plan;
  });
}

Result<std::unique_ptr<Kernel>> MakeGpuMatMul(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(ProductPlanner planner, PlanMatMul(info));
  return MakeProductKernel(device, std::move(planner));
}

Result<std::unique_ptr<Kernel>> MakeGpuGemm(const KernelInfo& info, GpuDevice& device) {
  ONNXD_ASSIGN_OR_RETURN(ProductPlanner planner, PlanGemm(info));
  return MakeProductKernel(device, std::move(planner));
}

namespace {

// Where a product of bytes finds its operands; -1: it has none.
struct ByteOperands {
  int a = 0, a_zero = 2, b = 1, b_zero = 3;
  int a_scale = -1, b_scale = -1, y_scale = -1, y_zero = -1;
  int integers = -1;  // i32 per column, added to the sums
};

int64_t ElementsOf(const PrepareContext& context, int input) {
  const auto at = static_cast<size_t>(input);
  return input >= 0 && context.HasInput(at) ? context.InputShape(at).ElementCount() : 1;
}

// Zero points are numbers, or one per row of A or column of B; scales are numbers, that of B
// perhaps one per column.
Result<std::unique_ptr<Kernel>> ByteProduct(const KernelInfo& info, GpuDevice& device,
                                            const ByteOperands& o, Transposes transposes = {}) {
  const auto has = [&](int input) {
    return input >= 0 && info.node.input(static_cast<size_t>(input)) != kNoValue;
  };
  const auto type = [&](int input) { return info.InputType(static_cast<size_t>(input)); };
  const auto is_zero = [&](int input) {
    return !has(input) || IsZero(info, static_cast<size_t>(input));
  };
  const bool scaled = o.y_scale >= 0;
  const DataType y = info.OutputType(0);
  ProductText text = TextOf(type(o.a), type(o.b), y, transposes);
  text.parameters += "GLOBAL const A* a_zero, i64 a_zeros, GLOBAL const B* b_zero, i64 b_zeros, ";
  if (!is_zero(o.a_zero)) text.a_zero = "(i32)a_zero[a_zeros > 1 ? i : 0]";
  if (!is_zero(o.b_zero)) text.b_zero = "(i32)b_zero[b_zeros > 1 ? j : 0]";
  const bool has_integers = has(o.integers);
  if (has_integers) {
    text.parameters += "GLOBAL const i32* integers, ";
    text.result = "sum + integers[j]";
  }
  if (scaled) {
    const bool floats = type(o.a_scale) == DataType::kFloat &&
                        type(o.b_scale) == DataType::kFloat && type(o.y_scale) == DataType::kFloat;
    if (!floats) return DeclineOnDevice(info, type(o.y_scale));
    text.functions += PointwiseFunctions();
    text.parameters +=
        "GLOBAL const f32* a_scale, GLOBAL const f32* b_scale, i64 b_scales, "
        "GLOBAL const f32* y_scale, GLOBAL const Y* y_zero, ";
    text.finished = StrCat("truncated_f32_", ComputeName(y),
                           "(rint((f32)value * (a_scale[0] * b_scale[b_scales > 1 ? j : 0] / "
                           "y_scale[0])) + (f32)y_zero[0])");
  }
  return MakeProductKernel(device, [=](const PrepareContext& context) -> Result<ProductPlan> {
    const Shape& a = context.InputShape(static_cast<size_t>(o.a));
    const Shape& b = context.InputShape(static_cast<size_t>(o.b));
    const int64_t a_zeros = ElementsOf(context, o.a_zero), b_zeros = ElementsOf(context, o.b_zero);
    const int64_t b_scales = ElementsOf(context, o.b_scale);
    if ((a_zeros > 1 && a.rank() != 2) || (b_zeros > 1 && b.rank() != 2)) {
      return Unimplemented(StrCat(context.node.op_type, " of stacks with zero points by row"));
    }
    ONNXD_ASSIGN_OR_RETURN(const Stack stack, StackOf(a, b, transposes));
    if (ElementsOf(context, o.a_scale) != 1 || ElementsOf(context, o.y_scale) != 1 ||
        (b_scales > 1 && b_scales != stack.sizes.n)) {
      return Unimplemented(StrCat(context.node.op_type, " with scales by row"));
    }
    if (has_integers && ElementsOf(context, o.integers) != stack.sizes.n) {
      return Unimplemented(StrCat(context.node.op_type, " with a C that is not a row"));
    }
    const auto fill = [=](const KernelContext& k, LaunchArguments& arguments) {
      const auto input = [&](int i) {
        return i < 0 ? nullptr : k.input<void>(static_cast<size_t>(i));
      };
      FillStack(stack, arguments);
      arguments.Pointer(input(o.a_zero)).Value(a_zeros);
      arguments.Pointer(input(o.b_zero)).Value(b_zeros);
      if (has_integers) arguments.Pointer(input(o.integers));
      if (!scaled) return;
      arguments.Pointer(input(o.a_scale)).Pointer(input(o.b_scale)).Value(b_scales);
      arguments.Pointer(input(o.y_scale)).Pointer(input(o.y_zero));
    };
    return ProductPlan{text, stack.sizes, static_cast<size_t>(o.a), static_cast<size_t>(o.b), fill};
  });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGpuMatMulInteger(const KernelInfo& info, GpuDevice& device) {
  return ByteProduct(info, device, {});
}

Result<std::unique_ptr<Kernel>> MakeGpuQLinearMatMul(const KernelInfo& info, GpuDevice& device) {
  return ByteProduct(info, device,
                     {.a = 0,
                      .a_zero = 2,
                      .b = 3,
                      .b_zero = 5,
                      .a_scale = 1,
                      .b_scale = 4,
                      .y_scale = 6,
                      .y_zero = 7});
}

// A, its scale and zero point; B with its; C of integers; the scale and zero point of Y, whose
// type without them is float.
Result<std::unique_ptr<Kernel>> MakeGpuQGemm(const KernelInfo& info, GpuDevice& device) {
  const Attributes& attributes = info.node.attributes;
  const bool bytes = info.node.input(7) != kNoValue && info.node.input(8) != kNoValue;
  if (!bytes || attributes.Float("alpha", 1.0f) != 1.0f) {
    return Unimplemented("QGemm of floats, or with alpha");
  }
  return ByteProduct(info, device,
                     {.a = 0,
                      .a_zero = 2,
                      .b = 3,
                      .b_zero = 5,
                      .a_scale = 1,
                      .b_scale = 4,
                      .y_scale = 7,
                      .y_zero = 8,
                      .integers = 6},
                     {attributes.Int("transA", 0) != 0, attributes.Int("transB", 0) != 0});
}

}  // namespace onnxd
