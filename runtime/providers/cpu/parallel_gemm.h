// math::Simd::gemm on the threads of a run.
#pragma once

#include "runtime/base/thread_pool.h"
#include "runtime/math/simd.h"

namespace onnxd {

// Computes `g`, cut by rows, or by columns where there are few rows. Each thread gets 2^20
// multiply-adds or more.
void ParallelGemm(const math::Simd& simd, const math::GemmArguments& g, ThreadPool& pool);

// Multiply-adds that are worth a thread of their own where products with the same B follow each
// other.
inline constexpr int64_t kRepeatedProductGrain = 1 << 16;

// The same for products with the same B that follow each other: each thread gets columns, those of
// the call before, which it finds in its cache.
void ParallelGemmByColumns(const math::Simd& simd, const math::GemmArguments& g, ThreadPool& pool,
                           int64_t grain = kRepeatedProductGrain);

}  // namespace onnxd
