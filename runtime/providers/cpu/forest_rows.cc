#include "runtime/providers/cpu/forest_rows.h"

#include <algorithm>

#include "runtime/base/str_cat.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kMostRows = 128, kMostScores = 1 << 14;  // at once
constexpr int64_t kTreesPerThread = 1 << 12;               // that are worth waking it

size_t Aligned(int64_t count, size_t size) {
  return (static_cast<size_t>(count) * size + 63) / 64 * 64;
}

}  // namespace

template <typename T>
Result<ForestRows> ForestRows::Make(const PrepareContext& context, const Forest<T>& forest) {
  const Shape& shape = context.InputShape(0);
  if (shape.rank() < 1 || shape.rank() > 2) {
    return InvalidArgument(
        StrCat(Describe(context.node), ": the input must be a matrix, it is ", shape.ToString()));
  }
  ForestRows rows;
  rows.type_ = context.inputs[0].type;
  rows.count_ = shape.rank() == 2 ? shape[0] : 1;
  rows.width_ = shape[shape.rank() - 1];
  if (rows.width_ < forest.features()) {
    return InvalidArgument(StrCat(Describe(context.node), ": the input has ", rows.width_,
                                  " features, the trees use ", forest.features()));
  }
  const int64_t widest = std::max({forest.targets(), rows.width_, int64_t{1}});
  rows.block_ = std::clamp(kMostScores / widest, int64_t{1}, kMostRows);
  const int64_t blocks = (rows.count_ + rows.block_ - 1) / rows.block_;
  const int64_t worth = forest.trees() * rows.count_ / kTreesPerThread;
  rows.parts_ = std::clamp(std::min(blocks, worth), int64_t{1}, int64_t{context.threads});
  rows.score_bytes_ = Aligned(rows.block_ * forest.targets(), sizeof(double));
  const bool converts = rows.type_ != (sizeof(T) == 8 ? DataType::kDouble : DataType::kFloat);
  rows.part_bytes_ =
      rows.score_bytes_ + (converts ? Aligned(rows.block_ * rows.width_, sizeof(T)) : 0);
  return rows;
}

template <typename T>
void ForestRows::ForEach(const KernelContext& k, const Forest<T>& forest,
                         FunctionRef<void(int64_t, double*)> finish) const {
  const auto run_part = [&](int64_t part) {
    auto* scores =
        reinterpret_cast<double*>(k.scratch<std::byte>() + static_cast<size_t>(part) * part_bytes_);
    auto* converted = reinterpret_cast<T*>(reinterpret_cast<std::byte*>(scores) + score_bytes_);
    const Share share = ShareOf(count_, part, parts_);
    for (int64_t first = share.begin; first < share.end; first += block_) {
      const int64_t count = std::min(block_, share.end - first);
      const T* rows = k.input<T>(0) + first * width_;
      if (part_bytes_ > score_bytes_) {
        DispatchNumber(type_, [&]<typename From>() {
          std::transform(k.input<From>(0) + first * width_,
                         k.input<From>(0) + (first + count) * width_, converted,
                         [](From x) { return static_cast<T>(x); });
        });
        rows = converted;
      }
      forest.Score(rows, count, width_, scores);
      for (int64_t i = 0; i < count; ++i) finish(first + i, scores + i * forest.targets());
    }
  };
  if (parts_ == 1) return run_part(0);
  k.pool().ParallelFor(parts_, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) run_part(part);
  });
}

template Result<ForestRows> ForestRows::Make(const PrepareContext&, const Forest<float>&);
template Result<ForestRows> ForestRows::Make(const PrepareContext&, const Forest<double>&);
template void ForestRows::ForEach(const KernelContext&, const Forest<float>&,
                                  FunctionRef<void(int64_t, double*)>) const;
template void ForestRows::ForEach(const KernelContext&, const Forest<double>&,
                                  FunctionRef<void(int64_t, double*)>) const;

}  // namespace onnxd
