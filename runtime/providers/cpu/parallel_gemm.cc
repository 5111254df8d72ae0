#include "runtime/providers/cpu/parallel_gemm.h"

#include <algorithm>

namespace onnxd {
namespace {

constexpr int64_t kGrain = 1 << 20;

}  // namespace

void ParallelGemm(const math::Simd& simd, const math::GemmArguments& g, ThreadPool& pool) {
  if (g.m < 4 * pool.threads()) return ParallelGemmByColumns(simd, g, pool, kGrain);
  if (pool.threads() == 1 || g.m * g.n * g.k < 2 * kGrain) return simd.gemm(g);
  pool.ParallelFor(g.m, std::max<int64_t>(1, kGrain / (g.n * g.k + 1)),
                   [&](int64_t begin, int64_t end) {
                     math::GemmArguments part = g;
                     part.m = end - begin;
                     part.a += begin * g.lda;
                     part.c += begin * g.ldc;
                     simd.gemm(part);
                   });
}

void ParallelGemmByColumns(const math::Simd& simd, const math::GemmArguments& g, ThreadPool& pool,
                           int64_t grain) {
  if (pool.threads() == 1 || g.m * g.n * g.k < 2 * grain) return simd.gemm(g);
  const int64_t width = simd.gemm_width;
  const int64_t panels = (g.n + width - 1) / width;
  pool.ParallelFor(panels, grain / (g.m * g.k * width) + 1, [&](int64_t begin, int64_t end) {
    math::GemmArguments part = g;
    part.n = std::min(g.n, end * width) - begin * width;
    part.packed_b += begin * width * g.k;
    part.c += begin * width;
    if (part.bias != nullptr) part.bias += begin * width;
    simd.gemm(part);
  });
}

}  // namespace onnxd
