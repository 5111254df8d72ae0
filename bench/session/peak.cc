// peak: how fast one thread multiplies and adds floats in registers, which nothing that computes
// with floats exceeds. Says "ready", then for each line with a number N computes N times 1e9
// operations and prints the milliseconds that each took, like `onnxd bench --paced`.
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr long kOperations = 1'000'000'000;
constexpr int kChains = 12;  // more than a multiply-add takes cycles, times units

// The compiler keeps the chains in registers.
#define ONNXD_PEAK(name, lanes, attributes)                                                     \
  typedef float name##Vector __attribute__((vector_size(lanes * 4)));                           \
  __attribute__((noinline)) attributes float name(float seed) {                                 \
    name##Vector chain[kChains];                                                                \
    for (int i = 0; i < kChains; ++i) chain[i] = name##Vector{} + seed * static_cast<float>(i); \
    const name##Vector factor = name##Vector{} + 0.999f, summand = name##Vector{} + seed;       \
    for (long n = kOperations / (2L * kChains * lanes); n > 0; --n) {                           \
      for (int i = 0; i < kChains; ++i) chain[i] = chain[i] * factor + summand;                 \
    }                                                                                           \
    float sum = 0;                                                                              \
    for (int i = 0; i < kChains; ++i) sum += chain[i][0];                                       \
    return sum;                                                                                 \
  }

ONNXD_PEAK(Baseline, 4, )
#if defined(__x86_64__)
ONNXD_PEAK(Avx2, 8, __attribute__((target("avx2,fma"))))
ONNXD_PEAK(Avx512, 16, __attribute__((target("avx512f"))))
#endif

using Loop = float (*)(float);

double MillisecondsOf(Loop loop) {
  const auto begin = std::chrono::steady_clock::now();
  volatile float sink = loop(1e-3f);
  (void)sink;
  return Milliseconds(std::chrono::steady_clock::now() - begin).count();
}

Loop Fastest() {
  Loop best = Baseline;
  double least = MillisecondsOf(best);
  const auto try_also = [&](Loop loop) {
    MillisecondsOf(loop);
    const double took = MillisecondsOf(loop);
    if (took < least) best = loop, least = took;
  };
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) try_also(Avx2);
  if (__builtin_cpu_supports("avx512f")) try_also(Avx512);
#endif
  return best;
}

}  // namespace

int main() {
  const Loop loop = Fastest();
  std::puts("ready");
  std::fflush(stdout);
  char line[32];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const int count = std::atoi(line);
    double total = 0;
    for (int i = 0; i < count; ++i) total += MillisecondsOf(loop);
    std::printf("%f\n", total / count);
    std::fflush(stdout);
  }
  std::puts("{}");
}
