// ArgMax-1 to -13 and ArgMin-1 to -13.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "runtime/kernel/kernel.h"
#include "runtime/math/simd.h"
#include "runtime/providers/cpu/type_dispatch.h"

namespace onnxd {
namespace {

constexpr int64_t kTogether = 1024;         // columns whose best stay in the first-level cache
constexpr int64_t kWorkTogether = 1 << 15;  // comparisons that are worth a thread's time
constexpr int64_t kLongRow = 64;            // numbers

// ArgMax and ArgMin of in[outer, extent, inner] over the middle axis.
struct ArgReduction {
  bool smallest, last;  // last: of equals the last wins, else the first
  int64_t outer, extent, inner;
};

template <typename T>
bool IsBetter(const ArgReduction& r, T x, T best) {
  return r.smallest ? x < best : x > best;
}

// Of in[extent, inner] at one of `inner`, without branches on what the numbers are.
template <typename T, bool smallest, bool last>
int64_t PlaceOfOne(const ArgReduction& r, const T* in) {
  int64_t place = 0;
  T best = in[0];
  for (int64_t i = 1; i < r.extent; ++i) {
    const T x = in[i * r.inner];
    const bool takes = (smallest ? x < best : x > best) | (last & (x == best));
    best = takes ? x : best;
    place += (i - place) & -static_cast<int64_t>(takes);
  }
  return place;
}

template <typename T>
auto PlaceFunction(const ArgReduction& r) {
  if (r.smallest) return r.last ? PlaceOfOne<T, true, true> : PlaceOfOne<T, true, false>;
  return r.last ? PlaceOfOne<T, false, true> : PlaceOfOne<T, false, false>;
}

// Of `count` columns side by side, up to kTogether, of any type.
template <typename T>
void PlacesOfColumns(const ArgReduction& r, const T* in, int64_t count, int64_t* out) {
  T best[kTogether];
  int32_t places[kTogether];
  std::copy_n(in, count, best);
  std::fill_n(places, count, 0);
  for (int64_t i = 1; i < r.extent; ++i) {
    const T* row = in + i * r.inner;
    for (int64_t c = 0; c < count; ++c) {
      const bool takes = IsBetter(r, row[c], best[c]) || (r.last && row[c] == best[c]);
      best[c] = takes ? row[c] : best[c];
      places[c] = takes ? static_cast<int32_t>(i) : places[c];
    }
  }
  std::copy_n(places, count, out);
}

// The same of floats, the first of equals.
void FirstPlacesOfColumns(const ArgReduction& r, const float* in, int64_t count, int64_t* out) {
  float best[kTogether];
  int32_t places[kTogether];
  math::CurrentSimd().column_places({in, r.inner, r.extent, count, r.smallest, best, places});
  std::copy_n(places, count, out);
}

// Of a row of at least kLongRow floats, the first of equals: as rows of kLongRow, of which columns
// are taken first.
int64_t FirstPlaceOfRow(const ArgReduction& r, const float* in) {
  if (std::any_of(in, in + kLongRow, [](float x) { return std::isnan(x); })) {
    return PlaceFunction<float>(r)(r, in);
  }
  float best[kLongRow];
  int32_t places[kLongRow];
  const int64_t rows = r.extent / kLongRow;
  math::CurrentSimd().column_places({in, kLongRow, rows, kLongRow, r.smallest, best, places});
  int64_t place = places[0] * kLongRow;
  float value = best[0];
  const auto take = [&](float x, int64_t at) {
    if (!IsBetter(r, x, value) && !(x == value && at < place)) return;
    value = x;
    place = at;
  };
  for (int64_t c = 0; c < kLongRow; ++c) take(best[c], places[c] * kLongRow + c);
  for (int64_t i = rows * kLongRow; i < r.extent; ++i) take(in[i], i);
  return place;
}

template <typename T>
void PlacesOf(const ArgReduction& r, const T* in, int64_t count, int64_t* out) {
  const bool counts_in_32_bits = r.extent <= std::numeric_limits<int32_t>::max();
  if constexpr (std::is_same_v<T, float>) {
    const bool first = counts_in_32_bits && !r.last;
    if (first && count >= 8) return FirstPlacesOfColumns(r, in, count, out);
    if (first && r.inner == 1 && r.extent >= kLongRow) {
      *out = FirstPlaceOfRow(r, in);
      return;
    }
  }
  if (counts_in_32_bits && count > 1) return PlacesOfColumns(r, in, count, out);
  for (int64_t i = 0; i < count; ++i) out[i] = PlaceFunction<T>(r)(r, in + i);
}

// By columns of a row, so many together.
template <typename T>
void RunArgReduction(const ArgReduction& r, const KernelContext& k) {
  const int64_t chunks = (r.inner + kTogether - 1) / kTogether;
  const int64_t work = std::max<int64_t>(1, r.extent * std::min(r.inner, kTogether));
  k.pool().ParallelFor(r.outer * chunks, 1 + kWorkTogether / work, [&](int64_t begin, int64_t end) {
    int64_t row = begin / chunks, chunk = begin % chunks;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = chunk * kTogether;
      PlacesOf(r, k.input<T>(0) + row * r.extent * r.inner + first,
               std::min(kTogether, r.inner - first), k.output<int64_t>(0) + row * r.inner + first);
      if (++chunk < chunks) continue;
      chunk = 0;
      ++row;
    }
  });
}

}  // namespace

// ArgMax and ArgMin; the first of equals wins unless select_last_index is set.
Result<std::unique_ptr<Kernel>> MakeArgReduce(const KernelInfo& info) {
  const DataType type = info.InputType(0);
  if (!IsNumber(type)) return DeclineType(info.node.op_type, type);
  ArgReduction reduction{};
  reduction.smallest = info.node.op_type == "ArgMin";
  reduction.last = info.node.attributes.Int("select_last_index", 0) != 0;
  return MakeKernel([=](const PrepareContext& context) -> Result<PreparedKernel> {
    const Shape& in = context.InputShape(0);
    ONNXD_ASSIGN_OR_RETURN(const int axis,
                           NormalizeAxis(context.node.attributes.Int("axis", 0), in.rank()));
    ArgReduction r = reduction;
    r.outer = in.ElementCount(0, axis);
    r.extent = in[axis];
    r.inner = in.ElementCount(axis + 1, in.rank());
    if (r.extent == 0) {
      return InvalidArgument(StrCat(Describe(context.node), ": the axis is empty"));
    }
    PreparedKernel prepared;
    prepared.compute = [=](const KernelContext& k) {
      DispatchNumber(type, [&]<typename T>() { RunArgReduction<T>(r, k); });
      return Status::Ok();
    };
    return prepared;
  });
}

}  // namespace onnxd
