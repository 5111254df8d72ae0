// RotaryEmbedding-23 and com.microsoft's (runtime/ops/rotary_embedding.h).
#include "runtime/ops/rotary_embedding.h"

#include <algorithm>
#include <atomic>

#include "runtime/kernel/kernel.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements that are worth another thread

// The row of the caches for each step; -1 for what is outside of them.
template <typename Position>
int64_t RowOf(const RotarySizes& s, const Position* positions, int64_t b, int64_t step) {
  const int64_t at = b * s.sequence + step;
  if (s.positions == RotarySizes::Positions::kRows) return at;
  const bool each = s.positions == RotarySizes::Positions::kEach;
  const int64_t named = positions[each ? at : 0];
  if (named < 0 || named >= s.rows) return -1;
  const int64_t row = each ? named : named + step;
  return row < s.rows ? row : -1;
}

template <typename T>
void Turn(const RotarySizes& s, const T* from, const T* cosines, const T* sines, T* to) {
  const int64_t half = s.half(), step = s.interleaved ? 2 : 1;
  const int64_t partner = s.interleaved ? 1 : half;
  for (int64_t d = 0; d < half; ++d) {
    const T real = from[d * step], imaginary = from[d * step + partner];
    to[d * step] = cosines[d] * real - sines[d] * imaginary;
    to[d * step + partner] = sines[d] * real + cosines[d] * imaginary;
  }
  std::copy_n(from + s.rotated, s.size - s.rotated, to + s.rotated);
}

template <typename T, typename Position>
Status Run(const RotarySizes& s, const RotaryInputs& at, const std::string& name,
           const KernelContext& k) {
  std::atomic<bool> outside{false};
  const auto run = [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) {
      const int64_t b = i / s.sequence, step = i % s.sequence;
      const int64_t row = RowOf(s, k.input<Position>(at.positions), b, step);
      if (row < 0) {
        outside.store(true, std::memory_order_relaxed);
        return;
      }
      for (int64_t head = 0; head < s.heads; ++head) {
        const int64_t begin = s.HeadAt(b, step, head);
        Turn(s, k.input<T>(0) + begin, k.input<T>(at.cosines) + row * s.width,
             k.input<T>(at.sines) + row * s.width, k.output<T>(0) + begin);
      }
    }
  };
  k.pool().ParallelFor(s.batch * s.sequence, 1 + kGrain / (s.heads * s.size), run);
  if (!outside) return Status::Ok();
  return InvalidArgument(StrCat(name, ": a position is outside of the ", s.rows, " of the cache"));
}

}  // namespace

Result<std::unique_ptr<Kernel>> MakeRotaryEmbedding(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  const RotaryInputs at = RotaryInputsOf(info.node);
  const DataType positions = info.InputType(at.positions);
  if (type != DataType::kFloat && type != DataType::kDouble) {
    return DeclineType("RotaryEmbedding", type);
  }
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape* given =
        context.HasInput(at.positions) ? &context.InputShape(at.positions) : nullptr;
    ONNXD_ASSIGN_OR_RETURN(
        const RotarySizes sizes,
        RotarySizesOf(context.node, context.InputShape(0), context.InputShape(at.cosines),
                      context.InputShape(at.sines), given));
    PreparedKernel prepared;
    prepared.compute = [=, name = Describe(context.node)](const KernelContext& k) {
      const auto run = [&]<typename T>() {
        return positions == DataType::kInt32 ? Run<T, int32_t>(sizes, at, name, k)
                                             : Run<T, int64_t>(sizes, at, name, k);
      };
      return type == DataType::kFloat ? run.template operator()<float>()
                                      : run.template operator()<double>();
    };
    return prepared;
  });
}

}  // namespace onnxd
