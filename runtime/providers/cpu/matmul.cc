// MatMul, Gemm and com.microsoft FusedMatMul on the plain GEMM of runtime/math. A constant right
// side is packed when the model loads.
#include <algorithm>
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/packed_matrix.h"
#include "runtime/providers/cpu/parallel_gemm.h"
#include "runtime/providers/cpu/strided_loop.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

// What a product does to its operands besides multiplying.
struct ProductOptions {
  bool transpose_a = false, transpose_b = false;
  float alpha = 1.0f;
};

struct ProductPlan {
  int64_t m, n, k;
  std::vector<int64_t> a_offsets, b_offsets;  // in elements, per matrix of the batch
  bool one_b;                                 // all matrices share B
};

// Batch dimensions broadcast; leading dimensions of A fold into m where B has none of its own.
ProductPlan PlanProduct(const Shape& a, const Shape& b, const ProductOptions& options) {
  ProductPlan plan;
  Shape left = a, right = b;
  if (left.rank() == 1) left = Shape{1, left[0]};
  if (right.rank() == 1) right = Shape{right[0], 1};
  const int lr = left.rank(), rr = right.rank();
  const bool swap_a = options.transpose_a && a.rank() > 1;
  const bool swap_b = options.transpose_b && b.rank() > 1;
  plan.m = swap_a ? left[lr - 1] : left[lr - 2];
  plan.k = swap_a ? left[lr - 2] : left[lr - 1];
  plan.n = swap_b ? right[rr - 2] : right[rr - 1];
  const Shape batch_a(std::vector<int64_t>(left.begin(), left.end() - 2));
  const Shape batch_b(std::vector<int64_t>(right.begin(), right.end() - 2));
  plan.one_b = batch_b.ElementCount() == 1;
  if (plan.one_b && !swap_a) {
    plan.m *= batch_a.ElementCount();
    plan.a_offsets = {0};
    plan.b_offsets = {0};
    return plan;
  }
  std::vector<int64_t> out(static_cast<size_t>(std::max(batch_a.rank(), batch_b.rank())), 1);
  for (const Shape* shape : {&batch_a, &batch_b}) {
    for (int i = 0; i < shape->rank(); ++i) {
      const size_t at = out.size() - static_cast<size_t>(shape->rank() - i);
      if ((*shape)[i] != 1) out[at] = (*shape)[i];
    }
  }
  const Shape batch(out);
  StridedLoop<2> loop;
  loop.dims = batch.dims();
  loop.strides = {BroadcastStrides(batch_a, batch), BroadcastStrides(batch_b, batch)};
  loop.dims.push_back(1);
  for (auto& strides : loop.strides) strides.push_back(0);
  if (batch.ElementCount() > 0) {
    loop.ForOuter(0, loop.outer_count(), [&](const std::array<int64_t, 2>& at) {
      plan.a_offsets.push_back(at[0] * plan.m * plan.k);
      plan.b_offsets.push_back(at[1] * plan.k * plan.n);
    });
  }
  return plan;
}

size_t Aligned(int64_t floats) { return static_cast<size_t>((floats * 4 + 63) / 64 * 64); }

// Float products. `packed` is defined for a constant B of rank <= 2.
class FloatMatMul : public Kernel {
 public:
  FloatMatMul(ProductOptions options, PackedMatrix packed)
      : options_(options), packed_(std::move(packed)) {}

  bool ReadsInput(size_t i) const override { return i != 1 || !packed_.defined(); }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const ProductPlan plan = PlanProduct(context.InputShape(0), context.InputShape(1), options_);
    const math::Simd& simd = packed_.defined() ? *packed_.simd : math::CurrentSimd();
    PreparedKernel prepared;
    const size_t b_bytes = packed_.defined() ? 0 : Aligned(math::PackedBSize(simd, plan.k, plan.n));
    const size_t a_bytes = options_.transpose_a ? Aligned(plan.m * plan.k) : 0;
    prepared.scratch_bytes = a_bytes + b_bytes;
    const ProductOptions options = options_;
    const PackedMatrix packed = packed_;
    prepared.compute = [plan, options, packed, &simd, b_bytes](const KernelContext& k) {
      if (plan.m == 0 || plan.n == 0) return Status::Ok();
      for (size_t i = 0; i < plan.a_offsets.size(); ++i) {
        const float* a = k.input<float>(0) + plan.a_offsets[i];
        const float* b = packed.data();
        if (!packed.defined()) {
          b = k.scratch<float>();
          if (i == 0 || !plan.one_b) {
            simd.pack_b(k.input<float>(1) + plan.b_offsets[i],
                        options.transpose_b ? plan.k : plan.n, options.transpose_b, plan.k, plan.n,
                        k.scratch<float>());
          }
        }
        if (options.transpose_a) {
          float* transposed = reinterpret_cast<float*>(k.scratch<std::byte>() + b_bytes);
          TransposeMatrix(a, plan.k, plan.m, transposed);
          a = transposed;
        }
        float* c = k.output<float>(0) + static_cast<int64_t>(i) * plan.m * plan.n;
        ParallelGemm(simd, {plan.m, plan.n, plan.k, a, plan.k, b, c, plan.n}, k.pool());
        if (options.alpha != 1.0f) simd.affine(c, c, plan.m * plan.n, options.alpha, 0.0f);
      }
      return Status::Ok();
    };
    return prepared;
  }

 private:
  ProductOptions options_;
  PackedMatrix packed_;
};

// Packs input 1 when it is a constant matrix.
Result<PackedMatrix> PackConstant(const KernelInfo& info, bool transposed) {
  const Initializer* b = info.constant_input(1);
  if (b == nullptr || b->shape().rank() != 2 || info.only_asks) return PackedMatrix();
  PackedMatrix packed;
  packed.simd = &math::CurrentSimd();
  packed.k = b->shape()[transposed ? 1 : 0];
  packed.n = b->shape()[transposed ? 0 : 1];
  ONNXD_ASSIGN_OR_RETURN(
      packed.elements, b->InForm(GemmForm(transposed), [&](const Tensor& plain) -> Result<Tensor> {
        ONNXD_ASSIGN_OR_RETURN(PackedMatrix made,
                               PackMatrix(plain.data<float>(), transposed, packed.k, packed.n));
        return made.elements;
      }));
  return packed;
}

// All other element types, one by one.
std::unique_ptr<Kernel> GenericMatMul(DataType type) {
  return MakeKernel([type](const PrepareContext& context) -> Result<PreparedKernel> {
    const ProductPlan plan = PlanProduct(context.InputShape(0), context.InputShape(1), {});
    PreparedKernel prepared;
    prepared.compute = [plan, type](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() {
        for (size_t i = 0; i < plan.a_offsets.size(); ++i) {
          const T* a = k.input<T>(0) + plan.a_offsets[i];
          const T* b = k.input<T>(1) + plan.b_offsets[i];
          T* c = k.output<T>(0) + static_cast<int64_t>(i) * plan.m * plan.n;
          std::fill_n(c, plan.m * plan.n, T{});
          for (int64_t row = 0; row < plan.m; ++row) {
            for (int64_t p = 0; p < plan.k; ++p) {
              const T x = a[row * plan.k + p];
              for (int64_t column = 0; column < plan.n; ++column) {
                T& y = c[row * plan.n + column];
                y = static_cast<T>(y + x * b[p * plan.n + column]);
              }
            }
          }
        }
      });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMatMul(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (type == DataType::kFloat) {
    ONNXD_ASSIGN_OR_RETURN(PackedMatrix packed, PackConstant(info, false));
    return std::unique_ptr<Kernel>(
        std::make_unique<FloatMatMul>(ProductOptions{}, std::move(packed)));
  }
  if (!IsNumber(type)) return DeclineType("MatMul", type);
  return GenericMatMul(type);
}

Result<std::unique_ptr<Kernel>> MakeFusedMatMul(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return DeclineType("FusedMatMul", info.InputType(0));
  const Attributes& attributes = info.node.attributes;
  ProductOptions options;
  options.transpose_a = attributes.Int("transA", 0) != 0;
  options.transpose_b = attributes.Int("transB", 0) != 0;
  options.alpha = attributes.Float("alpha", 1.0f);
  ONNXD_ASSIGN_OR_RETURN(PackedMatrix packed, PackConstant(info, options.transpose_b));
  return std::unique_ptr<Kernel>(std::make_unique<FloatMatMul>(options, std::move(packed)));
}

namespace {

// Gemm: Y = alpha * op(A) * op(B) + beta * C.
class FloatGemm : public Kernel {
 public:
  FloatGemm(ProductOptions options, float beta, PackedMatrix packed)
      : options_(options), beta_(beta), packed_(std::move(packed)) {}

  bool ReadsInput(size_t i) const override { return i != 1 || !packed_.defined(); }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const ProductPlan plan = PlanProduct(context.InputShape(0), context.InputShape(1), options_);
    const math::Simd& simd = packed_.defined() ? *packed_.simd : math::CurrentSimd();
    const bool has_c = context.HasInput(2) && beta_ != 0.0f;
    const Shape out{plan.m, plan.n};
    // A row vector C with unit factors is the GEMM's own bias.
    const bool is_bias = has_c && options_.alpha == 1.0f && beta_ == 1.0f &&
                         context.InputShape(2).ElementCount() == plan.n &&
                         context.InputShape(2).rank() >= 1 &&
                         context.InputShape(2)[context.InputShape(2).rank() - 1] == plan.n;
    StridedLoop<2> c_loop;
    if (has_c && !is_bias) c_loop = BroadcastLoop<1>(out, {context.inputs[2].shape});
    PreparedKernel prepared;
    const size_t b_bytes = packed_.defined() ? 0 : Aligned(math::PackedBSize(simd, plan.k, plan.n));
    prepared.scratch_bytes = b_bytes + (options_.transpose_a ? Aligned(plan.m * plan.k) : 0);
    const ProductOptions options = options_;
    const PackedMatrix packed = packed_;
    const float beta = beta_;
    prepared.compute = [=, &simd](const KernelContext& k) {
      if (plan.m == 0 || plan.n == 0) return Status::Ok();
      const float* b = packed.data();
      if (!packed.defined()) {
        simd.pack_b(k.input<float>(1), options.transpose_b ? plan.k : plan.n, options.transpose_b,
                    plan.k, plan.n, k.scratch<float>());
        b = k.scratch<float>();
      }
      const float* a = k.input<float>(0);
      if (options.transpose_a) {
        float* transposed = reinterpret_cast<float*>(k.scratch<std::byte>() + b_bytes);
        TransposeMatrix(a, plan.k, plan.m, transposed);
        a = transposed;
      }
      float* out_data = k.output<float>(0);
      math::GemmArguments g{plan.m, plan.n, plan.k, a, plan.k, b, out_data, plan.n};
      if (is_bias) g.bias = k.input<float>(2);
      ParallelGemm(simd, g, k.pool());
      if (options.alpha != 1.0f) {
        simd.affine(out_data, out_data, plan.m * plan.n, options.alpha, 0.0f);
      }
      if (has_c && !is_bias) {
        const float* c = k.input<float>(2);
        c_loop.ForOuter(0, c_loop.outer_count(), [&](const std::array<int64_t, 2>& at) {
          for (int64_t i = 0; i < c_loop.inner_count(); ++i) {
            out_data[at[0] + i * c_loop.inner_stride(0)] +=
                beta * c[at[1] + i * c_loop.inner_stride(1)];
          }
        });
      }
      return Status::Ok();
    };
    return prepared;
  }

 private:
  ProductOptions options_;
  float beta_;
  PackedMatrix packed_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeGemm(const KernelInfo& info) {
  if (info.InputType(0) != DataType::kFloat) return DeclineType("Gemm", info.InputType(0));
  const Attributes& attributes = info.node.attributes;
  ProductOptions options;
  options.transpose_a = attributes.Int("transA", 0) != 0;
  options.transpose_b = attributes.Int("transB", 0) != 0;
  options.alpha = attributes.Float("alpha", 1.0f);
  const float beta = attributes.Float("beta", 1.0f);
  ONNXD_ASSIGN_OR_RETURN(PackedMatrix packed, PackConstant(info, options.transpose_b));
  return std::unique_ptr<Kernel>(std::make_unique<FloatGemm>(options, beta, std::move(packed)));
}

}  // namespace onnxd
