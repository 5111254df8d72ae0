// onnxd::MatMulBfloat16x3: MatMulBiasActivation whose float operands are each the sum of two
// bfloat16, high and low. Three products of bfloat16 make the result: low * high, high * low and
// high * high, added in floats; low * low is below what is kept. Errors are some 2^-16 of the
// operands' sizes. Source: Henry, Tang and Heinecke, "Leveraging the bfloat16 Artificial
// Intelligence Datatype For Higher-Precision Computations", 2019.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/onednn/conv_bands.h"
#include "runtime/providers/cpu/onednn/engine.h"
#include "runtime/providers/cpu/onednn/packed_weights.h"
#include "runtime/providers/cpu/onednn/post_ops.h"
#include "runtime/providers/cpu/onednn/product.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using dnnl::memory;

constexpr int64_t kLeastRows = 8;  // of a chunk
constexpr size_t kProducts = 3;

// value = high + low, but for less than 2^-16 of it.
void SplitFloats(const float* values, int64_t count, uint16_t* high, uint16_t* low) {
  for (int64_t i = 0; i < count; ++i) {
    const Bfloat16 upper(values[i]);
    const float rest = values[i] - static_cast<float>(upper);
    high[i] = upper.bits;
    low[i] = Bfloat16(std::isfinite(rest) ? rest : 0.0f).bits;
  }
}

// The products of a chunk of rows, in the order of their sizes.
using Products = std::array<onednn::Primitive, kProducts>;

struct Chunk {
  int64_t first, rows;
  size_t products;  // in SplitPlan::products
};

struct SplitPlan {
  int64_t k, n;
  bool has_sum;
  std::vector<Products> products;
  std::vector<Chunk> chunks;
  size_t halves = 0, scratchpad = 0;  // bytes of a chunk

  size_t ChunkBytes() const { return 2 * halves + scratchpad; }
};

struct SplitStates : KernelState {
  std::vector<std::vector<onednn::Arguments>> arguments;  // by chunk and product
};

Status RunChunk(const SplitPlan& plan, size_t index, const KernelContext& k) {
  const Chunk& chunk = plan.chunks[index];
  auto* high = reinterpret_cast<uint16_t*>(k.scratch<std::byte>() + index * plan.ChunkBytes());
  auto* low = high + plan.halves / sizeof(uint16_t);
  SplitFloats(k.input<float>(0) + chunk.first * plan.k, chunk.rows * plan.k, high, low);
  float* target = k.output<float>(0) + chunk.first * plan.n;
  if (plan.has_sum && k.input<float>(3) != k.output<float>(0)) {
    std::memcpy(target, k.input<float>(3) + chunk.first * plan.n,
                static_cast<size_t>(chunk.rows * plan.n) * sizeof(float));
  }
  void* scratchpad = reinterpret_cast<std::byte*>(high) + 2 * plan.halves;
  const Products& products = plan.products[chunk.products];
  for (size_t i = 0; i < kProducts; ++i) {
    ONNXD_RETURN_IF_ERROR(k.state<SplitStates>().arguments[index][i].Execute(
        products[i].handle, i == 0 ? low : high, i == 0 ? k.input<float>(2) : nullptr, target,
        scratchpad));
  }
  return Status::Ok();
}

class SplitProduct : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const Tensor& b, bool transposed,
                                              const Activation& activation) {
    ONNXD_ASSIGN_OR_RETURN(Tensor high, Tensor::Create(DataType::kBfloat16, b.shape()));
    ONNXD_ASSIGN_OR_RETURN(Tensor low, Tensor::Create(DataType::kBfloat16, b.shape()));
    SplitFloats(b.data<float>(), b.ElementCount(), static_cast<uint16_t*>(high.mutable_raw()),
                static_cast<uint16_t*>(low.mutable_raw()));
    auto kernel = std::unique_ptr<SplitProduct>(new SplitProduct(b.shape(), transposed));
    kernel->activation_ = activation;
    kernel->high_ = std::make_shared<onednn::PackedWeights>(Initializer(std::move(high)));
    kernel->low_ = std::make_shared<onednn::PackedWeights>(Initializer(std::move(low)));
    return std::unique_ptr<Kernel>(std::move(kernel));
  }

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const bool has_bias = context.HasInput(2), has_sum = context.HasInput(3);
    if ((has_sum && !(context.InputShape(3) == context.OutputShape(0))) ||
        (has_bias && context.InputShape(2).ElementCount() != n_)) {
      return InvalidArgument(StrCat(Describe(context.node), ": C or Z does not fit the product"));
    }
    const int64_t m = k_ == 0 ? 0 : context.InputShape(0).ElementCount() / k_;
    PreparedKernel prepared;
    if (m == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    auto plan = std::make_shared<SplitPlan>();
    plan->k = k_, plan->n = n_, plan->has_sum = has_sum;
    const int64_t threads = std::clamp<int64_t>(m / kLeastRows, 1, context.threads);
    const int64_t rows = (m + threads - 1) / threads;
    for (int64_t first = 0; first < m; first += rows) {
      const int64_t count = std::min(rows, m - first);
      if (first == 0 || count < rows) {
        ONNXD_ASSIGN_OR_RETURN(Products made, MakeProducts(count, has_bias, has_sum));
        for (const onednn::Primitive& one : made) {
          plan->scratchpad = std::max(plan->scratchpad, one.ScratchBytes());
        }
        plan->products.push_back(std::move(made));
      }
      plan->chunks.push_back({first, count, plan->products.size() - 1});
    }
    plan->halves = static_cast<size_t>(rows * k_ + 31) / 32 * 64;
    if (has_sum) prepared.in_place = {{0, 3}};
    prepared.scratch_bytes = plan->ChunkBytes() * plan->chunks.size();
    prepared.make_state = [plan]() -> Result<std::unique_ptr<KernelState>> {
      auto states = std::make_unique<SplitStates>();
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
        for (const Chunk& chunk : plan->chunks) {
          const Products& products = plan->products[chunk.products];
          states->arguments.emplace_back(products.begin(), products.end());
        }
      }));
      return std::unique_ptr<KernelState>(std::move(states));
    };
    prepared.compute = [plan](const KernelContext& k) {
      return onednn::ForBands(k.pool(), plan->chunks.size(),
                              [&](size_t i) { return RunChunk(*plan, i, k); });
    };
    return prepared;
  }

 private:
  SplitProduct(const Shape& b, bool transposed)
      : k_(b[transposed ? 1 : 0]), n_(b[transposed ? 0 : 1]), transposed_(transposed) {}

  Result<Products> MakeProducts(int64_t rows, bool has_bias, bool has_sum) const {
    Products made;
    for (size_t i = 0; i < kProducts; ++i) {
      const bool first = i == 0, last = i + 1 == kProducts;
      bool activation_done = true;  // the factory asked
      ONNXD_ASSIGN_OR_RETURN(
          made[i], onednn::MakeProductPrimitive(
                       {rows, k_, n_, transposed_, memory::data_type::bf16, memory::data_type::f32,
                        first && has_bias, !first || has_sum, last ? activation_ : Activation{}},
                       i == 1 ? *low_ : *high_, activation_done));
    }
    return made;
  }

  int64_t k_, n_;
  bool transposed_;
  Activation activation_;
  std::shared_ptr<onednn::PackedWeights> high_, low_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeMatMulBfloat16x3(const KernelInfo& info) {
  const Initializer* b = info.constant_input(1);
  if (b == nullptr || b->shape().rank() != 2 || b->type() != DataType::kFloat ||
      info.InputType(0) != DataType::kFloat) {
    return Unimplemented("MatMulBfloat16x3 needs floats and a constant matrix");
  }
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  dnnl::post_ops ops;
  if (!onednn::AddActivation(activation, ops)) return Unimplemented("the activation");
  ONNXD_ASSIGN_OR_RETURN(const Tensor weights, b->Materialize());
  return SplitProduct::Make(weights, info.node.attributes.Int("transB", 0) != 0, activation);
}

}  // namespace onnxd
