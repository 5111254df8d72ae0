// The loops of runtime/math at the sizes that models have: GFLOP/s (or GOP/s) and GB/s reached.
// Choose the instruction set with ONNXD_SIMD=baseline|avx2|avx512|avx512vnni|amx.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "runtime/math/simd.h"

namespace onnxd::math {
namespace {

const Simd& ChosenSimd() {
  static const bool chosen = [] {
    const char* name = std::getenv("ONNXD_SIMD");
    return name == nullptr || SetSimd(name);
  }();
  if (!chosen) std::abort();
  return CurrentSimd();
}

template <typename T>
struct AlignedArray {
  explicit AlignedArray(int64_t count)
      : data(static_cast<T*>(
            std::aligned_alloc(64, (static_cast<size_t>(count) * sizeof(T) + 127) / 64 * 64))) {
    for (int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(i % 7);
  }
  ~AlignedArray() { std::free(data); }
  AlignedArray(const AlignedArray&) = delete;
  T* data;
};

void CountWork(benchmark::State& state, double operations, double bytes) {
  using benchmark::Counter;
  state.counters["op/s"] =
      Counter(operations, Counter::kIsIterationInvariantRate, Counter::OneK::kIs1000);
  state.counters["B/s"] =
      Counter(bytes, Counter::kIsIterationInvariantRate, Counter::OneK::kIs1000);
}

struct Sizes {
  explicit Sizes(const benchmark::State& state)
      : m(state.range(0)), k(state.range(1)), n(state.range(2)) {}
  int64_t m, k, n;
  double operations() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(k) * static_cast<double>(n);
  }
  double weights() const { return static_cast<double>(k) * static_cast<double>(n); }
};

void Gemm(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  const Sizes z(state);
  AlignedArray<float> a(z.m * z.k), b(z.k * z.n), packed(PackedBSize(simd, z.k, z.n)), c(z.m * z.n);
  simd.pack_b(b.data, z.n, false, z.k, z.n, packed.data);
  for (auto _ : state) simd.gemm({z.m, z.n, z.k, a.data, z.k, packed.data, c.data, z.n});
  CountWork(state, z.operations(), 4 * z.weights());
}

// To a few columns; beside them Gemm's, of panels that are not full.
void PairGemm(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  if (simd.pair_gemm == nullptr) return state.SkipWithError("no 512-bit registers");
  const Sizes z(state);
  AlignedArray<float> a(z.m * z.k), b(z.k * z.n), packed(PackedPairsSize(z.k, z.n)), c(z.m * z.n);
  simd.pack_pairs(b.data, z.k, z.n, packed.data);
  for (auto _ : state) simd.pair_gemm({z.m, z.n, z.k, a.data, z.k, packed.data, c.data, z.n});
  CountWork(state, z.operations(), 4 * z.weights());
}

// A whole image at once, [size, size, channels], with windows of so many rows and columns.
void DepthwiseImage(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  const int64_t size = state.range(0), channels = state.range(1), window = state.range(2);
  const int64_t count = size * size * channels;
  AlignedArray<float> x(count), w(window * window * channels), y(count);
  std::vector<const float*> rows;
  for (int64_t i = 0; i < size * window; ++i) {
    const int64_t row = i / window + i % window - window / 2;
    rows.push_back(row < 0 || row >= size ? nullptr : x.data + row * size * channels);
  }
  const DepthwiseArguments g{rows.data(), size,   channels, channels,   channels, w.data,
                             window,      window, 1,        window / 2, nullptr,  false,
                             0.0f,        6.0f,   y.data,   size,       size};
  for (auto _ : state) simd.depthwise(g);
  CountWork(state, 2.0 * static_cast<double>(count * window * window),
            8.0 * static_cast<double>(count));
}

void FewRows(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  if (simd.few_rows == nullptr) return state.SkipWithError("no 512-bit registers");
  const Sizes z(state);
  const int64_t panels = (z.n + kFewRowsPanel - 1) / kFewRowsPanel, stride = z.k * kFewRowsPanel;
  AlignedArray<float> a(z.m * z.k), packed(panels * stride), c(z.m * z.n);
  const FewRowsArguments g{z.m, z.n, z.k, a.data, z.k, packed.data, stride, c.data, z.n};
  for (auto _ : state) simd.few_rows(g, 0, panels);
  CountWork(state, z.operations(), 4 * z.weights());
}

void Bfloat16Gemm(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  if (!simd.fast_bfloat16) return state.SkipWithError("no tiles");
  const Sizes z(state);
  const bool split = state.range(3) != 0;
  const int64_t packed_size = PackedBfloat16Size(simd, z.k, z.n);
  AlignedArray<uint16_t> a(z.m * z.k), b(z.k * z.n), packed(packed_size), low(packed_size);
  AlignedArray<float> c(z.m * z.n);
  simd.pack_bfloat16(b.data, z.n, false, z.k, z.n, packed.data);
  const Bfloat16GemmArguments g{z.m,
                                z.n,
                                z.k,
                                a.data,
                                split ? a.data : nullptr,
                                z.k,
                                packed.data,
                                split ? low.data : nullptr,
                                PackedBfloat16Size(simd, z.k, 1),
                                c.data,
                                z.n};
  const int64_t panels = (z.n + simd.gemm_width - 1) / simd.gemm_width;
  for (auto _ : state) simd.bfloat16_gemm(g, 0, panels);
  CountWork(state, z.operations(), (split ? 4 : 2) * z.weights());
}

void PackedDigitsGemm(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  if (simd.packed_digits_gemm == nullptr) return state.SkipWithError("no tiles");
  const Sizes z(state);
  AlignedArray<float> a(z.m * z.k), b(z.k * z.n), c(z.m * z.n);
  AlignedArray<std::byte> packed(simd.packed_digits_size(z.k, z.n));
  AlignedArray<std::byte> scratch(simd.packed_digits_scratch(z.m, z.k, z.n));
  PackedDigitsArguments g{};
  g.m = z.m, g.n = z.n, g.k = z.k;
  g.a = a.data, g.lda = z.k, g.piece = z.k;
  simd.pack_digits(b.data, z.k, z.n, packed.data);
  g.packed = packed.data;
  g.c = c.data, g.ldc = z.n;
  g.low = 0, g.high = 6;
  g.scratch = scratch.data;
  const int64_t panels = (z.n + simd.gemm_width - 1) / simd.gemm_width;
  for (auto _ : state) simd.packed_digits_gemm(g, 0, panels);
  CountWork(state, z.operations(), 3 * z.weights());
}

void NarrowFloats(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  const int64_t n = state.range(0);
  AlignedArray<float> x(n);
  AlignedArray<uint16_t> high(n), low(n);
  for (auto _ : state) simd.narrow(x.data, high.data, state.range(1) != 0 ? low.data : nullptr, n);
  CountWork(state, static_cast<double>(n), 4.0 * static_cast<double>(n));
}

void ByteGemm(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  const Sizes z(state);
  AlignedArray<uint8_t> a(z.m * z.k + 4);
  AlignedArray<int8_t> b(z.k * z.n), packed(PackedBytesSize(simd, z.k, z.n));
  AlignedArray<float> c(z.m * z.n), scales(z.n);
  AlignedArray<int32_t> offsets(z.n);
  simd.pack_bytes(b.data, false, z.k, z.n, packed.data);
  ByteGemmArguments g{z.m, z.n, z.k, a.data, z.k, packed.data, offsets.data, scales.data};
  g.c = c.data;
  g.ldc = z.n;
  AlignedArray<int16_t> wide(z.m * z.k + 4);
  if (simd.wide_bytes) g.wide = wide.data;
  const int64_t panels = (z.n + simd.gemm_width - 1) / simd.gemm_width;
  for (auto _ : state) simd.byte_gemm(g, 0, panels);
  CountWork(state, z.operations(), z.weights());
}

void BlockProduct(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  const Sizes z(state);
  const int bits = static_cast<int>(state.range(3));
  const BlockFormat format{z.k, z.n, 32, bits, false};
  const int64_t lanes = simd.gemm_width / 2, groups = (z.n + lanes - 1) / lanes;
  const int64_t words = groups * (z.k / 32) * (bits + 1) * lanes;
  AlignedArray<uint32_t> packed(words);
  std::fill_n(packed.data, words, 0x3f800000u);  // scales of 1, and any codes
  AlignedArray<float> a(z.m * z.k), c(z.m * z.n);
  const BlockProductArguments g{format,  packed.data, z.m, a.data, z.k,
                                nullptr, c.data,      z.n, nullptr};
  for (auto _ : state) simd.block_product(g, 0, groups);
  CountWork(state, z.operations(), 4 * static_cast<double>(words));
}

void UnaryLoop(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  constexpr int64_t kCount = 4096;
  AlignedArray<float> x(kCount), y(kCount);
  for (auto _ : state) simd.unary(static_cast<Unary>(state.range(0)), x.data, y.data, kCount);
  CountWork(state, kCount, 8 * kCount);
}

void Quantize(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  constexpr int64_t kCount = 16384;
  AlignedArray<float> x(kCount);
  AlignedArray<uint8_t> y(kCount);
  for (auto _ : state) simd.quantize(x.data, {false, 0.1f, 3.0f}, y.data, kCount);
  CountWork(state, kCount, 5 * kCount);
}

void Dequantize(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  constexpr int64_t kCount = 16384;
  AlignedArray<uint8_t> x(kCount);
  AlignedArray<float> y(kCount);
  for (auto _ : state) simd.dequantize(x.data, {false, 0.1f, 3.0f}, y.data, kCount);
  CountWork(state, kCount, 5 * kCount);
}

void QuantizedAdd(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  constexpr int64_t kCount = 65536;
  AlignedArray<uint8_t> x(kCount), y(kCount), z(kCount);
  const QuantizedOperand a{x.data, {false, 0.1f, 3.0f}, 1}, b{y.data, {false, 0.2f, 7.0f}, 1};
  for (auto _ : state) simd.quantized_add(a, b, {false, 0.3f, 9.0f}, z.data, kCount);
  CountWork(state, kCount, 3 * kCount);
}

// Sums of complete trees six levels deep, for one row of which so many columns are asked for.
void SumTrees(benchmark::State& state) {
  const Simd& simd = ChosenSimd();
  if (simd.float_trees.sum == nullptr) return state.SkipWithError("this instruction set has none");
  constexpr size_t kTrees = 300, kBlocksOfTree = 1 + kTreeExits;
  const int64_t columns = state.range(0);
  std::vector<TreeBlock<float>> blocks(1 + kTrees * kBlocksOfTree);
  std::vector<TreeExit> exits(kTreeExits * blocks.size());
  const auto name = [](size_t block) { return static_cast<uint32_t>(block * kTreeExitBytes); };
  for (size_t tree = 0; tree < kTrees; ++tree) {
    const size_t root = 1 + tree * kBlocksOfTree, last = root + kBlocksOfTree;
    const size_t following = tree + kTreeLanes < kTrees ? root + kTreeLanes * kBlocksOfTree : 0;
    for (size_t block = root; block < last; ++block) {
      for (size_t i = 0; i < kTreeExits; ++i) {
        const auto column = static_cast<uint32_t>((block * 7 + i) % static_cast<size_t>(columns));
        blocks[block].splits[i] = static_cast<float>((block + i) % 7);
        blocks[block].nodes[i] = TreeNodeWord(column, kTreeLess);
        exits[block * kTreeExits + i] =
            block == root ? TreeExit{0, name(root + 1 + i)} : TreeExit{1, name(following)};
      }
    }
  }
  uint32_t roots[kTreeLanes];
  for (size_t lane = 0; lane < kTreeLanes; ++lane) roots[lane] = name(1 + lane * kBlocksOfTree);
  const TreeWalk<float> walk{blocks.data(), exits.data(), roots, true, false, columns};
  const AlignedArray<float> row(columns);
  for (auto _ : state) benchmark::DoNotOptimize(simd.float_trees.sum(walk, row.data));
  CountWork(state, kTrees * 6, kTrees * 2 * (sizeof(TreeBlock<float>) + kTreeExitBytes));
}

void ProductSizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "k", "n"});
  for (const int64_t m : {1, 4, 128}) {
    bench->Args({m, 384, 1536})->Args({m, 768, 768})->Args({m, 768, 3072})->Args({m, 3072, 768});
  }
}

void BlockSizes(benchmark::internal::Benchmark* bench) {
  bench->ArgNames({"m", "k", "n", "bits"});
  for (const int64_t bits : {4, 8}) {
    for (const int64_t m : {1, 4}) bench->Args({m, 768, 3072, bits})->Args({m, 768, 50304, bits});
  }
}

BENCHMARK(Gemm)->Apply(ProductSizes);
BENCHMARK(Gemm)
    ->Name("GemmOfFewColumns")
    ->ArgNames({"m", "k", "n"})
    ->ArgsProduct({{112}, {96, 144}, {8, 16, 24}});
BENCHMARK(Gemm)
    ->Name("GemmOfFewElements")
    ->ArgNames({"m", "k", "n"})
    ->ArgsProduct({{56, 112}, {8, 16, 24, 28}, {32}});
BENCHMARK(PairGemm)->ArgNames({"m", "k", "n"})->ArgsProduct({{112}, {96, 144}, {8, 16, 24}});
BENCHMARK(DepthwiseImage)
    ->ArgNames({"size", "channels", "window"})
    ->Args({14, 576, 3})
    ->Args({28, 192, 3})
    ->Args({14, 672, 5})
    ->Args({14, 384, 7});
BENCHMARK(FewRows)->ArgNames({"m", "k", "n"})->ArgsProduct({{1, 2, 4, 6, 8, 12}, {768}, {3072}});
BENCHMARK(ByteGemm)->Apply(ProductSizes)->Args({1, 768, 50304});
BENCHMARK(Bfloat16Gemm)
    ->ArgNames({"m", "k", "n", "split"})
    ->ArgsProduct({{1, 4, 128, 197}, {768}, {768, 3072}, {0, 1}})
    ->ArgsProduct({{128}, {3072}, {768}, {0, 1}});
BENCHMARK(PackedDigitsGemm)
    ->ArgNames({"m", "k", "n"})
    ->Args({3136, 64, 256})
    ->Args({784, 512, 128})
    ->Args({196, 1024, 256})
    ->Args({196, 96, 576})
    ->Args({49, 512, 2048});
BENCHMARK(NarrowFloats)->ArgNames({"n", "split"})->ArgsProduct({{16384}, {0, 1}});
BENCHMARK(BlockProduct)->Apply(BlockSizes);
BENCHMARK(UnaryLoop)->ArgName("op")->DenseRange(0, static_cast<int>(Unary::kNeg));
BENCHMARK(Quantize);
BENCHMARK(Dequantize);
BENCHMARK(QuantizedAdd);
BENCHMARK(SumTrees)->ArgName("columns")->Arg(30)->Arg(60);

}  // namespace
}  // namespace onnxd::math
