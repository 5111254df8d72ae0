// MatMul, Gemm, onnxd::MatMulBiasActivation and onnxd::MatMulNarrowWeights with a constant right
// side, computed by oneDNN, or by our own loops where these are faster or the weights are narrow.
// Small matrices stay with the plain kernels, whose calls cost less.
#include <algorithm>
#include <cstring>
#include <mutex>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/activation.h"
#include "runtime/providers/cpu/bfloat16_product.h"
#include "runtime/providers/cpu/lazy_form.h"
#include "runtime/providers/cpu/onednn/bfloat16_speed.h"
#include "runtime/providers/cpu/onednn/digits_product.h"
#include "runtime/providers/cpu/onednn/engine.h"
#include "runtime/providers/cpu/onednn/few_rows.h"
#include "runtime/providers/cpu/onednn/own_products.h"
#include "runtime/providers/cpu/onednn/packed_weights.h"
#include "runtime/providers/cpu/onednn/post_ops.h"
#include "runtime/providers/cpu/onednn/product.h"
#include "runtime/providers/cpu/packed_product.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

using dnnl::memory;

constexpr int64_t kLeastElements = 1 << 14;  // of the right side
constexpr char kDigitScales[] = "digit scales";

// Rows [first, first + the primitive's rows) of A.
struct Chunk {
  int64_t first;
  size_t primitive;
};

struct ChunkStates : KernelState {
  std::vector<onednn::Arguments> arguments;  // one per chunk
};

// Than oneDNN's products, and than those by digits.
bool FewRowsAreFaster(int64_t m, int64_t k, int64_t n) {
  constexpr int64_t kMostBesideDigits = 12;
  return m <= (onednn::DigitsAreFaster(m, k, n) ? kMostBesideDigits : math::kMostFewRows);
}

// Whether the bias and Z fit a matrix of n columns.
Status CheckOperands(const PrepareContext& context, int64_t n) {
  if (context.HasInput(3) && !(context.InputShape(3) == context.OutputShape(0))) {
    return InvalidArgument(StrCat(Describe(context.node), ": Z has shape ",
                                  context.InputShape(3).ToString(), ", expected ",
                                  context.OutputShape(0).ToString()));
  }
  if (context.HasInput(2) && context.InputShape(2).ElementCount() != n) {
    return InvalidArgument(StrCat(Describe(context.node), ": C has shape ",
                                  context.InputShape(2).ToString(), ", expected [", n, "]"));
  }
  return Status::Ok();
}

// By math::Simd::gemm; by its narrow_gemm where the weights are of 16 bits.
class OwnProduct : public Kernel {
 public:
  OwnProduct(Initializer weights, bool transposed, Activation activation)
      : simd_(math::CurrentSimd()),
        k_(weights.shape()[transposed ? 1 : 0]),
        n_(weights.shape()[transposed ? 0 : 1]),
        transposed_(transposed),
        activation_(activation),
        type_(weights.type()),
        weights_(std::make_unique<LazyForm>(
            std::move(weights), is_narrow() ? NarrowGemmForm(transposed) : GemmForm(transposed))) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    ONNXD_RETURN_IF_ERROR(CheckOperands(context, n_));
    const int64_t elements = context.InputShape(0).ElementCount();
    if (elements == 0) {
      PreparedKernel prepared;
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    ONNXD_ASSIGN_OR_RETURN(
        const Tensor packed, weights_->Get([&](const Tensor& plain) -> Result<Tensor> {
          ONNXD_ASSIGN_OR_RETURN(PackedMatrix made,
                                 is_narrow()
                                     ? PackNarrowMatrix(plain, transposed_, k_, n_)
                                     : PackMatrix(plain.data<float>(), transposed_, k_, n_));
          return made.elements;
        }));
    const int64_t m = elements / k_;
    const bool has_sum = context.HasInput(3);
    if (is_narrow() && onednn::DigitsAreFaster(m, k_, n_)) {
      const onednn::NarrowPanels panels{packed.data<uint16_t>(), NarrowFloatOf(type_)};
      ONNXD_ASSIGN_OR_RETURN(const Tensor scales, weights_->GetDerived(kDigitScales, [&] {
        return onednn::MakeDigitScales(panels, k_, n_);
      }));
      return onednn::PrepareDigitsProduct(
          {m, k_, n_, panels, scales, activation_, has_sum, context.threads});
    }
    return PreparePackedProduct(
        {m, {&simd_, packed, k_, n_, NarrowFloatOf(type_)}, activation_, has_sum, context.threads});
  }

 private:
  bool is_narrow() const { return type_ != DataType::kFloat; }

  const math::Simd& simd_;
  int64_t k_, n_;
  bool transposed_;
  Activation activation_;
  DataType type_;
  std::unique_ptr<LazyForm> weights_;
};

// By oneDNN, or from matrices in its layout.
class ConstantProduct : public Kernel {
 public:
  // B is `weights`, [k, n] or, when transposed, [n, k].
  ConstantProduct(Initializer weights, bool transposed, Activation activation)
      : type_(onednn::TypeOf(weights.type())),
        element_bytes_(memory::data_type_size(type_)),
        k_(weights.shape()[transposed ? 1 : 0]),
        n_(weights.shape()[transposed ? 0 : 1]),
        transposed_(transposed),
        activation_(activation),
        weights_(std::make_shared<onednn::PackedWeights>(std::move(weights))) {}

  bool ReadsInput(size_t i) const override { return i != 1; }

  Result<PreparedKernel> Prepare(const PrepareContext& context) const override {
    const Shape& a = context.InputShape(0);
    const bool has_bias = context.HasInput(2), has_sum = context.HasInput(3);
    ONNXD_RETURN_IF_ERROR(CheckOperands(context, n_));
    const int64_t m = k_ == 0 ? 0 : a.ElementCount() / k_;
    PreparedKernel prepared;
    if (m == 0) {
      prepared.compute = [](const KernelContext&) { return Status::Ok(); };
      return prepared;
    }
    bool activation_done = true;
    if (FewRowsAreFaster(m, k_, n_)) {
      ONNXD_ASSIGN_OR_RETURN(const onednn::Primitive whole,
                             MakePrimitive(m, has_bias, has_sum, activation_done));
      if (const auto panels = onednn::PanelsOf(whole.weights)) {
        return onednn::PrepareFewRows({m, k_, n_, *panels, activation_, has_sum, context.threads});
      }
    }
    if (type_ == memory::data_type::f32 && onednn::DigitsAreFaster(m, k_, n_)) {
      ONNXD_ASSIGN_OR_RETURN(const memory weights, InPanels());
      if (const auto panels = onednn::PanelsOf(weights)) {
        ONNXD_ASSIGN_OR_RETURN(const Tensor scales, weights_->GetDerived(kDigitScales, [&] {
          return onednn::MakeDigitScales(*panels, k_, n_);
        }));
        return onednn::PrepareDigitsProduct(
            {m, k_, n_, *panels, scales, activation_, has_sum, context.threads});
      }
    }
    // Each thread takes as many rows, the last one what is left.
    const int64_t threads = std::clamp<int64_t>(m / kLeastRows, 1, context.threads);
    const int64_t rows = (m + threads - 1) / threads;
    if (has_sum) prepared.in_place = {{0, 3}};
    std::vector<onednn::Primitive> primitives;
    std::vector<Chunk> chunks;
    for (int64_t first = 0; first < m; first += rows) {
      const bool other = first == 0 || m - first < rows;
      if (other) {
        ONNXD_ASSIGN_OR_RETURN(
            onednn::Primitive made,
            MakePrimitive(std::min(rows, m - first), has_bias, has_sum, activation_done));
        primitives.push_back(std::move(made));
      }
      chunks.push_back({first, primitives.size() - 1});
    }
    size_t scratch = 0;
    for (const onednn::Primitive& primitive : primitives) {
      scratch = std::max(scratch, primitive.ScratchBytes());
    }
    prepared.scratch_bytes = scratch * chunks.size();
    prepared.make_state = [primitives, chunks]() -> Result<std::unique_ptr<KernelState>> {
      auto states = std::make_unique<ChunkStates>();
      ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
        for (const Chunk& chunk : chunks) {
          states->arguments.emplace_back(primitives[chunk.primitive]);
        }
      }));
      return std::unique_ptr<KernelState>(std::move(states));
    };
    const Activation after = activation_done ? Activation{} : activation_;
    prepared.compute = [primitives, chunks, scratch, m, depth = k_ * element_bytes_,
                        width = n_ * element_bytes_, has_sum, after](const KernelContext& k) {
      Status failure;
      std::mutex mutex;
      const auto run = [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const Chunk& chunk = chunks[static_cast<size_t>(i)];
          const int64_t end_row = static_cast<size_t>(i) + 1 < chunks.size()
                                      ? chunks[static_cast<size_t>(i) + 1].first
                                      : m;
          const int64_t bytes = (end_row - chunk.first) * width;
          std::byte* target = k.output<std::byte>(0) + chunk.first * width;
          if (has_sum && k.input<std::byte>(3) != k.output<std::byte>(0)) {
            std::memcpy(target, k.input<std::byte>(3) + chunk.first * width,
                        static_cast<size_t>(bytes));
          }
          const Status status = k.state<ChunkStates>().arguments[static_cast<size_t>(i)].Execute(
              primitives[chunk.primitive].handle, k.input<std::byte>(0) + chunk.first * depth,
              k.input<float>(2), target, k.scratch<std::byte>() + static_cast<size_t>(i) * scratch);
          if (status.ok()) {
            after.Apply(reinterpret_cast<float*>(target),
                        bytes / static_cast<int64_t>(sizeof(float)));
            continue;
          }
          std::lock_guard lock(mutex);
          failure = status;
        }
      };
      if (chunks.size() == 1) {
        run(0, 1);
      } else {
        k.pool().ParallelFor(static_cast<int64_t>(chunks.size()), 1, run);
      }
      return failure;
    };
    return prepared;
  }

 private:
  static constexpr int64_t kLeastRows = 8;

  Result<onednn::Primitive> MakePrimitive(int64_t rows, bool has_bias, bool has_sum,
                                          bool& activation_done) const {
    return onednn::MakeProductPrimitive(
        {rows, k_, n_, transposed_, type_, type_, has_bias, has_sum, activation_}, *weights_,
        activation_done);
  }

  Result<memory> InPanels() const {
    memory::desc wanted, plain;
    ONNXD_RETURN_IF_ERROR(onednn::Guard([&] {
      wanted = onednn::PanelLayout(k_, n_);
      plain = memory::desc({k_, n_}, type_,
                           transposed_ ? memory::format_tag::ba : memory::format_tag::ab);
    }));
    return weights_->InLayout(wanted, plain);
  }

  memory::data_type type_;
  int64_t element_bytes_;
  int64_t k_, n_;
  bool transposed_;
  Activation activation_;
  std::shared_ptr<onednn::PackedWeights> weights_;
};

Result<std::unique_ptr<Kernel>> MakeProduct(const KernelInfo& info, bool transposed) {
  const DataType type = info.InputType(0);
  if (type != DataType::kFloat && type != DataType::kBfloat16) {
    return DeclineType(info.node.op_type, type);
  }
  const Initializer* b = info.constant_input(1);
  if (b == nullptr || b->shape().rank() != 2 || b->shape().ElementCount() < kLeastElements) {
    return Unimplemented("oneDNN takes products with large constant matrices alone");
  }
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  dnnl::post_ops ops;
  const bool own =
      type == DataType::kBfloat16 && (!info.node.Is("MatMulBiasActivation", "onnxd") ||
                                      !onednn::AddActivation(activation, ops) || b->type() != type);
  if (own) return Unimplemented("bfloat16 products come from the reduced_precision pass");
  if (type == DataType::kBfloat16 &&
      (math::CurrentSimd().fast_bfloat16 || !onednn::HasBfloat16() || info.OutputType(0) != type)) {
    return MakeBfloat16Product(info);  // reads what it packs at once
  }
  if (!info.only_asks) ONNXD_RETURN_IF_ERROR(b->Load());
  if (info.OutputType(0) != type) return DeclineType(info.node.op_type, info.OutputType(0));
  if (type == DataType::kFloat && onednn::OwnProductsAreFaster()) {
    return std::unique_ptr<Kernel>(std::make_unique<OwnProduct>(*b, transposed, activation));
  }
  return std::unique_ptr<Kernel>(std::make_unique<ConstantProduct>(*b, transposed, activation));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeConstantMatMul(const KernelInfo& info) {
  return MakeProduct(info, false);
}

Result<std::unique_ptr<Kernel>> MakeMatMulBiasActivation(const KernelInfo& info) {
  return MakeProduct(info, info.node.attributes.Int("transB", 0) != 0);
}

Result<std::unique_ptr<Kernel>> MakeMatMulNarrowWeights(const KernelInfo& info) {
  const Initializer* b = info.constant_input(1);
  if (b == nullptr || b->shape().rank() != 2 || info.InputType(0) != DataType::kFloat ||
      (b->type() != DataType::kFloat16 && b->type() != DataType::kBfloat16)) {
    return Unimplemented("MatMulNarrowWeights needs floats and a constant matrix of 16 bits");
  }
  if (!info.only_asks) ONNXD_RETURN_IF_ERROR(b->Load());
  ONNXD_ASSIGN_OR_RETURN(const Activation activation, ActivationOf(info.node));
  const bool transposed = info.node.attributes.Int("transB", 0) != 0;
  return std::unique_ptr<Kernel>(std::make_unique<OwnProduct>(*b, transposed, activation));
}

// C must be a row that is added as it is.
Result<std::unique_ptr<Kernel>> MakeConstantGemm(const KernelInfo& info) {
  const Attributes& a = info.node.attributes;
  const Initializer* c = info.node.input(2) == kNoValue ? nullptr : info.constant_input(2);
  const Initializer* b = info.constant_input(1);
  const bool transposed = a.Int("transB", 0) != 0;
  bool fits = a.Int("transA", 0) == 0 && a.Float("alpha", 1) == 1 && a.Float("beta", 1) == 1 &&
              b != nullptr && b->shape().rank() == 2;
  if (fits && info.node.input(2) != kNoValue) {
    const int64_t n = b->shape()[transposed ? 0 : 1];
    fits = c != nullptr && c->shape().rank() >= 1 && c->shape().ElementCount() == n &&
           c->shape()[c->shape().rank() - 1] == n;
  }
  if (!fits) return Unimplemented("oneDNN takes A * B + row alone");
  return MakeProduct(info, transposed);
}

}  // namespace onnxd
